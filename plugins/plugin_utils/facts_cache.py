# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A cache of agent facts on the control node. Stale facts can only cause a refused claim."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

from ansible.utils.display import Display

from ..module_utils._model.facts import AgentFacts
from ..module_utils._model.files import write_atomically
from ..module_utils._model.strict_json import parse_json
from ._queue.store import share_with_group

# Of the format of a file; files of other versions are as good as missing.
VERSION = 1


class FactsCache:
    """A folder with one file per agent, with the permissions of its parent folder.

    Errors are not raised: facts that cannot be read or written are not cached. Of a damaged file a warning is shown.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, agent: str, max_age: float) -> AgentFacts | None:
        """Return the facts of an agent if they are at most ``max_age`` seconds old."""
        path = self._file(agent)
        try:
            # The clock may have been set back since.
            if not 0 <= time.time() - path.stat().st_mtime <= max_age:
                return None
            data = parse_json(path.read_bytes())
            return AgentFacts.from_dict(agent, data) if data.pop("version", None) == VERSION else None
        except FileNotFoundError:
            return None
        except (OSError, ValueError, AttributeError, TypeError):
            # Ansible shows the same warning once.
            Display().warning(f"session_facts_max_age: {path} is damaged, so {agent} is asked.")
            return None

    def save(self, facts: Iterable[AgentFacts], began: float) -> None:
        """Save facts that were read since ``began``, except those of agents that were dropped since then."""
        with contextlib.suppress(OSError):
            if not self._folder.is_dir():
                self._folder.mkdir(mode=0o700)
                self._share(self._folder, 0o770)
            for agent in facts:
                if self._dropped(agent.name) < began:
                    text = json.dumps({"version": VERSION, **agent.to_dict()})
                    write_atomically(self._file(agent.name), text, durable=False, prepare=self._share)

    def drop(self, agents: Iterable[str]) -> None:
        """Remove the facts of agents that are about to change, and reject facts that were read before."""
        for agent in agents:
            dropped = self._file(agent).with_suffix(".dropped")
            for path in (self._file(agent), dropped):
                with contextlib.suppress(OSError):
                    path.unlink()
            with contextlib.suppress(OSError):
                dropped.touch()
                # The kernel's own timestamps are those of its last tick, which may be before ``began``.
                os.utime(dropped, (time.time(), time.time()))

    def _dropped(self, agent: str) -> float:
        try:
            return self._file(agent).with_suffix(".dropped").stat().st_mtime
        except OSError:
            return 0.0

    def _share(self, target: int | Path, mode: int = 0o660) -> None:
        share_with_group(target, self._folder.parent, mode)

    def _file(self, agent: str) -> Path:
        return self._folder / f"{quote(agent, safe='')}.json"
