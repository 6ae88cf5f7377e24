# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ended sessions whose routes all gateways have removed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..plugin_utils._lifecycle.routes import find_unrouted

DOCUMENTATION = r"""
name: unrouted
short_description: Return the ended sessions whose routes all gateways have removed
version_added: 0.1.0
description:
  - "Internal: called by the playbooks of this collection."
  - Returns the ids of ended sessions that every gateway has confirmed. Agents may give their ports to other sessions.
author:
  - backendai.cluster contributors (!UNKNOWN)
positional: gateways, hostvars
options:
  _input:
    description: The update that was sent to the gateways.
    type: dict
    required: true
  gateways:
    description: The names of all gateways of the inventory.
    type: list
    elements: str
    required: true
  hostvars:
    description: The variables of all hosts, with the results of M(backendai.cluster.gateway_routes).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the sessions without routes
  ansible.builtin.debug:
    msg: "{{ update | backendai.cluster.unrouted(groups['gateways'], hostvars) }}"
"""

RETURN = r"""
_value:
  description: The ids of sessions.
  type: list
  elements: str
"""


class FilterModule:
    """The filter of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filter by name."""
        return {"unrouted": find_unrouted}
