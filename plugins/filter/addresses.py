# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The addresses of inventory hosts, for firewall rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

from ..module_utils._model.validation import ValidationError
from ..plugin_utils.inventory_addresses import addresses_of

DOCUMENTATION = r"""
name: addresses
short_description: Return the addresses of hosts of the inventory
version_added: 0.1.0
description:
  - Returns all IPv4 and IPv6 addresses of hosts without duplicates. Names are resolved on the control node; loopback
    addresses are omitted.
author:
  - backendai.cluster contributors (!UNKNOWN)
positional: hostvars, variable
options:
  _input:
    description: The inventory names of the hosts.
    type: list
    elements: str
    required: true
  hostvars:
    description: The variable C(hostvars).
    type: dict
    required: true
  variable:
    description: The variable with the address of a host; if unset, C(ansible_host), else its name.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Show the addresses of the agents
  ansible.builtin.debug:
    msg: "{{ groups['agents'] | backendai.cluster.addresses(hostvars, 'agent_underlay_address') }}"
"""

RETURN = r"""
_value:
  description: The addresses.
  type: list
  elements: str
"""


def addresses(hosts: Iterable[str], hostvars: Mapping[str, Mapping[str, Any]], variable: str = "") -> list[str]:
    """Return the addresses of hosts, from their ``variable``, else ``ansible_host``, else their name."""
    try:
        return addresses_of(hostvars, hosts, variable)
    except ValidationError as error:
        raise AnsibleFilterError(str(error)) from None


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"addresses": addresses}
