#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: policy_folders
short_description: Check the folders of a manager's policy on an agent or a manager
version_added: 0.1.0
description:
  - "Internal: called by the playbooks of this collection."
  - Looks at each folder as a session of the manager would, and names the component of its path that is not root's.
    Changes nothing.
extends_documentation_fragment:
  - backendai.cluster.attributes
  - backendai.cluster.options.engine
  - backendai.cluster.options.state
attributes:
  check_mode:
    support: full
    details: It looks in check mode, too.
  diff_mode:
    support: none
    details: Nothing is changed.
options:
  kind:
    description: Whether the host is an agent, where sessions mount the folders, or a manager.
    type: str
    choices: [agent, manager]
    required: true
  folders:
    description: The folders of all policies.
    type: list
    elements: dict
    default: []
    suboptions:
      source:
        description: The folder; C({user}) stands for the name of each user.
        type: str
        required: true
      read_only:
        description: Whether sessions mount it read-only.
        type: bool
        default: false
  users:
    description: The users whose own folders are checked.
    type: list
    elements: str
    default: []
  mount_roots:
    description: The folders in which sessions may mount folders, as in C(agent_mount_roots).
    type: list
    elements: str
    default: [/]
"""

EXAMPLES = r"""
- name: Check a folder on an agent
  backendai.cluster.policy_folders:
    kind: agent
    folders: [{source: "/srv/home/{user}"}]
    users: [alice]
"""

RETURN = r"""
users: {type: list, elements: str, returned: success, description: The users who have sessions on this agent.}
problems: {type: list, elements: str, returned: success,
  description: "The folders that sessions may not mount on this agent, each with the reason and the remedy."}
unprotected: {type: list, elements: str, returned: success,
  description: "The shared file systems with such folders that are not mounted nosuid,nodev."}
"""

import contextlib
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._docker.client import DockerUnavailableError, connect
from ..module_utils._host.store import Store
from ..module_utils._module import CONNECTION_OPTIONS, run_module
from ..module_utils._session.mount_sources import MountSettings
from ..module_utils._session.policy_folders import (
    PolicyFolder,
    find_folder_problems,
    find_unprotected,
    known_users,
)


def main() -> None:
    folder = {"source": {"type": "str", "required": True}, "read_only": {"type": "bool", "default": False}}
    module = AnsibleModule(
        argument_spec={
            **CONNECTION_OPTIONS,
            "kind": {"type": "str", "choices": ["agent", "manager"], "required": True},
            "folders": {"type": "list", "elements": "dict", "default": [], "options": folder},
            "users": {"type": "list", "elements": "str", "default": []},
            "mount_roots": {"type": "list", "elements": "str", "default": ["/"]},
        },
        supports_check_mode=True,
    )

    def run() -> dict[str, Any]:
        params = module.params
        folders = [PolicyFolder(entry["source"], entry["read_only"]) for entry in params["folders"]]
        users = known_users(params["users"])
        unprotected = find_unprotected(folders, users)
        if params["kind"] == "manager":
            return {"changed": False, "users": [], "problems": [], "unprotected": unprotected}
        # Managers are provisioned before agents.
        client = None
        with contextlib.suppress(DockerUnavailableError):
            client = connect(params["docker_host"]) if folders else None
        store = Store(params["state_path"])
        settings = MountSettings(params["mount_roots"], params["docker_host"])
        return {
            "changed": False,
            "users": known_users(session.plan.user for session in store.load_all()[0]),
            "problems": find_folder_problems(client, store, settings, folders, users),
            "unprotected": unprotected,
        }

    run_module(module, run)


if __name__ == "__main__":
    main()
