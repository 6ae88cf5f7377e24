# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The agents that an operator names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..module_utils._model.validation import ValidationError
from .option_text import decode_list


class NameOptions(NamedTuple):
    """What the user calls the names of agents, and the confirmation that they are all of them."""

    names: str
    confirmation: str


VARIABLES = NameOptions("agent_names", "agent_all_confirmed")
"""The variables of playbooks."""


def select_agents(
    names: str | Iterable[str], agents: Sequence[str], *, confirmed: bool, options: NameOptions = VARIABLES
) -> list[str]:
    """Return the names as a list.

    Raises :class:`ValidationError` with one sentence for none, for those that are not agents, and for all of them at
    once unless that is ``confirmed``.
    """
    try:
        listed = decode_list(names)
    except ValueError as error:
        raise ValidationError(f"{options.names}: {error}.") from None
    selected = [name for name in dict.fromkeys(str(name).strip() for name in listed) if name]
    if not selected:
        raise ValidationError(f"{options.names} is required: one or more of {', '.join(agents)}.")
    for name in selected:
        if name not in agents:
            near = difflib.get_close_matches(name, agents, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(agents)}."
            raise ValidationError(f"{options.names}: {name!r} is not an agent of the inventory; {hint}")
    if {*selected} == {*agents} and not confirmed:
        raise ValidationError(
            f"{options.names}: these are all agents, so no session could start;"
            f" set {options.confirmation}=true to confirm."
        )
    return selected
