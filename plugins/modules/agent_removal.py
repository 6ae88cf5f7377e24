#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: agent_removal
short_description: Prepare an agent to be given back
description:
  - "Internal: called by the roles of this collection."
  - With O(state=checked), changes nothing, and fails if sessions are on the agent, unless O(end_sessions), or if
    containers of no session use the default network.
  - With O(state=closed), cordons the agent, so that no session begins there, and fails if sessions are on it.
  - With O(state=removed), removes the default network from the Docker engine, and the folder of the homes of sessions.
extends_documentation_fragment:
  - backendai.cluster.attributes
  - backendai.cluster.options.engine
  - backendai.cluster.options.state
options:
  state:
    description: The step.
    type: str
    choices: [checked, closed, removed]
    required: true
  end_sessions:
    description: Whether the sessions are to be ended, and so no reason to fail.
    type: bool
    default: false
  network:
    description: The name of the default network.
    type: str
    default: backendai-default
"""

EXAMPLES = r"""
- name: Check that no session is on the agent
  backendai.cluster.agent_removal:
    state: checked
"""

RETURN = r"""
sessions: {type: list, elements: str, returned: success, description: The names of the sessions on the agent.}
"""

import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._docker.containers import listed_name
from ..module_utils._docker.default_network import remove_default_network
from ..module_utils._docker.leaving_engine import connect_unless_removed
from ..module_utils._host.cordon import replace_cordon
from ..module_utils._host.home_folder import remove_folder
from ..module_utils._host.host_record import find_roles
from ..module_utils._host.store import Store
from ..module_utils._model.change import as_diff
from ..module_utils._model.cordon import Cordon
from ..module_utils._model.errors import ClusterError
from ..module_utils._module import CONNECTION_OPTIONS, run_module
from ..module_utils._session.ownership import sort_containers

OPTIONS: dict[str, dict[str, Any]] = {
    **CONNECTION_OPTIONS,
    "state": {"type": "str", "choices": ["checked", "closed", "removed"], "required": True},
    "end_sessions": {"type": "bool", "default": False},
    "network": {"type": "str", "default": "backendai-default"},
}


def main() -> None:
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    step = {"checked": check, "closed": close, "removed": remove}[module.params["state"]]
    run_module(module, lambda: step(module))


def check(module: AnsibleModule) -> dict[str, Any]:
    """Return the sessions on the agent. Raises :class:`ClusterError` unless they are to be ended."""
    if "gateway" in find_roles():
        raise ClusterError("this host is a gateway, too: run backendai.cluster.remove_gateways for it first")
    sessions = _sessions(module)
    if not module.params["end_sessions"]:
        _refuse(sessions)
    _refuse_attached(module)
    return {"changed": False, "sessions": sessions}


def close(module: AnsibleModule) -> dict[str, Any]:
    """Cordon the agent. Raises :class:`ClusterError` if sessions are on it; then it is as it was."""
    store = Store(module.params["state_path"])
    _refuse_sessions(module)
    if not (store.root / "lock").exists():
        return {"changed": False, "sessions": []}
    wanted = Cordon("it is given back", "remove_agents", time.time(), None)
    _after, changes = replace_cordon(store, wanted, check_mode=module.check_mode)
    try:
        # One may have begun before the cordon.
        _refuse_sessions(module)
    except ClusterError:
        if changes and changes[0].before is None and not module.check_mode:
            replace_cordon(store, None, check_mode=False)
        raise
    return {"changed": bool(changes), "diff": as_diff(changes), "sessions": []}


def remove(module: AnsibleModule) -> dict[str, Any]:
    """Remove the default network and what is left of homes."""
    client = connect_unless_removed(module.params["docker_host"])
    changes = remove_folder(Store(module.params["state_path"]), check_mode=module.check_mode)
    if client:
        changes += remove_default_network(client, module.params["network"], check_mode=module.check_mode)
    return {"changed": bool(changes), "diff": as_diff(changes), "sessions": []}


def _sessions(module: AnsibleModule) -> list[str]:
    """Return the names of sessions on the agent, or the ids of those that cannot be read."""
    store = Store(module.params["state_path"])
    names = {session.plan.id: session.plan.name for session in store.load_all()[0]}
    return sorted(names.get(session_id, session_id) for session_id in store.held_ids())


def _refuse_attached(module: AnsibleModule) -> None:
    """Raise :class:`ClusterError` if a container of no session keeps the default network from being removed."""
    client, store = connect_unless_removed(module.params["docker_host"]), Store(module.params["state_path"])
    if client is None:
        return
    own = sort_containers(client, store, store.load_all()[0]).own.values()
    ids = {entry["Id"] for containers in own for entry in containers.values()}
    network = module.params["network"]
    attached = client.containers(filters={"network": [network]})
    names = sorted(listed_name(container) for container in attached if container["Id"] not in ids)
    if names:
        raise ClusterError(
            f"containers of no session use the Docker network {network}: {', '.join(names)}; remove them with docker rm"
            f" -f {' '.join(names)}, or take them off that network"
        )


def _refuse_sessions(module: AnsibleModule) -> None:
    # In check mode those that would have been ended are still there.
    if not (module.check_mode and module.params["end_sessions"]):
        _refuse(_sessions(module))


def _refuse(sessions: list[str]) -> None:
    if sessions:
        raise ClusterError(
            f"sessions are on this agent: {', '.join(sessions)}; end them with backendai.cluster.terminate_session, or"
            " run this playbook with -e remove_sessions=true, which ends them first"
        )


if __name__ == "__main__":
    main()
