# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an agent remembers of sessions: one folder for each, readable by root alone.

``sessions/<id>/session.json`` holds the plan, who claimed it and which cores and devices its containers have; the
folders beside it, one for each container of this agent, are what the containers see at ``/run/backendai``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from .._model.devices import PinnedResources
from .._model.errors import ClusterError
from .._model.files import dump_state, load_state, locked, write_atomically
from .._model.held_session import PublicKeys
from .._model.plain_data import from_plain, to_plain
from .._model.plan import Kernel, SessionPlan
from .._model.session import MAIN1, is_session_id

PROGRAM = Path("/usr/local/lib/backendai/current/source.pyz")
"""The program that units run, where provisioning has put it."""


class NotProvisionedError(ClusterError):
    """The agent's folders are not there; the message is one sentence for the operator."""


class CorruptStateError(ClusterError):
    """What was stored cannot be read; the message is one sentence for the operator."""


@dataclasses.dataclass(frozen=True)
class LocalSession:
    """A session as one agent holds it.

    ``agent`` is its inventory name, ``nonce`` that of the run that claimed it last. ``expires_at`` is in seconds since
    the epoch by the agent's own clock, ``None`` once the session is committed. ``pinned`` gives each container's cores
    and devices, ``keys`` its public keys: none where a claim was interrupted before it made them. ``request`` is the
    comparable form of what the user asked.
    """

    plan: SessionPlan
    request: dict[str, Any]
    agent: str
    nonce: str
    expires_at: float | None
    pinned: dict[str, PinnedResources]
    keys: dict[str, PublicKeys]

    @property
    def committed(self) -> bool:
        """Whether the session has proven itself; until then it goes away when its time is over."""
        return self.expires_at is None

    def expired(self, now: float) -> bool:
        """Return whether the run that claimed this session gave it up."""
        return self.expires_at is not None and self.expires_at < now

    @property
    def kernels(self) -> list[Kernel]:
        """The containers that belong on this agent."""
        return self.plan.kernels_on(self.agent)

    @property
    def slots(self) -> dict[str, int]:
        """What the containers on this agent take together."""
        total: Counter[str] = Counter()
        for kernel in self.kernels:
            total.update(kernel.resources)
        return dict(total)


