#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: host_files
short_description: Write several files and folders in one step
description:
  - "Internal: called by the roles of this collection."
  - Provisioning spends most of its time on starting modules, so what belongs together is written together.
  - Each file and each of O(folders) is root's. A file is replaced as a whole, so that it has the old content or the new
    one.
  - Other folders that a file is in are made if they are missing, with the mode 0755, and are else left as they are.
extends_documentation_fragment:
  - backendai.cluster.attributes
options:
  folders:
    description: The folders of this collection, which get this owner and mode also if they are there.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: The path of the folder.
        type: path
        required: true
      mode:
        description: Its mode, in octal digits.
        type: str
        default: "0755"
  files:
    description: The content of files, by path.
    type: dict
    default: {}
  mode:
    description: The mode of the files, in octal digits.
    type: str
    default: "0644"
"""

EXAMPLES = r"""
- name: Write two units
  backendai.cluster.host_files:
    files:
      /etc/systemd/system/a.service: "{{ lookup('ansible.builtin.template', 'a.service.j2') }}"
      /etc/systemd/system/a.timer: "{{ lookup('ansible.builtin.template', 'a.timer.j2') }}"
"""

RETURN = "# Only the common return values."

import os
import stat
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._host.files import DesiredFile, plan_files, write_files
from ..module_utils._model.change import Change, as_diff
from ..module_utils._module import run_module

OPTIONS: dict[str, dict[str, Any]] = {
    "folders": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {"path": {"type": "path", "required": True}, "mode": {"type": "str", "default": "0755"}},
    },
    "files": {"type": "dict", "default": {}},
    "mode": {"type": "str", "default": "0644"},
}


def main() -> None:
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)

    def run() -> dict[str, Any]:
        folders = {Path(folder["path"]): int(folder["mode"], 8) for folder in module.params["folders"]}
        mode = int(module.params["mode"], 8)
        files = [DesiredFile(Path(path), content, mode) for path, content in module.params["files"].items()]
        new_folders = [change for path, mode in folders.items() for change in _plan_folder(path, mode)]
        drifted = plan_files(files)
        changed = {file.path for file, _change in drifted}
        others = [file for file in files if file.path not in changed and _owner(file.path) != (0, 0)]
        changes = [*new_folders, *(change for _file, change in drifted), *(_owner_change(file.path) for file in others)]
        if not module.check_mode:
            for path, mode in folders.items():
                path.mkdir(parents=True, exist_ok=True)
                os.chown(path, 0, 0)
                path.chmod(mode)
            for file, _change in drifted:
                _make_parents(file.path)
            write_files([file for file, _change in drifted] + others)
        return {"changed": bool(changes), "diff": as_diff(changes)}

    run_module(module, run)


def _make_parents(path: Path) -> None:
    """Make the folders of a file that are missing, for all to read; those that are there may be of others."""
    for folder in reversed(path.parents):
        if not folder.exists():
            folder.mkdir()
            folder.chmod(0o755)


def _plan_folder(path: Path, mode: int) -> list[Change]:
    """Return the change of a folder, if there is one."""
    try:
        current = stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return [Change(f"folder {path}", None, f"mode {mode:04o}")]
    if _owner(path) != (0, 0):
        return [_owner_change(path)]
    return [] if current == mode else [Change(f"folder {path}", f"mode {current:04o}", f"mode {mode:04o}")]


def _owner(path: Path) -> tuple[int, int]:
    """Return the numbers of the user and the group of a file."""
    status = path.stat()
    return status.st_uid, status.st_gid


def _owner_change(path: Path) -> Change:
    return Change(str(path), "owner and group {}:{}".format(*_owner(path)), "owner and group 0:0")


if __name__ == "__main__":
    main()
