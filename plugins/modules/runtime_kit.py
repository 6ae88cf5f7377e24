#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: runtime_kit
short_description: Build the runtime kit that every container mounts
description:
  - "Internal: called by the roles of this collection."
  - Copies sshd, an SSH client, a shell and a web terminal from the packages of this agent, or from an archive, with
    their loader and libraries, to a folder that containers mount at C(/opt/backendai). Any Linux image works, with any
    or no C library.
  - The name of the folder is the digest of its content. A new version is installed atomically, and C(current) is
    switched to it; containers that mount an older one keep it.
  - A new version removes older ones that no container mounts, except for its predecessor.
extends_documentation_fragment:
  - backendai.cluster.options.engine
  - backendai.cluster.options.state
  - backendai.cluster.attributes
attributes:
  diff_mode:
    details: Files are listed by name, with a digest in place of their content.
requirements:
  - iproute2
  - OpenSSH client and server, static busybox, Shell In A Box, unless there is an archive
options:
  scripts:
    description: The content of the shell scripts of the kit, by path. The shell of the kit runs them.
    type: dict
    required: true
  archive:
    description: The file of M(backendai.cluster.kit_archive) with the programs; when empty, they are this host's.
    type: path
    default: ""
"""

EXAMPLES = r"""
- name: Build the runtime kit that every container mounts
  backendai.cluster.runtime_kit:
"""

RETURN = r"""
version: {type: str, returned: always, description: The digest of the kit.}
path: {type: str, returned: always, description: The folder of the kit.}
removed: {type: list, elements: str, returned: always, description: The older versions that were removed.}
"""

import os
import platform
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._docker.client import connect
from ..module_utils._docker.mounts import mounted_paths
from ..module_utils._host import kit, kit_archive, kit_programs
from ..module_utils._model.change import Change, as_diff
from ..module_utils._module import CONNECTION_OPTIONS, run_module

OPTIONS: dict[str, dict[str, Any]] = {
    "scripts": {"type": "dict", "required": True},
    "archive": {"type": "path", "default": ""},
}


def main() -> None:
    module = AnsibleModule(
        argument_spec={**CONNECTION_OPTIONS, **OPTIONS},
        supports_check_mode=True,
    )

    def run() -> dict[str, Any]:
        root = os.path.join(module.params["state_path"], "kit")
        archive = module.params["archive"]
        if archive:
            _architecture, programs = kit_archive.read_archive(archive, platform.machine())
        else:
            programs = kit_programs.read_files(kit_programs.find_files())
        new_kit = kit.build_kit(module.params["scripts"], programs)
        changes = kit.kit_changes(new_kit, root)
        unused = kit.unused_versions(new_kit, root, mounted_paths(connect(module.params["docker_host"])))
        if not module.check_mode:
            if changes:
                kit.install_kit(new_kit, root, changes)
            kit.remove_kit(root, unused)
        return {
            "changed": bool(changes or unused),
            "version": new_kit.version,
            "path": os.path.join(root, new_kit.version),
            "removed": unused,
            "diff": as_diff([*changes, *(Change(version, "not mounted by any container", None) for version in unused)]),
        }

    run_module(module, run)


if __name__ == "__main__":
    main()
