#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: agent_segmentation
short_description: Find exposure of an agent that its firewall cannot prevent
description:
  - "Internal: called by the roles of this collection."
  - With O(phase=after), warns if the agent has a public address, if managers or users are in its subnet, if its Docker
    engine listens on TCP, and if IPv6 is enabled without a filter.
  - With O(phase=before), fails or warns, as O(separation) says, if O(management_networks) and O(compute_networks)
    overlap, if the address of this SSH connection or the underlay is outside of its networks, if an interface has
    addresses of both, and if the agent has a public address. Without networks, nothing is found.
  - Changes nothing.
extends_documentation_fragment:
  - backendai.cluster.attributes
  - backendai.cluster.options.underlay
attributes:
  diff_mode:
    support: none
    details: Nothing is changed.
requirements:
  - iproute2
  - nftables
notes:
  - Needs root to read the processes of sockets.
options:
  phase:
    description: Whether the agent is examined before anything is changed, or after its firewall is.
    type: str
    choices: [before, after]
    default: after
  management_networks:
    description: The networks in which the agent is reached by SSH, as in C(agent_management_networks).
    type: list
    elements: str
    default: []
  compute_networks:
    description: The networks of its underlay, as in C(agent_compute_networks).
    type: list
    elements: str
    default: []
  separation:
    description: What findings of O(phase=before) are, as in C(agent_network_separation).
    type: str
    choices: [require, warn]
    default: require
  managers:
    description:
      - The addresses of managers, by inventory name; empty where the inventory name is the address.
      - Hosts without a known IP address are skipped.
    type: dict
    default: {}
  users:
    description: The addresses of the hosts of users, by inventory name, as in O(managers).
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Find exposure of an agent that its firewall cannot prevent
  backendai.cluster.agent_segmentation:
"""

RETURN = r"""
findings: {type: list, elements: dict, returned: always,
  description: "The exposures, each with its C(kind) and a C(message)."}
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._firewall.audit import Finding, audit, audit_public_addresses, audit_zones
from ..module_utils._firewall.surroundings import read_exposure, read_zones
from ..module_utils._model.addressing import is_address
from ..module_utils._model.errors import ClusterError
from ..module_utils._module import CAPACITY_OPTIONS, SEPARATION_OPTIONS, run_module


def _addresses(hosts: Mapping[str, Any]) -> dict[str, str]:
    """Return the addresses of the hosts with a known IP address."""
    addresses = {host: str(address or host) for host, address in hosts.items()}
    return {host: address for host, address in addresses.items() if is_address(address)}


def _before(params: Mapping[str, Any]) -> list[Finding]:
    """Return why management and compute are not apart, where they are declared."""
    zones = read_zones(params["management_networks"], params["compute_networks"], params["underlay_address"])
    if not zones.management and not zones.compute:
        return []
    own = [address for addresses in zones.interfaces.values() for address in addresses]
    return [*audit_zones(zones), *audit_public_addresses(own)]


def _after(params: Mapping[str, Any]) -> list[Finding]:
    """Return what the firewall cannot prevent."""
    others = {group: _addresses(params[group]) for group in ("managers", "users")}
    return audit(read_exposure(params["underlay_address"]), others)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "phase": {"type": "str", "choices": ["before", "after"], "default": "after"},
            "underlay_address": CAPACITY_OPTIONS["underlay_address"],
            **SEPARATION_OPTIONS,
            "managers": {"type": "dict", "default": {}},
            "users": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )

    def run() -> dict[str, Any]:
        findings = (_before if module.params["phase"] == "before" else _after)(module.params)
        if findings and module.params["phase"] == "before" and module.params["separation"] == "require":
            raise ClusterError(" ".join(f"{finding.message}." for finding in findings))
        for finding in findings:
            module.warn(f"{finding.message}.")
        return {"changed": False, "findings": [dataclasses.asdict(finding) for finding in findings]}

    run_module(module, run)


if __name__ == "__main__":
    main()
