# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pack the program that restores an agent's sessions, and copy it to the agent."""

from __future__ import annotations

import os
import tempfile
from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.backendai.cluster.plugins.plugin_utils.agent_program import pack


class ActionModule(ActionBase):
    """The action ``backendai.cluster.agent_program``."""

    TRANSFERS_FILES = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        handle, packed = tempfile.mkstemp(suffix=".pyz")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(pack())
            task = self._task.copy()
            task.args = {"src": packed, "dest": self._task.args["path"], "mode": "0644"}
            copy = self._shared_loader_obj.action_loader.get(
                "ansible.legacy.copy",
                task=task,
                connection=self._connection,
                play_context=self._play_context,
                loader=self._loader,
                templar=self._templar,
                shared_loader_obj=self._shared_loader_obj,
            )
            return {**result, **copy.run(task_vars=task_vars)}
        finally:
            os.unlink(packed)
