#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Say at which addresses and ports a host could be reached."""

from __future__ import annotations

DOCUMENTATION = r"""
module: isolation_targets
short_description: Say at which addresses and ports a host could be reached
version_added: 0.1.0
description:
  - Reads the addresses of an agent or a gateway, of its bridges and of its containers, and the ports that tunnels use.
    Changes nothing.
  - M(backendai.cluster.isolation_probe) tries them from hosts outside.
author:
  - backendai.cluster contributors (!UNKNOWN)
extends_documentation_fragment:
  - backendai.cluster.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
    details: Nothing is changed.
requirements:
  - python >= 3.9
  - Docker SDK for Python (C(python3-docker)), on agents
  - iproute2
options:
  kind:
    description: What the host is.
    type: str
    choices: [agent, gateway]
    required: true
  docker_host:
    description: The address of an agent's Docker engine.
    type: str
    default: unix:///var/run/docker.sock
  wireguard_port:
    description: The UDP port of an agent's WireGuard device.
    type: int
    default: 51820
  gateway_state_path:
    description:
      - The folder that holds what a gateway remembers of sessions. Their ports for SSH are expected to be open.
    type: path
    default: /var/lib/backendai-gateway
  https_port:
    description: The port of a gateway that is expected to be open.
    type: int
    default: 443
"""

EXAMPLES = r"""
- name: Say what is to be tried of this agent
  backendai.cluster.isolation_targets:
    kind: agent
"""

RETURN = r"""
addresses:
  description: What each address belongs to - V(agent), V(gateway), V(bridge) or V(container).
  returned: success
  type: dict
  sample: {10.77.9.11: agent, 172.18.0.1: bridge, 172.18.0.2: container}
udp_ports:
  description: The UDP ports of tunnels.
  returned: success
  type: list
  elements: int
expected:
  description: The TCP ports that are expected to be open, with what they are for.
  returned: success
  type: dict
  sample: {"443": HTTPS of sessions' apps}
unread:
  description: Why the addresses of containers, or a gateway's ports for SSH, are not known; empty when they are.
  returned: success
  type: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.backendai.cluster.plugins.module_utils._exposure.targets import of_agent, of_gateway
from ansible_collections.backendai.cluster.plugins.module_utils._module import CONNECTION_OPTIONS, finish


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "kind": {"type": "str", "choices": ["agent", "gateway"], "required": True},
            "docker_host": CONNECTION_OPTIONS["docker_host"],
            "wireguard_port": {"type": "int", "default": 51820},
            "gateway_state_path": {"type": "path", "default": "/var/lib/backendai-gateway"},
            "https_port": {"type": "int", "default": 443},
        },
        supports_check_mode=True,
    )

    def look() -> dict[str, Any]:
        params = module.params
        if params["kind"] == "gateway":
            return {"changed": False, **of_gateway(params["gateway_state_path"], params["https_port"])}
        return {"changed": False, **of_agent(params["docker_host"], params["wireguard_port"])}

    finish(module, look)


if __name__ == "__main__":
    main()
