#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kit_archive
short_description: Make a file with the programs of the runtime kit
description:
  - "Internal: called by C(build_kit)."
  - Downloads packages of the distribution of a host of Debian's family, which are not installed there, and packs what a
    kit needs of them, with their loader and libraries, their versions, and the texts of their licences.
extends_documentation_fragment:
  - backendai.cluster.attributes
options:
  path:
    description: The file. The same packages always give the same file.
    type: path
    required: true
"""

EXAMPLES = r"""
- name: Make a kit
  backendai.cluster.kit_archive:
    path: /root/kit.tar.gz
"""

RETURN = r"""
architecture: {type: str, returned: always, description: The architecture of the hosts that the kit is for.}
packages: {type: list, elements: dict, returned: success, description: "Name, version, licences of each."}
"""

import platform
import tempfile
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._host.kit_archive import build_archive
from ..module_utils._model.files import write_atomically
from ..module_utils._module import run_module


def main() -> None:
    module = AnsibleModule(argument_spec={"path": {"type": "path", "required": True}}, supports_check_mode=True)

    def run() -> dict[str, Any]:
        path = Path(module.params["path"])
        with tempfile.TemporaryDirectory(dir=module.tmpdir) as folder:
            content, parts = build_archive(Path(folder))
        changed = not (path.is_file() and path.read_bytes() == content)
        if changed and not module.check_mode:
            write_atomically(path, content, 0o644)
        packages = [part._asdict() for part in parts]
        return {"changed": changed, "architecture": platform.machine(), "packages": packages}

    run_module(module, run)


if __name__ == "__main__":
    main()
