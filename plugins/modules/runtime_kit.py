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
  - Copies sshd, an ssh client and a shell, which the distribution's packages have installed on this agent, together
    with their own loader and libraries, to a folder that containers mount at C(/opt/backendai). So any Linux image
    works, whichever C library it has, or none.
  - The folder's name is a digest of all that is in it. A new version appears whole, and C(current) is switched to it at
    once; containers that mount an older one keep it.
  - When a new version takes over, older ones that no container mounts are removed, but for the one that it replaces.
extends_documentation_fragment:
  - backendai.cluster.options.engine
  - backendai.cluster.options.state
  - backendai.cluster.attributes
attributes:
  diff_mode:
    details: Files are listed by name, with a digest in place of their content.
requirements:
  - iproute2
  - dropbear, OpenSSH client and sftp-server, static busybox, ldd
options:
  scripts:
    description: Shell scripts of the kit, their text by their path in it. The kit's own shell runs them.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Build the runtime kit that every container mounts
  backendai.cluster.runtime_kit:
"""

RETURN = "# Internal."

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._docker.client import connect
from ..module_utils._docker.mounts import mounted_paths
from ..module_utils._host import kit
from ..module_utils._model.change import Change, as_diff
from ..module_utils._module import CONNECTION_OPTIONS, run_module


def main() -> None:
    module = AnsibleModule(
        argument_spec={**CONNECTION_OPTIONS, "scripts": {"type": "dict", "required": True}},
        supports_check_mode=True,
    )

    def run() -> dict[str, Any]:
        root = os.path.join(module.params["state_path"], "kit")
        wanted = kit.build_kit(module.params["scripts"])
        changes = kit.kit_changes(wanted, root)
        unused = kit.unused_versions(wanted, root, mounted_paths(connect(module.params["docker_host"])))
        if not module.check_mode:
            if changes:
                kit.install_kit(wanted, root, changes)
            kit.remove_kit(root, unused)
        return {
            "changed": bool(changes or unused),
            "version": wanted.version,
            "path": os.path.join(root, wanted.version),
            "removed": unused,
            "diff": as_diff([*changes, *(Change(version, "not mounted by any container", None) for version in unused)]),
        }

    run_module(module, run)


if __name__ == "__main__":
    main()
