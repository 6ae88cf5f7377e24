#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Try who may open a connection to a host; the old rules come back unless the new ones are confirmed."""

from __future__ import annotations

DOCUMENTATION = r"""
module: agent_firewall
short_description: Try who may open a connection to a host
version_added: 0.1.0
description:
  - Checks the new rules, prepares the way back, and replaces the rules in one step. They last for O(confirm_timeout)
    seconds. M(backendai.cluster.agent_firewall_confirm), over a new SSH connection, lets them stay; else the old rules
    come back by themselves, by a timer of systemd or, without systemd, by a process of their own.
  - The rules are chains of the project's own nftables table. They only drop, so that they hold beside those of Docker,
    ufw and firewalld, whatever those accept. Every packet is looked at, also those of connections that are open
    already.
  - Rules that are confirmed already are made true again, which needs no confirmation.
author:
  - backendai.cluster contributors (!UNKNOWN)
extends_documentation_fragment:
  - backendai.cluster.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
requirements:
  - python >= 3.9
  - iproute2
  - nftables
options:
  state_path:
    description: The folder that holds what the host remembers.
    type: path
    default: /var/lib/backendai
  docker_host:
    description: The address of the host's Docker engine, for the program that takes rules back; it may have none.
    type: str
    default: unix:///var/run/docker.sock
  enabled:
    description: Whether there is to be a firewall. Without one, published ports of sessions are for gateways still.
    type: bool
    default: true
  managers:
    description:
      - Addresses and networks that SSH connections may come from.
      - When empty, O(inventory_managers) and the address that this connection comes from.
    type: list
    elements: str
    default: []
  inventory_managers:
    description: The addresses of the hosts that the inventory calls managers.
    type: list
    elements: str
    default: []
  gateways:
    description: Addresses and networks that may reach what is published of sessions.
    type: list
    elements: str
    default: []
  peers:
    description: Addresses and networks of agents. They may reach the ports of Docker Swarm and of the encryption.
    type: list
    elements: str
    default: []
  ssh_ports:
    description: The ports of the host's SSH server; when empty, the one that this connection came in at, else 22.
    type: list
    elements: int
    default: []
  allow:
    description: What else may come in.
    type: list
    elements: dict
    default: []
    suboptions:
      protocol:
        description: What protocol; with V(any), everything that O(allow[].sources) send.
        type: str
        choices: [tcp, udp, any]
        default: tcp
      ports:
        description: Ports and ranges of ports, such as V(9100) and V(9100-9199).
        type: list
        elements: str
        default: []
      sources:
        description: Addresses and networks; when empty, anybody.
        type: list
        elements: str
        default: []
  interfaces:
    description: The interfaces that the firewall holds for; when empty, all.
    type: list
    elements: str
    default: []
  confirm_timeout:
    description: For how many seconds new rules last that are not confirmed, V(5) to V(3600).
    type: int
    default: 60
"""

EXAMPLES = r"""
- name: Try the new rules
  backendai.cluster.agent_firewall:
    managers: [192.0.2.0/24]
    gateways: [198.51.100.7]
  register: tried
"""

RETURN = r"""
nonce:
  description: What the rules are confirmed with; empty where there is nothing to confirm.
  returned: success
  type: str
managers:
  description: The networks that SSH connections may come from, empty without a firewall.
  returned: success
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.backendai.cluster.plugins.module_utils._firewall.options import parse_firewall, parse_timeout
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.other_firewalls import other_firewalls
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.trial import try_firewall
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.trial_timer import start_withdrawal
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import as_diff
from ansible_collections.backendai.cluster.plugins.module_utils._module import CONNECTION_OPTIONS, finish
from ansible_collections.backendai.cluster.plugins.module_utils._network.ssh_connection import ssh_connection

_ALONE = (
    "firewall_managers: from now on only {address} logs in here, which is where this connection comes from; name"
    " firewall_managers, or the hosts of the group managers."
)


def main() -> None:
    texts = {"type": "list", "elements": "str", "default": []}
    module = AnsibleModule(
        argument_spec={
            **CONNECTION_OPTIONS,
            "enabled": {"type": "bool", "default": True},
            "managers": texts,
            "inventory_managers": texts,
            "gateways": texts,
            "peers": texts,
            "ssh_ports": {"type": "list", "elements": "int", "default": []},
            "allow": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "protocol": {"type": "str", "choices": ["tcp", "udp", "any"], "default": "tcp"},
                    "ports": texts,
                    "sources": texts,
                },
            },
            "interfaces": texts,
            "confirm_timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )

    def run() -> dict[str, Any]:
        params = module.params
        connection = ssh_connection()
        seconds = parse_timeout(params["confirm_timeout"])
        wanted = parse_firewall(params, params["inventory_managers"], connection.split()) if params["enabled"] else None

        def start_timer(nonce: str, until: int) -> None:
            start_withdrawal(params["state_path"], params["docker_host"], nonce, until)

        for sentence in other_firewalls():
            module.warn(sentence)
        store = Store(params["state_path"])
        if wanted and not params["managers"] and not params["inventory_managers"]:
            module.warn(_ALONE.format(address=", ".join(wanted.managers)))
        tried = try_firewall(store, wanted, seconds, connection, start_timer, dry=module.check_mode)
        return {
            "changed": bool(tried.changes or tried.nonce),
            "diff": as_diff(tried.changes),
            "nonce": tried.nonce,
            "managers": list(wanted.managers) if wanted else [],
        }

    finish(module, run)


if __name__ == "__main__":
    main()
