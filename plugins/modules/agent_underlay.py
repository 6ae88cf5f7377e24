#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: agent_underlay
short_description: Create or remove the WireGuard key of an agent
description:
  - "Internal: called by the roles of this collection."
  - Creates the key pair on the agent and returns its address in the encrypted underlay. The private key stays on the
    agent and is not read by the collection.
  - The address is derived from the public key, so that agents do not have to agree on addresses.
  - Changes that would disconnect sessions that use the device are rejected.
  - The role P(backendai.cluster.agent#role) creates the device itself.
extends_documentation_fragment:
  - backendai.cluster.attributes
  - backendai.cluster.options.state
requirements:
  - iproute2
  - wireguard-tools
options:
  encryption:
    description: The encryption of the underlay; when empty, it is not encrypted, and the key is removed.
    type: str
    choices: ["", wireguard]
    default: ""
  address:
    description:
      - The address at which other agents reach it.
      - When empty, the address of the interface with the default route, else the local address of this connection.
    type: str
    default: ""
  port:
    description: The UDP port of the device.
    type: int
    default: 51820
"""

EXAMPLES = r"""
- name: Create or remove the WireGuard key of an agent
  backendai.cluster.agent_underlay:
"""

RETURN = r"""
underlay: {type: dict, returned: always,
  description: The C(address) and the C(mtu) of the WireGuard device; V(null) without one.}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._host.store import Store
from ..module_utils._model.change import as_diff
from ..module_utils._module import CAPACITY_OPTIONS, CONNECTION_OPTIONS, run_module
from ..module_utils._wireguard.key import DesiredEncryption, ensure_key


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state_path": CONNECTION_OPTIONS["state_path"],
            "encryption": CAPACITY_OPTIONS["underlay_encryption"],
            "address": CAPACITY_OPTIONS["underlay_address"],
            "port": {"type": "int", "default": 51820},
        },
        supports_check_mode=True,
    )

    def run() -> dict[str, Any]:
        params = module.params
        desired = DesiredEncryption(params["encryption"], params["port"], params["address"])
        changes, underlay = ensure_key(Store(params["state_path"]), desired, check_mode=module.check_mode)
        return {
            "changed": bool(changes),
            "diff": as_diff(changes),
            "underlay": {"address": underlay.address, "mtu": underlay.mtu} if underlay else None,
        }

    run_module(module, run)


if __name__ == "__main__":
    main()
