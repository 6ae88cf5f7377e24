#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: agent_network
short_description: Set up the network of an agent's containers
description:
  - "Internal: called by the roles of this collection."
  - Creates a Docker bridge network for outgoing connections, without traffic between containers, with the MTU of the
    host's default route. Sessions have networks of their own.
  - A network of the collection that differs is recreated if no container is attached to it. Other networks are never
    changed.
  - Stores which networks and services containers must not reach, and how many connections each may have; the next
    reconciliation applies it.
extends_documentation_fragment:
  - backendai.cluster.attributes
  - backendai.cluster.options.engine
  - backendai.cluster.options.state
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
  closed_networks:
    description: The addresses and networks that containers must not reach.
    type: list
    elements: str
    default: []
  closed_services:
    description: The services that containers must not reach, as in O(allow).
    type: list
    elements: dict
    default: []
  allow:
    description: The exceptions, as in C(agent_egress_allow) of the role P(backendai.cluster.agent#role).
    type: list
    elements: dict
    default: []
  open_storage:
    description: Addresses and networks of storage servers, as in C(agent_open_storage) of that role.
    type: list
    elements: str
    default: []
  connection_limit:
    description: How many connections a container may have at a time; V(0) or V(-1) for no limit.
    type: int
    default: 32768
"""

EXAMPLES = r"""
- name: Create the default network of an agent's containers, and close networks to them
  backendai.cluster.agent_network:
"""

RETURN = "# Only the common return values."

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._docker.api_version import newer_than_known
from ..module_utils._docker.client import connect, refuse_rootless
from ..module_utils._docker.default_network import DefaultNetwork, apply_default_network, save_default_network
from ..module_utils._firewall.connections import (
    parse_connection_limit,
    plan_connection_limit,
    save_connection_limit,
)
from ..module_utils._firewall.egress import parse_egress, plan_egress, save_egress
from ..module_utils._firewall.engine_rules import untried_rules
from ..module_utils._firewall.storage import closed_storage, refresh_storage
from ..module_utils._host.store import Store
from ..module_utils._model.change import as_diff
from ..module_utils._model.errors import ClusterError
from ..module_utils._model.storage import OPENED_BY
from ..module_utils._module import CONNECTION_OPTIONS, run_module
from ..module_utils._network.iproute import LinkState


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **CONNECTION_OPTIONS,
            "name": {"type": "str", "default": "backendai-default"},
            "bridge": {"type": "str", "default": "backendai0"},
            "subnet": {"type": "str", "default": ""},
            "closed_networks": {"type": "list", "elements": "str", "default": []},
            "closed_services": {"type": "list", "elements": "dict", "default": []},
            "allow": {"type": "list", "elements": "dict", "default": []},
            "open_storage": {"type": "list", "elements": "str", "default": []},
            "connection_limit": {"type": "int", "default": 32768},
        },
        supports_check_mode=True,
    )

    def run() -> dict[str, Any]:
        params = module.params
        egress = parse_egress(params)
        limit = parse_connection_limit(params["connection_limit"])
        client = connect(params["docker_host"])
        _require_known_engine(module, client)
        way_out = LinkState().way_out
        mtu = way_out.mtu if way_out else DefaultNetwork.mtu
        network = DefaultNetwork(params["name"], params["bridge"], params["subnet"], mtu)
        store = Store(params["state_path"])
        changes = apply_default_network(client, network, store.lock(), check_mode=module.check_mode)
        if not module.check_mode:
            save_default_network(client, store, network)
        egress_changes = plan_egress(store, egress)
        if egress_changes and not module.check_mode:
            # Raises for an unreadable session: its rules would stay, and with them the old policy.
            store.sessions()
            save_egress(store, egress)
        storage_changes = refresh_storage(store, forget=True, check_mode=module.check_mode)
        for service in closed_storage(store):
            module.warn(f"containers do not reach {service.description}: {OPENED_BY} opens it.")
        limit_changes = plan_connection_limit(store, limit)
        if limit_changes and not module.check_mode:
            save_connection_limit(store, limit)
        changes = [*changes, *egress_changes, *storage_changes, *limit_changes]
        return {"changed": bool(changes), "diff": as_diff(changes)}

    run_module(module, run)


def _require_known_engine(module: AnsibleModule, client: Any) -> None:
    """Warn of an engine that is newer than this collection; raise :class:`ClusterError` for one with other rules."""
    info = client.info()
    refuse_rootless(module.params["docker_host"], info)
    untried = untried_rules(info)
    if untried:
        raise ClusterError(": ".join(untried))
    newer = newer_than_known(client.version()["ApiVersion"])
    if newer:
        module.warn(newer)


if __name__ == "__main__":
    main()
