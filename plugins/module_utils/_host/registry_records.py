# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an agent knows about registries: private repositories, and who was recently allowed to read them.

A repository is private if an image of it was pulled with a password. Allowed logins are files whose name is an HMAC,
with a key of this agent, of repository and login. Everything is readable by root only.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import hmac
import json
import os
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._model.files import write_atomically
from .._model.state_format import StateFormat
from .deadline import Deadline, deadline_in

ALLOWED_SECONDS = 600
"""How long a registry's permission is valid without asking again."""


@dataclasses.dataclass(frozen=True)
class _Private:
    repository: str


_PRIVATE = StateFormat("the private repository", _Private)
# The clock of this boot: a change of the time of day extends nothing.
_ALLOWED = StateFormat("the permission", Deadline)


class RegistryRecords:
    """The records in a folder, which is created with the first one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._private, self._allowed = folder / "private", folder / "allowed"

    def any_private(self) -> bool:
        """Return whether any repository is private."""
        return self._private.is_dir() and any(self._private.iterdir())

    def is_private(self, repository: str) -> bool:
        """Return whether a repository is private."""
        return self._private.is_dir() and any(self._private.glob(f"{_digest(repository)}*"))

    def begin_private(self, repository: str) -> PrivateMark:
        """Mark a repository as private before a pull with a password, so that a crash leaves the mark."""
        self._make_folder(self._private)
        path = self._private / f"{_digest(repository)}.{secrets.token_hex(8)}"
        write_atomically(path, _PRIVATE.dump(_Private(repository)))
        return PrivateMark(path)

    def is_allowed(self, repository: str, login: Mapping[str, Any]) -> bool:
        """Return whether the registry has recently let this login read the repository."""
        path = self._allowed_path(repository, login)
        try:
            return _ALLOWED.load(path.read_bytes()).seconds_left > 0
        except (FileNotFoundError, ValueError):
            return False

    def allow(self, repository: str, login: Mapping[str, Any]) -> None:
        """Record that the registry lets this login read the repository, and remove records that expired."""
        path = self._allowed_path(repository, login)
        self._make_folder(self._allowed)
        write_atomically(path, _ALLOWED.dump(deadline_in(ALLOWED_SECONDS)), durable=False)
        oldest = time.time() - ALLOWED_SECONDS
        for other in self._allowed.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if other.stat().st_mtime < oldest:
                    other.unlink()

    def _allowed_path(self, repository: str, login: Mapping[str, Any]) -> Path:
        text = json.dumps([repository, dict(login)], sort_keys=True).encode()
        return self._allowed / hmac.new(self._key(), text, hashlib.sha256).hexdigest()

    def _key(self) -> bytes:
        """Return the key of this agent; it is created on first use."""
        path = self._folder / "key"
        self._make_folder(self._folder)
        if not path.exists():
            own = self._folder / f"key.{secrets.token_hex(8)}"
            write_atomically(own, secrets.token_bytes(32))
            # Of several processes, the first one decides.
            with contextlib.suppress(FileExistsError):
                os.link(own, path)
            own.unlink()
        return path.read_bytes()

    def _make_folder(self, folder: Path) -> None:
        for path in (self._folder, folder):
            path.mkdir(mode=0o700, exist_ok=True)


@dataclasses.dataclass(frozen=True)
class PrivateMark:
    """The mark of one pull, which counts from its beginning."""

    path: Path

    def keep(self) -> None:
        """Keep the mark: an image was pulled. It replaces those of earlier pulls."""
        os.replace(self.path, self.path.with_suffix(""))

    def discard(self) -> None:
        """Remove the mark: nothing was pulled. Those of other pulls remain."""
        self.path.unlink()


def _digest(repository: str) -> str:
    return hashlib.sha256(repository.encode()).hexdigest()
