#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: host_removal
short_description: Give a host back as it was before it was provisioned
description:
  - "Internal: called by the roles of this collection."
  - Removes files that came with a role. With the last role of the host it also removes the packages, users and groups
    that came with this collection, restores kernel settings and units, and removes the record of
    M(backendai.cluster.host_record) last.
  - A package stays if one that did not come with this collection needs it. The Docker engine stays if it has
    containers or volumes of others, whichever role is the last one; it is asked right before.
extends_documentation_fragment:
  - backendai.cluster.attributes
  - backendai.cluster.options.engine
requirements:
  - apt
options:
  role:
    description: The role that the host loses.
    type: str
    choices: [agent, gateway, manager]
    required: true
  paths:
    description: Files, and folders with all that is in them.
    type: list
    elements: str
    default: []
  folders:
    description: Folders that are removed if they are empty then; what others have in them is kept and named.
    type: list
    elements: str
    default: []
  shared_folders:
    description: Folders of the system that are removed if they are empty then.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Remove what came with this role
  backendai.cluster.host_removal:
    role: agent
    paths: [/etc/sysctl.d/90-backendai.conf]
"""

RETURN = r"""
kept: {type: list, elements: str, returned: success, description: "What was kept, and why."}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._docker.foreign import list_foreign
from ..module_utils._docker.image_store import engine_folder
from ..module_utils._docker.leaving_engine import connect_unless_removed
from ..module_utils._host.engine_settings import DATA_ROOT
from ..module_utils._host.removal import EngineContents, Removal, RemovedRole
from ..module_utils._model.change import as_diff
from ..module_utils._module import CONNECTION_OPTIONS, run_module

LIST: dict[str, Any] = {"type": "list", "elements": "str", "default": []}


def main() -> None:
    role = {"type": "str", "choices": ["agent", "gateway", "manager"], "required": True}
    lists = dict.fromkeys(("paths", "folders", "shared_folders"), LIST)
    engine = {"docker_host": CONNECTION_OPTIONS["docker_host"]}
    module = AnsibleModule(argument_spec={"role": role, **lists, **engine}, supports_check_mode=True)

    def look() -> EngineContents | None:
        client = connect_unless_removed(module.params["docker_host"])
        if client is None:
            return None
        return EngineContents(engine_folder(client.info()) or DATA_ROOT, list_foreign(client))

    def run() -> dict[str, Any]:
        removed = RemovedRole(**{name: module.params[name] for name in ("role", *lists)})
        removal = Removal(removed, look, check_mode=module.check_mode)
        removal.run()
        return {"changed": bool(removal.changes), "diff": as_diff(removal.changes), "kept": removal.kept}

    run_module(module, run)


if __name__ == "__main__":
    main()
