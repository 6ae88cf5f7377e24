# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The session state of an agent: one folder per session, readable by root only.

``sessions/<id>/session.json`` contains the plan, the claim, and the pinned cores and devices of the containers. The
folders next to it, one per container on this agent, are mounted in the containers at ``/run/backendai``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from .._model.errors import ClusterError
from .._model.files import LOCK_SECONDS, describe_held_lock, locked, write_atomically
from .._model.session import MAIN1, is_session_id
from .._model.state_format import StateFormat
from .command_ends import STARTED
from .container_ids import FOLDER as CONTAINER_IDS
from .container_ids import ContainerIds
from .homes import Homes
from .local_session import SESSION, LocalSession
from .mount_table import FolderOnMount
from .port_reservations import PortReservations

DESCRIPTION = "session.json"
"""The file that describes a session, in its folder."""

PROGRAM = Path("/usr/local/lib/backendai/current/source.pyz")
"""The program that systemd units run, installed by provisioning."""


class NotProvisionedError(ClusterError):
    """The agent is not provisioned: a folder or program is missing; the message is one sentence for the operator."""


class LockTimeoutError(ClusterError):
    """A lock of this agent was not released in time; the message is one sentence for the operator."""


class CorruptStateError(ClusterError):
    """Stored state cannot be read; the message is one sentence for the operator."""


@dataclasses.dataclass(frozen=True)
class _Seals:
    """Digests of a session's files when they were written, by path below its folder; ``None`` for a missing one."""

    files: dict[str, str | None]


_SEALS = StateFormat("the checksums", _Seals)


@dataclasses.dataclass(frozen=True)
class _MountSources:
    """The content of ``mounts.json``."""

    sources: dict[str, FolderOnMount]


_MOUNTS = StateFormat("the folders", _MountSources)


