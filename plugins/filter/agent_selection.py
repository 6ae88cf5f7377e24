# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The agents that an operator names."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError

from ..plugin_utils.option_text import decode_list

DOCUMENTATION = r"""
name: agent_selection
short_description: Check the names of agents to take out of service
version_added: 0.1.0
description:
  - Returns the names. Fails for names that are not agents, for none, and for all of them at
    once unless that is confirmed.
author:
  - backendai.cluster contributors (!UNKNOWN)
positional: agents, confirmed
options:
  _input:
    description: The names, as a list or comma-separated.
    type: raw
    required: true
  agents:
    description: The names of all agents of the inventory.
    type: list
    elements: str
    required: true
  confirmed:
    description: Whether all agents may be selected.
    type: bool
    required: true
"""

EXAMPLES = r"""
- name: Select the agents
  ansible.builtin.set_fact:
    selected: "{{ agent_names | backendai.cluster.agent_selection(groups['agents'], false) }}"
"""

RETURN = r"""
_value:
  description: The names.
  type: list
  elements: str
"""


def select_agents(names: str | Iterable[str], agents: Sequence[str], confirmed: bool) -> list[str]:
    """Return the names as a list. Raises :class:`AnsibleFilterError` with one sentence."""
    try:
        listed = decode_list(names)
    except ValueError as error:
        raise AnsibleFilterError(f"agent_names: {error}.") from None
    selected = [name for name in dict.fromkeys(str(name).strip() for name in listed) if name]
    if not selected:
        raise AnsibleFilterError(f"agent_names is required: one or more of {', '.join(agents)}.")
    for name in selected:
        if name not in agents:
            near = difflib.get_close_matches(name, agents, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(agents)}."
            raise AnsibleFilterError(f"agent_names: {name!r} is not an agent of the inventory; {hint}")
    if {*selected} == {*agents} and not confirmed:
        raise AnsibleFilterError(
            "agent_names: these are all agents, so no session could start; set agent_all_confirmed=true to confirm."
        )
    return selected


class FilterModule:
    """The filter of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filter by name."""
        return {"agent_selection": select_agents}