class Store:
    """The folder ``state_path`` of an agent; :meth:`lock` makes several steps one."""

    def __init__(self, state_path: str) -> None:
        self._root = Path(state_path)
        self._sessions = self._root / "sessions"

    def lock(self) -> AbstractContextManager[None]:
        """Hold the agent's lock: whoever decides on capacity or removes a session waits here for the others."""
        return self._locked(self._root / "lock")

    @contextlib.contextmanager
    def session_lock(self, session_id: str) -> Iterator[None]:
        """Hold the lock of one session, so that two runs never change it at once; nothing is locked without it."""
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(FileNotFoundError):
                stack.enter_context(locked(self.folder(session_id)))
            yield

    def isolation_lock(self) -> AbstractContextManager[None]:
        """Hold the lock of the rules that follow from all sessions together; whoever has it asks for no other."""
        return self._locked(self._sessions)

    @contextlib.contextmanager
    def _locked(self, path: Path) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(locked(path))
            except OSError as error:
                problem = f"{self._root} is not ready ({error.strerror})"
                raise NotProvisionedError(f"{problem}: run backendai.cluster.provision_agents on this host.") from error
            yield

    @property
    def firewall_file(self) -> Path:
        """The file of the operator's firewall; there only where the role ``firewall`` was applied."""
        return self._root / "firewall.json"

    @property
    def wireguard_folder(self) -> Path:
        """The folder of the key pair of this agent's WireGuard device; there only where the underlay is encrypted."""
        return self._root / "wireguard"

    def program(self) -> str | None:
        """Return the digest of the program that restores sessions; ``None`` where none is installed."""
        return PROGRAM.parent.resolve().name.partition("-")[0] if PROGRAM.exists() else None

    def is_busy(self, session_id: str) -> bool:
        """Return whether a run holds the lock of a session at this moment."""
        try:
            with locked(self.folder(session_id), timeout=0) as handle:
                return handle is None
        except FileNotFoundError:
            return False

    def kit(self) -> str:
        """Return the folder of the runtime kit in use, its version resolved."""
        kit = self._root / "kit" / "current"
        if not kit.is_dir():
            raise NotProvisionedError(f"{kit} is missing: run backendai.cluster.provision_agents on this host.")
        return str(kit.resolve())

    def sessions(self) -> list[LocalSession]:
        """Return every session that this agent holds, committed or not, in the order of their ids.

        Raises :class:`CorruptStateError` when one of them cannot be read.
        """
        readable, damaged = self.load_all()
        if damaged:
            raise damaged[0]
        return readable

    def load_all(self) -> tuple[list[LocalSession], list[CorruptStateError]]:
        """Return the sessions that can be read, in the order of their ids, and what is wrong with the others."""
        if not self._sessions.is_dir():
            return [], []
        names = sorted(folder.name for folder in self._sessions.iterdir() if is_session_id(folder.name))
        loaded = [self._load_or_error(name) for name in names]
        return [entry for entry in loaded if isinstance(entry, LocalSession)], [
            entry for entry in loaded if isinstance(entry, CorruptStateError)
        ]

    def session(self, session_id: str) -> LocalSession | None:
        """Return one session; ``None`` where this agent holds none of that id."""
        path = self.folder(session_id) / "session.json"
        try:
            return from_plain(LocalSession, load_state(path.read_text()), "the session")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            raise CorruptStateError(
                f"{path} is damaged ({error}): move {path.parent} away, then end what it held."
            ) from error

    def _load_or_error(self, session_id: str) -> LocalSession | CorruptStateError | None:
        try:
            return self.session(session_id)
        except CorruptStateError as error:
            return error

    def save(self, session: LocalSession) -> None:
        """Write a session, so that a crash leaves the old or the new one, never half of it."""
        folder = self.folder(session.plan.id)
        folder.mkdir(mode=0o700, exist_ok=True)
        write_atomically(folder / "session.json", dump_state(to_plain(session)))

    def save_checksums(self, session_id: str, paths: Iterable[Path]) -> None:
        """Note what files of a session hold, so that a later look can tell whether they still do."""
        checksums = {str(path.relative_to(self.folder(session_id))): _digest(path) for path in paths}
        write_atomically(self.folder(session_id) / "seals.json", json.dumps(checksums))

    def changed_files(self, session_id: str) -> list[Path]:
        """Return the files of a session that are gone, or no longer hold what they did when they were sealed."""
        folder = self.folder(session_id)
        try:
            checksums = json.loads((folder / "seals.json").read_text())
        except FileNotFoundError:
            return []
        return [folder / name for name, digest in checksums.items() if _digest(folder / name) != digest]

    def commit(self, session: LocalSession) -> None:
        """Take the time limit off a session that has proven itself."""
        self.save(dataclasses.replace(session, expires_at=None))

    def remove(self, session_id: str) -> bool:
        """Remove all that is stored of a session; return whether there was anything."""
        folder = self.folder(session_id)
        if not folder.is_dir():
            return False
        shutil.rmtree(folder)
        return True

    def folder(self, session_id: str) -> Path:
        """Return the folder of a session; an id that is none would name another folder, such as that of them all."""
        if not is_session_id(session_id):
            raise ValueError(f"session_id: {session_id!r} is not the id of a session")
        return self._sessions / session_id

    def kernel_folder(self, session_id: str, hostname: str) -> Path:
        """Return the folder that a container sees at ``/run/backendai``."""
        return self.folder(session_id) / hostname

    def start_marker(self, session_id: str, hostname: str = MAIN1) -> Path:
        """Return the file that lets a container start the command of a batch session; from then on it is there."""
        return self.kernel_folder(session_id, hostname) / "go"

    def started_commands(self, session: LocalSession) -> set[str]:
        """Return the containers here, by hostname, whose command has started: it runs once."""
        return {
            kernel.hostname
            for kernel in session.kernels
            if self.start_marker(session.plan.id, kernel.hostname).exists()
        }


def _digest(path: Path) -> str | None:
    """Return a digest of a file's content; ``None`` where it is not there."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def deadline(seconds: int) -> float:
    """Return the time that many seconds from now, by this agent's clock."""
    return time.time() + seconds
