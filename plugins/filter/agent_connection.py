# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The connection variables of an agent, for the connection to its containers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleError, AnsibleFilterError

from ..plugin_utils.host_link import connection_settings

DOCUMENTATION = r"""
name: agent_connection
short_description: Return the connection variables of an agent
version_added: 0.1.0
description:
  - Returns those of an agent's variables that configure its connection and C(become). The inventory plugin
    P(backendai.cluster.sessions#inventory) uses it, so that no value is copied into the inventory.
author:
  - backendai.cluster contributors (!UNKNOWN)
options:
  _input:
    description: The variables of the agent, C(hostvars) of it.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show how agent1 is reached
  ansible.builtin.debug:
    msg: "{{ hostvars['agent1'] | backendai.cluster.agent_connection }}"
"""

RETURN = r"""
_value:
  description: The variables.
  type: dict
"""


def agent_connection(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of an agent's variables that configure its connection; they are templated already."""
    try:
        return connection_settings(variables, lambda value: value)
    except AnsibleError as error:
        raise AnsibleFilterError(str(error)) from None


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"agent_connection": agent_connection}
