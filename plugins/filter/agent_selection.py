# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The agents that an operator names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError

from ..module_utils._model.validation import ValidationError
from ..plugin_utils.agent_names import select_agents

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


def agent_selection(names: str | Iterable[str], agents: Sequence[str], confirmed: bool) -> list[str]:
    """Return the names as a list. Raises :class:`AnsibleFilterError` with one sentence."""
    try:
        return select_agents(names, agents, confirmed=confirmed)
    except ValidationError as error:
        raise AnsibleFilterError(str(error)) from None


class FilterModule:
    """The filter of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filter by name."""
        return {"agent_selection": agent_selection}
