# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The queue of sessions: a folder on the control node with one file per session, shared by users of an inventory."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import secrets
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from ansible.errors import AnsibleActionFail
from ansible.utils.display import Display

from ...module_utils._host.processes import boot_id, process_start_time
from ...module_utils._model.files import describe_held_lock, locked, write_atomically
from ...module_utils._model.session import is_session_id
from .entry import CorruptEntryError, Owner, QueueEntry

# How many seconds to wait for the lock. It is held only while entries are read, decided on and saved: a run that holds
# it longer hangs.
LOCK_TIMEOUT = 30.0

# The file of the key for digests of secrets. Agents, which store the digests, do not have it.
KEY_FILE = "digest.key"

# From this age on (seconds), temporary files of killed writers are removed.
LEFTOVER_MIN_AGE = 60.0


class QueueStore:
    """The folder ``session_queue_path``, created by the first write.

    Only its owner has access, unless it already exists and is group-writable: then the files are as well. Corrupt files
    are left out with a warning, and never removed. Raises :class:`AnsibleActionFail` with one sentence for I/O errors.
    """

    def __init__(self, path: str) -> None:
        self.path = Path(path).expanduser().absolute()

    def entries(self) -> list[QueueEntry]:
        """Return all entries, sorted by id. This needs no lock: files are replaced, never rewritten."""
        with self._convert_os_errors("read"):
            try:
                names = sorted(os.listdir(self.path))
            except FileNotFoundError:
                return []
        entries = (self.entry(name[: -len(".json")]) for name in names if name.endswith(".json"))
        return [entry for entry in entries if entry]

    def entry(self, session_id: str) -> QueueEntry | None:
        """Return the entry of a session; ``None`` if there is none, or a corrupt one."""
        try:
            return self._read(session_id) if is_session_id(session_id) else None
        except CorruptEntryError as error:
            # Ansible shows the same warning once.
            Display().warning(f"session_queue_path: {error}")
            return None

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the lock while entries are read, decided on and saved. It is not reentrant."""
        with contextlib.ExitStack() as stack:
            with self._convert_os_errors("written"):
                self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
                handle = stack.enter_context(locked(self.path / ".lock", LOCK_TIMEOUT, create=True))
                if handle is None:
                    raise AnsibleActionFail(
                        f"session_queue_path: {describe_held_lock(self.path / '.lock', LOCK_TIMEOUT)}"
                    )
                share_with_group(handle, self.path)
                self._remove_leftovers()
            yield

    def save(self, entry: QueueEntry) -> None:
        """Write an entry atomically: a crash leaves either the old or the new one. A corrupt one is kept beside it."""
        target = self._file(entry.id)
        with self._convert_os_errors("written"):
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                self._read(entry.id)
            except CorruptEntryError:
                os.replace(target, f"{target}.corrupt")
            write_atomically(target, entry.to_json(), prepare=lambda handle: share_with_group(handle, self.path))
            self._fsync_folder()

    def remove(self, session_id: str) -> None:
        """Remove an entry, if it exists."""
        with self._convert_os_errors("written"), contextlib.suppress(FileNotFoundError):
            self._file(session_id).unlink()
            self._fsync_folder()

    def digest_key(self) -> bytes:
        """Return the key for digests of secrets; empty if there is none yet."""
        with self._convert_os_errors("read"), contextlib.suppress(FileNotFoundError):
            return (self.path / KEY_FILE).read_bytes()
        return b""

    def make_digest_key(self) -> None:
        """Make the key for digests of secrets, unless there is one. It never changes, and is as secret as an entry."""
        if self.digest_key():
            return
        with self.lock(), self._convert_os_errors("written"):
            if not self.digest_key():
                path, key = self.path / KEY_FILE, secrets.token_bytes(32)
                write_atomically(path, key, prepare=lambda handle: share_with_group(handle, self.path))

    def _file(self, session_id: str) -> Path:
        if not is_session_id(session_id):
            raise ValueError(f"{session_id!r} is not the id of a session")
        return self.path / f"{session_id}.json"

    def _read(self, session_id: str) -> QueueEntry | None:
        """Return an entry; ``None`` if its file does not exist. Raises :class:`CorruptEntryError`."""
        path = self._file(session_id)
        try:
            with self._convert_os_errors("read", NotADirectoryError):
                content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CorruptEntryError(f"{path} cannot be read ({error.strerror}), so its session is left out.") from None
        entry = QueueEntry.from_json(content, str(path))
        if session_id != entry.id:
            raise CorruptEntryError(f"{path} contains another session: move it to another folder.")
        return entry

    def _remove_leftovers(self) -> None:
        oldest = time.time() - LEFTOVER_MIN_AGE
        for path in self.path.glob(".*.new"):
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < oldest:
                    path.unlink()

    def _fsync_folder(self) -> None:
        """Flush the folder itself to the disk: without it a power failure can undo a rename."""
        handle = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    @contextlib.contextmanager
    def _convert_os_errors(self, operation: str, errors: type[OSError] = OSError) -> Iterator[None]:
        try:
            yield
        except errors as error:
            raise AnsibleActionFail(
                f"session_queue_path: '{self.path}' cannot be {operation}: {error.strerror}."
            ) from None


def share_with_group(target: int | Path, folder: Path, mode: int = 0o660) -> None:
    """Make an open file, or a path, accessible to the group of a folder if that group may write to the folder."""
    above = folder.stat()
    # A lock file of another operator has been shared already; and an operator outside the group may have access by ACL.
    with contextlib.suppress(PermissionError):
        if above.st_mode & stat.S_IWGRP:
            os.chmod(target, mode)
            os.chown(target, -1, above.st_gid)


def current_owner(pid: int | None = None) -> Owner:
    """Return the ``ansible-playbook`` process: it forks the workers that actions run in, and outlives them."""
    parent = multiprocessing.parent_process()
    pid = pid or (parent.pid if parent else None) or os.getpid()
    try:
        return Owner(_host(), pid, process_start_time(pid))
    except OSError as error:
        raise AnsibleActionFail(f"the run cannot be found in /proc (process {pid}): {error.strerror}.") from None


def owner_is_alive(entry: QueueEntry, timeout: float) -> bool:
    """Return whether the run that starts a session still exists.

    A process that cannot be checked, because it is on another machine that shares the folder, or hidden as another
    user's, counts as alive if the entry was updated within the last ``timeout`` seconds.
    """
    owner = entry.owner
    if owner is None:
        return False
    if owner.host == _host():
        try:
            return process_start_time(owner.pid) == owner.started
        except (FileNotFoundError, ProcessLookupError):
            return False
        except PermissionError:
            pass
    elif owner.host.split()[:2] == _host().split()[:2] and owner.host.split()[2:3] != _host().split()[2:3]:
        # This machine has been rebooted since.
        return False
    return time.time() - entry.updated_at < timeout


def default_path(inventory_sources: Sequence[str]) -> str:
    """Return the default folder of the queue of an inventory.

    It is ``queue`` next to the first source that is a file, or ``.queue`` in a source that is a folder: Ansible parses
    every file in there that is not hidden as another inventory. Without either it is ``queue`` in the current folder.
    """
    for source in inventory_sources:
        if os.path.isdir(source):
            return os.path.join(os.path.abspath(source), ".queue")
        if os.path.isfile(source):
            return os.path.join(os.path.dirname(os.path.abspath(source)), "queue")
    return os.path.abspath("queue")


def _host() -> str:
    """Return the identity of this machine, its boot and its PID namespace: a container has process ids of its own."""
    try:
        machine = Path("/etc/machine-id").read_text().strip()
    except OSError:
        machine = ""
    return f"{os.uname().nodename} {machine or '-'} {boot_id()} {os.readlink('/proc/self/ns/pid')}"