class Store:
    """The state in the folder ``state_path`` of an agent; :meth:`lock` makes a sequence of steps atomic."""

    def __init__(self, state_path: str) -> None:
        self._root = Path(state_path)
        self._sessions = self._root / "sessions"

    def lock(self) -> AbstractContextManager[None]:
        """Hold the agent's lock, which serializes claims and removals of sessions."""
        return self._locked(self._root / "lock")

    @contextlib.contextmanager
    def session_lock(self, session_id: str, timeout: float | None = None) -> Iterator[None]:
        """Hold the lock of one session against concurrent runs; nothing is locked if the session does not exist.

        It is waited for ``timeout`` seconds, by default as long as for all locks. Raises :class:`LockTimeoutError`, as
        all locks do.
        """
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(FileNotFoundError):
                _enter(stack, self.folder(session_id), LOCK_SECONDS if timeout is None else timeout)
            yield

    @contextlib.contextmanager
    def both_locks(self, session_id: str) -> Iterator[None]:
        """Hold the agent's lock and that of a session, which is waited for without the agent's."""
        until = time.monotonic() + LOCK_SECONDS
        while True:
            with self.session_lock(session_id):
                pass
            with contextlib.ExitStack() as stack:
                stack.enter_context(self.lock())
                try:
                    stack.enter_context(self.session_lock(session_id, 0.0))
                except LockTimeoutError:
                    if time.monotonic() < until:
                        continue
                    raise LockTimeoutError(describe_held_lock(self.folder(session_id), LOCK_SECONDS)) from None
                yield
                return

    def isolation_lock(self) -> AbstractContextManager[None]:
        """Hold the lock of the isolation rules, which depend on all sessions; its holder must not take another lock."""
        return self._locked(self._sessions)

    @contextlib.contextmanager
    def _locked(self, path: Path) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            try:
                _enter(stack, path, LOCK_SECONDS)
            except OSError as error:
                problem = f"{self._root} is not ready ({error.strerror})"
                raise NotProvisionedError(f"{problem}: run backendai.cluster.provision_agents on this host.") from error
            yield

    @property
    def ports(self) -> PortReservations:
        """The ports that sessions publish, and those of ended sessions that gateways may have routes to."""
        return PortReservations(self._root / "ports")

    @property
    def firewall_file(self) -> Path:
        """The file of the host firewall; it exists only if the role ``firewall`` was applied."""
        return self._root / "firewall.json"

    @property
    def firewall_copy(self) -> Path:
        """The file of the host firewall that was confirmed last, for when the other one is damaged."""
        return self._root / "firewall.confirmed.json"

    @property
    def openings_file(self) -> Path:
        """The file of our rules in firewalls of others; it exists only where there are any."""
        return self._root / "openings.json"

    @property
    def egress_file(self) -> Path:
        """The file of what containers may not reach; it exists only on agents."""
        return self._root / "egress.json"

    @property
    def storage_file(self) -> Path:
        """The file of the storage services that the agent has mounted; it exists only on agents."""
        return self._root / "storage.json"

    @property
    def cordon_file(self) -> Path:
        """The file of the agent's cordon; it exists only while there is one."""
        return self._root / "cordon.json"

    @property
    def health_file(self) -> Path:
        """The copy of what the health checks have found, for after a boot; it exists once they have run."""
        return self._root / "health" / "health.json"

    @property
    def limits_file(self) -> Path:
        """The file of the limits that the agent's rules enforce; it exists only on agents."""
        return self._root / "limits.json"

    @property
    def default_network_file(self) -> Path:
        """The file of how the default network was created; it exists only on agents."""
        return self._root / "default_network.json"

    @property
    def wireguard_folder(self) -> Path:
        """The folder of the agent's WireGuard key pair; it exists only if the underlay is encrypted."""
        return self._root / "wireguard"

    @property
    def registries_folder(self) -> Path:
        """The folder of what the agent knows about registries; it exists only if an image was private."""
        return self._root / "registries"

    @property
    def images_folder(self) -> Path:
        """The folder of what the agent knows about images: which came with sessions, and when each was needed last."""
        return self._root / "images"

    @property
    def root(self) -> Path:
        """The folder ``state_path``."""
        return self._root

    def program(self) -> str | None:
        """Return the digest of the program that restores sessions; ``None`` if it is not installed."""
        return PROGRAM.parent.resolve().name.partition("-")[0] if PROGRAM.exists() else None

    def is_busy(self, session_id: str) -> bool:
        """Return whether a run currently holds the lock of a session."""
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

    @property
    def homes_link(self) -> Path:
        """The link to the folder of :attr:`homes`, on the engine's file system."""
        return self._root / "homes"

    @property
    def homes(self) -> Homes:
        """The folders of sessions on the engine's file system. Raises :class:`NotProvisionedError`."""
        try:
            homes = Homes(os.readlink(self.homes_link))
        except OSError:
            problem = f"{self.homes_link} is missing"
            raise NotProvisionedError(f"{problem}: run backendai.cluster.provision_agents on this host.") from None
        if not homes.removed.is_dir():
            problem = f"{homes.root} is not there: mount its file system"
            raise NotProvisionedError(f"{problem}, or run backendai.cluster.provision_agents on this host.")
        return homes

    def sessions(self) -> list[LocalSession]:
        """Return all sessions on this agent, committed or not, sorted by id.

        Raises :class:`CorruptStateError` if one of them cannot be read.
        """
        readable, damaged = self.load_all()
        if damaged:
            raise damaged[0]
        return readable

    def held_ids(self) -> list[str]:
        """Return the ids of all sessions on this agent, readable or not, sorted."""
        if not self._sessions.is_dir():
            return []
        return sorted(folder.name for folder in self._sessions.iterdir() if is_session_id(folder.name))

    def load_all(self, excluded: str = "") -> tuple[list[LocalSession], list[CorruptStateError]]:
        """Return the readable sessions but ``excluded`` (an id), sorted by id, and the errors of the others."""
        loaded = [self._load_or_error(session_id) for session_id in self.held_ids() if session_id != excluded]
        return [entry for entry in loaded if isinstance(entry, LocalSession)], [
            entry for entry in loaded if isinstance(entry, CorruptStateError)
        ]

    def session(self, session_id: str) -> LocalSession | None:
        """Return the session of that id; ``None`` if it is not on this agent."""
        path = self.folder(session_id) / DESCRIPTION
        try:
            session = SESSION.load(path.read_bytes())
            session.plan.check()
            if session.plan.id != session_id or session.agent not in session.plan.agents:
                raise ValueError("it is that of another session or agent")
            if not all("mem" in kernel.resources for kernel in session.kernels):
                raise ValueError("a container has no amount of memory")
            return session
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            raise CorruptStateError(f"{path} is damaged ({error}): terminate its session.") from error

    def _load_or_error(self, session_id: str) -> LocalSession | CorruptStateError | None:
        try:
            return self.session(session_id)
        except CorruptStateError as error:
            return error

    def save(self, session: LocalSession) -> None:
        """Write a session atomically."""
        folder = self.folder(session.plan.id)
        folder.mkdir(mode=0o700, exist_ok=True)
        write_atomically(folder / DESCRIPTION, SESSION.dump(session))

    def save_checksums(self, session_id: str, paths: Iterable[Path]) -> None:
        """Save the checksums of files of a session, to detect later changes."""
        checksums = {str(path.relative_to(self.folder(session_id))): _digest(path) for path in paths}
        write_atomically(self.folder(session_id) / "seals.json", _SEALS.dump(_Seals(checksums)))

    def changed_files(self, session_id: str) -> list[Path]:
        """Return the files of a session that are missing or differ from their saved checksums."""
        folder = self.folder(session_id)
        seals = folder / "seals.json"
        try:
            checksums = _SEALS.load(seals.read_bytes()).files
        except FileNotFoundError:
            return []
        except ValueError:
            # What it covered is unknown, so it is the file that differs.
            return [seals]
        return [folder / name for name, digest in checksums.items() if _digest(folder / name) != digest]

    def save_mount_sources(self, session_id: str, sources: Mapping[str, FolderOnMount]) -> None:
        """Save the folders that a session mounts, with the mounts that they are on, by source."""
        write_atomically(self.folder(session_id) / "mounts.json", _MOUNTS.dump(_MountSources(dict(sources))))

    def mount_sources(self, session_id: str) -> dict[str, FolderOnMount]:
        """Return the folders that a session mounts, as they were claimed, by source; empty for a session without any.

        Raises :class:`CorruptStateError`.
        """
        path = self.folder(session_id) / "mounts.json"
        try:
            return _MOUNTS.load(path.read_bytes()).sources
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise CorruptStateError(f"{path} is damaged ({error}): terminate its session.") from error

    def commit(self, session: LocalSession) -> None:
        """Commit a session: remove the expiry of its claim."""
        self.save(dataclasses.replace(session, expires_at=None))

    def remove(self, session_id: str) -> bool:
        """Remove the stored state of a session, and retire its homes; return whether there was any.

        Keys and secrets go first, the description last: a removal that was killed leaves a session to remove again.
        Homes that cannot be retired do not keep a session from ending: the agent's timer tries again.
        """
        folder = self.folder(session_id)
        with contextlib.suppress(NotProvisionedError, OSError):
            self.homes.retire(session_id)
        if not folder.is_dir():
            return False
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name != DESCRIPTION:
                path.unlink()
        shutil.rmtree(folder)
        return True

    def nameless_ids(self) -> list[str]:
        """Return the ids of folders without a description, sorted: what is left of a session, or of a claim."""
        return [session_id for session_id in self.held_ids() if not (self.folder(session_id) / DESCRIPTION).exists()]

    def folder(self, session_id: str) -> Path:
        """Return the folder of a session; invalid ids are rejected, because they could lead to other folders."""
        if not is_session_id(session_id):
            raise ValueError(f"session_id: {session_id!r} is not the id of a session")
        return self._sessions / session_id

    def container_ids(self, session_id: str) -> ContainerIds:
        """Return the recorded ids of the containers that this agent has made for a session."""
        return ContainerIds(self.folder(session_id) / CONTAINER_IDS)

    def kernel_folder(self, session_id: str, hostname: str) -> Path:
        """Return the folder that is mounted in a container at ``/run/backendai``."""
        return self.folder(session_id) / hostname

    def start_marker(self, session_id: str, hostname: str = MAIN1) -> Path:
        """Return the marker file that lets a container start the command of a batch session."""
        return self.kernel_folder(session_id, hostname) / STARTED

    def started_commands(self, session: LocalSession) -> set[str]:
        """Return the hostnames of the containers on this agent that have started their command: it runs only once."""
        return {
            kernel.hostname
            for kernel in session.kernels
            if self.start_marker(session.plan.id, kernel.hostname).exists()
        }


def _enter(stack: contextlib.ExitStack, path: Path, timeout: float) -> None:
    """Hold a lock until the stack is left. Raises :class:`LockTimeoutError` and :class:`OSError`."""
    if stack.enter_context(locked(path, timeout)) is None:
        raise LockTimeoutError(describe_held_lock(path, timeout))


def _digest(path: Path) -> str | None:
    """Return a digest of a file's content; ``None`` if the file does not exist."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
