#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: agent_network
short_description: Create the default network of an agent's containers
description:
  - "Internal: called by the roles of this collection."
  - Creates a Docker bridge network for outgoing connections, without traffic between containers. Sessions have networks
    of their own.
  - A network of the collection that differs is recreated if no container is attached to it. Other networks are never
    changed.
extends_documentation_fragment:
  - backendai.cluster.attributes
  - backendai.cluster.options.engine
options:
  name:
    description: The name of the network.
    type: str
    default: backendai-default
  bridge:
    description: The name of its bridge on the agent, at most 15 characters.
    type: str
    default: backendai0
  subnet:
    description: Its subnet. When empty, Docker chooses one from its own pool.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Create the default network of an agent's containers
  backendai.cluster.agent_network:
"""

RETURN = "# Only the common return values."

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._docker.client import connect
from ..module_utils._docker.default_network import DefaultNetwork, create_default_network, plan_default_network
from ..module_utils._model.change import as_diff
from ..module_utils._module import CONNECTION_OPTIONS, run_module


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "docker_host": CONNECTION_OPTIONS["docker_host"],
            "name": {"type": "str", "default": "backendai-default"},
            "bridge": {"type": "str", "default": "backendai0"},
            "subnet": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )

    def run() -> dict[str, Any]:
        client = connect(module.params["docker_host"])
        network = DefaultNetwork(module.params["name"], module.params["bridge"], module.params["subnet"])
        changes = plan_default_network(client, network)
        if changes and not module.check_mode:
            create_default_network(client, network)
        return {"changed": bool(changes), "diff": as_diff(changes)}

    run_module(module, run)


if __name__ == "__main__":
    main()
