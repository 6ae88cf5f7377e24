# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pack the collection's own code for agents into one file that Python can run, and copy it to the agent."""

from __future__ import annotations

import io
import os
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

PACKAGE = "ansible_collections/backendai/cluster/plugins/module_utils"
SOURCES = Path(__file__).parents[1] / "module_utils"

START = """\
import sys

from ansible_collections.backendai.cluster.plugins.module_utils._agent.restore import main

sys.exit(main())
"""


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


def pack() -> bytes:
    """Return the program as a zip archive; the same sources always give the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in _files():
            # Without a date of its own, an entry has the first one that the format knows.
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _files() -> Iterator[tuple[str, str]]:
    yield "__main__.py", START
    folders = PACKAGE.split("/")
    for depth in range(1, len(folders) + 1):
        yield "/".join([*folders[:depth], "__init__.py"]), ""
    for path in sorted(SOURCES.glob("_*/*.py")):
        yield f"{PACKAGE}/{path.relative_to(SOURCES).as_posix()}", path.read_text(encoding="utf-8")
