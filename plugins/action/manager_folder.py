# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Copy this collection, or a folder of the control node, to a manager as one archive."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ..plugin_utils.folder_archive import pack_collection, pack_folder


class ActionModule(ActionBase):
    TRANSFERS_FILES = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result, variables = super().run(tmp, task_vars), task_vars or {}
        source = str(self._task.args.get("source") or "")
        try:
            archive = pack_folder(Path(source)) if source else pack_collection()
        except OSError as error:
            raise AnsibleActionFail(
                f"{error.filename}: cannot be read on the control node: {error.strerror}."
            ) from None
        args = {**self._task.args, "digest": hashlib.sha256(archive).hexdigest()}
        compared = self._execute_module(module_args=args, task_vars=variables)
        if compared.get("failed") or not compared["changed"] or self._task.check_mode:
            return {**result, **compared}
        return {**result, **self._install(args, archive, variables)}

    def _install(self, args: dict[str, Any], archive: bytes, variables: dict[str, Any]) -> dict[str, Any]:
        """Upload the archive, and let the module unpack it."""
        folder = self._make_tmp_path()
        path = self._connection._shell.join_path(folder, "archive")
        try:
            self._transfer_data(path, archive)
            self._fixup_perms2([folder, path], execute=False)
            installed: dict[str, Any] = self._execute_module(module_args={**args, "archive": path}, task_vars=variables)
            return installed
        finally:
            self._remove_tmp_path(folder, force=True)
