#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: manager_folder
short_description: Copy this collection, or a folder, from the control node to a manager
description:
  - "Internal: called by the roles of this collection."
  - Copies a folder as a whole, in one archive, and only if it differs. O(path) is a link to a folder beside it, whose
    name ends with a digest of the content, so that a program that resolved the link keeps its files. The version before
    is kept, older ones are removed.
  - Without O(source) it is the collection that the control node runs, without its tests and documentation, below
    C(ansible_collections).
extends_documentation_fragment:
  - backendai.cluster.attributes
attributes:
  action:
    description: Packs the folder on the control node.
    support: full
  diff_mode:
    support: none
    details: Only the fact that the content differs is shown.
options:
  path:
    description: The path on the manager. The folder that it is in must exist, and only root be able to write it.
    type: path
    required: true
  source:
    description: A folder on the control node; this collection if it is empty.
    type: path
    default: ""
  digest:
    description: The digest of the archive; set by the action.
    type: str
  archive:
    description: The archive on the manager; set by the action.
    type: path
"""

EXAMPLES = r"""
- name: Copy this collection
  backendai.cluster.manager_folder:
    path: /usr/local/lib/backendai-manager/collections
"""

RETURN = "# Only the common return values."

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._host.versioned_folder import is_current, replace
from ..module_utils._module import run_module


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "source": {"type": "path", "default": ""},
            "digest": {"type": "str"},
            "archive": {"type": "path"},
        },
        supports_check_mode=True,
    )

    def run() -> dict[str, Any]:
        path, digest, archive = Path(module.params["path"]), module.params["digest"], module.params["archive"]
        current = is_current(path, digest)
        if archive and not current:
            with open(archive, "rb") as stream:
                replace(path, digest, stream)
        return {"changed": not current}

    run_module(module, run)


if __name__ == "__main__":
    main()
