#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: agent_segmentation
short_description: Warn about exposure of an agent that its firewall cannot prevent
description:
  - "Internal: called by the roles of this collection."
  - Warns if the agent has a public address, if managers or users are in its subnet, if its Docker engine listens on
    TCP, and if IPv6 is enabled without a filter. Changes nothing.
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
- name: Warn about exposure of an agent that its firewall cannot prevent
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

from ..module_utils._firewall.audit import audit
from ..module_utils._firewall.surroundings import read_exposure
from ..module_utils._model.addressing import is_address
from ..module_utils._module import CAPACITY_OPTIONS, run_module


def _addresses(hosts: Mapping[str, Any]) -> dict[str, str]:
    """Return the addresses of the hosts with a known IP address."""
    addresses = {host: str(address or host) for host, address in hosts.items()}
    return {host: address for host, address in addresses.items() if is_address(address)}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "underlay_address": CAPACITY_OPTIONS["underlay_address"],
            "managers": {"type": "dict", "default": {}},
            "users": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )

    def run() -> dict[str, Any]:
        others = {group: _addresses(module.params[group]) for group in ("managers", "users")}
        findings = audit(read_exposure(module.params["underlay_address"]), others)
        for finding in findings:
            module.warn(f"{finding.message}.")
        return {"changed": False, "findings": [dataclasses.asdict(finding) for finding in findings]}

    run_module(module, run)


if __name__ == "__main__":
    main()
