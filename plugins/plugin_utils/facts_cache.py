# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What agents said a while ago, kept on the control node: facts that are stale cost a refused claim, nothing else."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ansible.errors import AnsibleActionFail


class FactsCache:
    """A folder with one file for each agent, for their owner alone.

    What cannot be written raises :class:`AnsibleActionFail` with one sentence; what cannot be read is not there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, agent: str, max_age: float) -> dict[str, Any] | None:
        """Return the facts of an agent if they are at most so many seconds old."""
        path = self._file(agent)
        try:
            if time.time() - path.stat().st_mtime > max_age:
                return None
            facts = json.loads(path.read_text())
        except (OSError, ValueError):
            return None
        return facts if isinstance(facts, dict) else None

    def save(self, facts: Mapping[str, Mapping[str, Any]]) -> None:
        """Keep the facts of agents, by name."""
        try:
            for folder in (self._folder.parent, self._folder):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for agent, data in facts.items():
                self._replace(self._file(agent), json.dumps(data))
        except OSError as error:
            raise AnsibleActionFail(
                f"session_facts_max_age: facts cannot be kept in '{self._folder}': {error.strerror}."
            ) from None

    def drop(self, agents: Iterable[str]) -> None:
        """Forget agents: something changes there."""
        for agent in agents:
            with contextlib.suppress(OSError):
                self._file(agent).unlink()

    def _file(self, agent: str) -> Path:
        return self._folder / f"{quote(agent, safe='')}.json"

    def _replace(self, path: Path, content: str) -> None:
        """Write a file, so that others read the old or the new one; what fails leaves nothing."""
        handle, staged = tempfile.mkstemp(dir=self._folder, prefix=".", suffix=".new")
        try:
            with os.fdopen(handle, "w") as stream:
                stream.write(content)
            os.replace(staged, path)
        except BaseException:
            os.unlink(staged)
            raise
