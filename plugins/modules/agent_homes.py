#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: agent_homes
short_description: Make the folder of an agent for the homes of sessions
description:
  - "Internal: called by the roles of this collection."
  - Makes a folder on the file system of the engine, accessible to root only, in which sessions have their homes. The
    link C(homes) in O(state_path) leads there.
  - Warns if it is on the same file system as O(state_path), and fails for one that is mounted C(noexec).
extends_documentation_fragment:
  - backendai.cluster.attributes
  - backendai.cluster.options.engine
  - backendai.cluster.options.state
options:
  path:
    description:
      - The folder. When empty, C(backendai-homes) beside the engine's data, or in it if that is a file system of its
        own.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Make the folder for the homes of sessions
  backendai.cluster.agent_homes:
    path: /srv/backendai-homes
"""

RETURN = r"""
path: {type: str, returned: success, description: The folder.}
selinux: {type: bool, returned: success, description: Whether the engine gives containers labels of SELinux.}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._docker.client import connect
from ..module_utils._docker.containers import has_selinux
from ..module_utils._docker.image_store import engine_folder
from ..module_utils._host.engine_settings import DATA_ROOT
from ..module_utils._host.home_folder import choose_folder, prepare_folder, shares_file_system
from ..module_utils._host.store import Store
from ..module_utils._model.change import as_diff
from ..module_utils._module import CONNECTION_OPTIONS, run_module

OPTIONS: dict[str, dict[str, Any]] = {**CONNECTION_OPTIONS, "path": {"type": "str", "default": ""}}


def main() -> None:
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    run_module(module, lambda: prepare(module))


def prepare(module: AnsibleModule) -> dict[str, Any]:
    """Make the folder; warn if a home that is full leaves the agent no room."""
    store = Store(module.params["state_path"])
    info = connect(module.params["docker_host"]).info()
    data = engine_folder(info) or DATA_ROOT
    folder = choose_folder(module.params["path"], data)
    changes = prepare_folder(store, folder, check_mode=module.check_mode)
    if shares_file_system(store, folder):
        module.warn(
            f"agent_home_path: {folder} is on the file system of agent_state_path ({store.root}), so a session that"
            " fills its home leaves the agent no room for its own files: move the engine's data, or one of these"
            " folders, to another file system"
        )
    return {"changed": bool(changes), "diff": as_diff(changes), "path": str(folder), "selinux": has_selinux(info)}


if __name__ == "__main__":
    main()
