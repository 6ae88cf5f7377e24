# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The queue of sessions: a folder on the control node with one file per session, shared by users of an inventory."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ansible.errors import AnsibleActionFail
from ansible.utils.display import Display

from ...module_utils._model.files import describe_held_lock, locked, write_atomically
from ...module_utils._model.session import is_session_id
from .entry import RUNNING, CorruptEntryError, QueueEntry

# How many seconds to wait for the lock. It is held only while entries are read, decided on and saved: a run that holds
# it longer hangs.
LOCK_TIMEOUT = 30.0

# The digest of what the last pass that started nothing has seen.
SEEN_FILE = ".seen"

# The note of the last pass of the timer, its unit, and the age of the note (seconds) from which on it is late at least.
TIMER_FILE, TIMER_UNIT = ".timer", Path("/etc/systemd/system/backendai-schedule.timer")
LATE_SECONDS = 300.0

# From this age on (seconds), the note of another host counts no more: its timer may have been removed.
FORGOTTEN_SECONDS = 30 * 86400.0

# How many entries are saved before the lock is released: each is flushed to the disk.
BATCH = 100

# From this age on (seconds), temporary files of killed writers are removed.
LEFTOVER_MIN_AGE = 60.0

T = TypeVar("T")


class QueueStore:
    """The folder ``session_queue_path``, created by the first write.

    Only its owner has access, unless it already exists and is group-writable: then the files are as well. Corrupt files
    are left out with a warning, and never removed. Raises :class:`AnsibleActionFail` with one sentence for I/O errors.
    """

    def __init__(self, path: str) -> None:
        self.path = Path(path).expanduser().absolute()
        # What was read before: under the lock, only what has changed since is parsed.
        self._parsed: dict[str, tuple[bytes, QueueEntry]] = {}

    def entries(self) -> list[QueueEntry]:
        """Return all entries, sorted by id. This needs no lock: files are replaced, never rewritten."""
        entries = [self.entry(name.removesuffix(".json")) for name in self._names()]
        return [entry for entry in entries if entry]

    def _names(self) -> list[str]:
        """Return the names of the files of entries, sorted."""
        with self._convert_os_errors("read"):
            try:
                return sorted(name for name in os.listdir(self.path) if name.endswith(".json"))
            except FileNotFoundError:
                return []

    def running(self) -> list[QueueEntry]:
        """Return the entries of RUNNING sessions as :meth:`entries` does; those of others are not checked."""
        ids = [name.removesuffix(".json") for name in self._names()]
        entries = [self.entry(session_id) for session_id in ids if self._may_run(session_id)]
        return [entry for entry in entries if entry and entry.state == RUNNING]

    def _may_run(self, session_id: str) -> bool:
        """Return whether the file of an entry says that the session is RUNNING, or cannot be read."""
        try:
            return json.loads((self.path / f"{session_id}.json").read_bytes())["state"] == RUNNING
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            return True

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

    def save(self, *entries: QueueEntry) -> None:
        """Write entries atomically: a crash leaves either the old or the new ones. A corrupt one is kept beside it."""
        with self._convert_os_errors("written"):
            for entry in entries:
                self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
                target = self._file(entry.id)
                try:
                    self._read(entry.id)
                except CorruptEntryError:
                    os.replace(target, f"{target}.corrupt")
                self._write(target.name, entry.to_json())
            if entries:
                self._fsync_folder()

    def batches(self, changes: Iterable[T]) -> Iterator[list[T]]:
        """Yield changes in parts, each with the lock held for it alone, so that others never wait for long."""
        remaining = list(changes)
        while remaining:
            with self.lock():
                yield remaining[:BATCH]
            del remaining[:BATCH]

    def has_seen(self, digest: str) -> bool:
        """Return whether the last pass that started nothing has seen what has this digest."""
        try:
            return (self.path / SEEN_FILE).read_text() == digest
        except (OSError, ValueError):
            return False

    def save_seen(self, digest: str) -> None:
        """Save the digest of what a pass that starts nothing has seen."""
        self._write(SEEN_FILE, digest, durable=False)

    def save_timer(self, interval: float) -> None:
        """Save that the timer of this host has made a pass, which it does again after ``interval`` seconds."""
        self._write(TIMER_FILE, f"{os.uname().nodename} {interval}", durable=False)

    def timer(self) -> dict[str, Any]:
        """Return the ``host`` of the timer, and when its last pass ended and the next is late; nothing without one."""
        path = self.path / TIMER_FILE
        try:
            (host, interval), ran_at = path.read_text().split(), path.stat().st_mtime
            known = {"host": host, "ran_at": ran_at, "late_at": ran_at + max(LATE_SECONDS, 3 * float(interval))}
        except (OSError, ValueError):
            return {}
        own = host == os.uname().nodename
        return known if (TIMER_UNIT.exists() if own else time.time() - ran_at < FORGOTTEN_SECONDS) else {}

    def _write(self, name: str, content: str, *, durable: bool = True) -> None:
        with self._convert_os_errors("written"):
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            share = partial(share_with_group, folder=self.path)
            write_atomically(self.path / name, content, durable=durable, prepare=share)

    def remove(self, *session_ids: str) -> None:
        """Remove entries, if they exist."""
        with self._convert_os_errors("written"):
            for session_id in session_ids:
                self._file(session_id).unlink(missing_ok=True)
            if session_ids and self.path.exists():
                self._fsync_folder()

    def _file(self, session_id: str) -> Path:
        if not is_session_id(session_id):
            raise ValueError(f"{session_id!r} is not the id of a session")
        return self.path / f"{session_id}.json"

    def _read(self, session_id: str) -> QueueEntry | None:
        """Return an entry; ``None`` if its file does not exist. Raises :class:`CorruptEntryError`."""
        path = self._file(session_id)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except NotADirectoryError as error:
            raise self._refusal("read", error) from None
        except OSError as error:
            raise CorruptEntryError(f"{path} cannot be read ({error.strerror}), so its session is left out.") from None
        known = self._parsed.get(session_id)
        if known and known[0] == content:
            return known[1]
        entry = QueueEntry.from_json(content, str(path))
        if session_id != entry.id:
            raise CorruptEntryError(f"{path} contains another session: move it to another folder.")
        self._parsed[session_id] = content, entry
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
    def _convert_os_errors(self, operation: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._refusal(operation, error) from None

    def _refusal(self, operation: str, error: OSError) -> AnsibleActionFail:
        return AnsibleActionFail(f"session_queue_path: '{self.path}' cannot be {operation}: {error.strerror}.")


def share_with_group(target: int | Path, folder: Path, mode: int = 0o660) -> None:
    """Make an open file, or a path, accessible to the group of a folder if that group may write to the folder."""
    above = folder.stat()
    # A lock file of another operator has been shared already; and an operator outside the group may have access by ACL.
    with contextlib.suppress(PermissionError):
        if above.st_mode & stat.S_IWGRP:
            os.chmod(target, mode)
            os.chown(target, -1, above.st_gid)


def default_path(inventory_sources: Sequence[str]) -> str:
    """Return the default folder of the queue of an inventory.

    It is ``.queue`` beside the first source that is a file, or in a source that is a folder, so that both name one
    queue: Ansible parses every file in a folder that is not hidden as another inventory. Without either it is in the
    current folder.
    """
    folder = os.getcwd()
    for source in inventory_sources:
        if os.path.isdir(source) or os.path.isfile(source):
            path = os.path.abspath(source)
            folder = path if os.path.isdir(source) else os.path.dirname(path)
            break
    return os.path.join(folder, ".queue")
