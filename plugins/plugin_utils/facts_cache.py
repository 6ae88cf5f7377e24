# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What agents said a while ago, kept on the control node: facts that are stale cost a refused claim, nothing else."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

from ..module_utils._model.facts import AgentFacts
from ..module_utils._model.files import write_atomically
from ._queue.store import share_with_group


class FactsCache:
    """A folder with one file for each agent, as private as the folder that it lies in.

    It only spares work, so what cannot be read is not there, and what cannot be written is not kept.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, agent: str, max_age: float) -> AgentFacts | None:
        """Return the facts of an agent if they are at most so many seconds old."""
        path = self._file(agent)
        try:
            if time.time() - path.stat().st_mtime > max_age:
                return None
            return AgentFacts.from_dict(agent, json.loads(path.read_text()))
        except (OSError, ValueError):
            return None

    def save(self, facts: Iterable[AgentFacts], began: float) -> None:
        """Keep facts that were read since ``began``; not those of agents that were dropped since then."""
        with contextlib.suppress(OSError):
            if not self._folder.is_dir():
                self._folder.mkdir(mode=0o700)
                self._share(self._folder, 0o770)
            for agent in facts:
                if self._dropped(agent.name) < began:
                    text = json.dumps(agent.to_dict())
                    write_atomically(self._file(agent.name), text, durable=False, prepare=self._share)

    def drop(self, agents: Iterable[str]) -> None:
        """Forget agents: something changes there, and what was read before is no longer true."""
        for agent in agents:
            dropped = self._file(agent).with_suffix(".dropped")
            for path in (self._file(agent), dropped):
                with contextlib.suppress(OSError):
                    path.unlink()
            with contextlib.suppress(OSError):
                dropped.touch()

    def _dropped(self, agent: str) -> float:
        try:
            return self._file(agent).with_suffix(".dropped").stat().st_mtime
        except OSError:
            return 0.0

    def _share(self, target: int | Path, mode: int = 0o660) -> None:
        share_with_group(target, self._folder.parent, mode)

    def _file(self, agent: str) -> Path:
        return self._folder / f"{quote(agent, safe='')}.json"
