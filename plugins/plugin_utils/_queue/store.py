# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The queue of sessions: a folder on the control node with one file per session, shared by users of an inventory."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ansible.errors import AnsibleActionFail
from ansible.utils.display import Display

from ...module_utils._model.files import describe_held_lock, locked, write_atomically
from ...module_utils._model.session import is_session_id
from ...module_utils._model.state_format import StateFormat
from ..host_program import release
from .answers import LastPass
from .entry import CREATING, PENDING, CorruptEntryError, Heads, QueueEntry, stored_details

# How many seconds to wait for the lock. It is held only while entries are read, decided on and saved: a run that holds
# it longer hangs.
LOCK_TIMEOUT = 30.0

# How often later sessions have skipped those that wait: one file, because a start may skip all of them.
SKIPS_FILE = ".skips"

# What a pass over the queue leaves to the next one.
PASS_FILE = ".pass"

# The heads of entries by the digests of their files, so that a long queue is not parsed and checked by each task.
INDEX_FILE = ".index"

# From how many new ones on that file is written.
MANY = 50

# How many entries are saved before the lock is released: each is flushed to the disk.
BATCH = 100

# From this age on (seconds), temporary files of killed writers are removed.
LEFTOVER_MIN_AGE = 60.0

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class _Skips:
    """How often later sessions have skipped those that wait, by id, unless their entries say more."""

    skipped: dict[str, int]


@dataclasses.dataclass(frozen=True)
class _Index:
    """The digests of the files of entries that a release of the collection has checked, and their heads."""

    release: str
    digests: tuple[str, ...]
    heads: Heads


@dataclasses.dataclass(frozen=True)
class _Pass:
    """What a pass of a release of the collection has left."""

    release: str
    last: LastPass


_SKIPS, _INDEX = StateFormat("the file", _Skips), StateFormat("the file", _Index)
_PASS = StateFormat("the file", _Pass)


class QueueStore:
    """The folder ``session_queue_path``, created by the first write.

    Only its owner has access, unless it already exists and is group-writable: then the files are as well. Corrupt files
    are left out with a warning, and never removed. Raises :class:`AnsibleActionFail` with one sentence for I/O errors.
    """

    def __init__(self, path: str) -> None:
        self.path = Path(path).expanduser().absolute()
        # What was read before: under the lock, only what has changed since is parsed.
        self._parsed: dict[str, tuple[bytes, QueueEntry]] = {}
        self._parsed_skips: tuple[bytes, Mapping[str, int]] = b"", {}
        self._heads: dict[str, tuple[Any, ...]] | None = None
        # How many of the entries that were parsed could be in the index and are not.
        self._missing = 0

    def entries(self) -> list[QueueEntry]:
        """Return all entries, sorted by id. This needs no lock: files are replaced, never rewritten."""
        with self._convert_os_errors("read"):
            try:
                names = sorted(os.listdir(self.path))
            except FileNotFoundError:
                return []
        skips = self._skips()
        if self._heads is None and len(names) >= MANY:
            self._heads = self._load_index()
        entries = [self._entry(name[: -len(".json")], skips) for name in names if name.endswith(".json")]
        return [entry for entry in entries if entry]

    def entry(self, session_id: str) -> QueueEntry | None:
        """Return the entry of a session; ``None`` if there is none, or a corrupt one."""
        return self._entry(session_id, self._skips())

    def _entry(self, session_id: str, skips: Mapping[str, int]) -> QueueEntry | None:
        try:
            entry = self._read(session_id) if is_session_id(session_id) else None
            if entry and entry.state in (PENDING, CREATING) and skips.get(entry.id, 0) > entry.skipped:
                return entry.with_skipped(skips[entry.id])
            return entry
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
                self._save_index()
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

    def add_skips(self, added: Mapping[str, int], entries: Iterable[QueueEntry]) -> None:
        """Count how often later sessions have skipped those that wait, by id, with the lock held.

        ``entries`` are all of the queue: the counts of those that do not wait any more are dropped.
        """
        if not any(added.values()):
            return
        known = {entry.id: entry for entry in entries}
        counts = {name: count for name, count in self._skips().items() if name in known or self._file(name).exists()}
        for name, entry in known.items():
            if entry.state in (PENDING, CREATING):
                counts[name] = max(counts.get(name, 0), entry.skipped) + added.get(name, 0)
            else:
                counts.pop(name, None)
        self._write(SKIPS_FILE, _SKIPS.dump(_Skips({name: count for name, count in counts.items() if count})))

    def _skips(self) -> Mapping[str, int]:
        """Return the counts; none if the file is damaged, since those in the entries remain."""
        try:
            content = (self.path / SKIPS_FILE).read_bytes()
            if content != self._parsed_skips[0]:
                counts = _SKIPS.load(content).skipped
                self._parsed_skips = content, {name: count for name, count in counts.items() if is_session_id(name)}
        except (OSError, ValueError):
            return {}
        return self._parsed_skips[1]

    def _load_index(self) -> dict[str, tuple[Any, ...]]:
        """Return the heads of entries by the digests of their files; none if the index is missing or damaged."""
        try:
            index = _INDEX.load((self.path / INDEX_FILE).read_bytes())
            return dict(zip(index.digests, index.heads.rows(), strict=True)) if index.release == release() else {}
        except (OSError, ValueError):
            return {}

    def _save_index(self) -> None:
        """Save the heads of all entries as they were read, if many are new; whoever may not write does without."""
        if self._missing < MANY:
            return
        self._missing = 0
        known = [(content, entry) for content, entry in self._parsed.values() if entry.has_head]
        index = _Index(
            release(),
            tuple(_digest(content) for content, _entry in known),
            Heads.of([entry for _content, entry in known]),
        )
        with contextlib.suppress(OSError):
            share = partial(share_with_group, folder=self.path)
            text = _INDEX.dump(index)
            write_atomically(self.path / INDEX_FILE, text, durable=False, prepare=share)

    def last_pass(self) -> LastPass:
        """Return what the last pass has left; nothing if that is missing, damaged, or of another release."""
        try:
            kept = _PASS.load((self.path / PASS_FILE).read_bytes())
        except (OSError, ValueError):
            return LastPass()
        return kept.last if kept.release == release() else LastPass()

    def save_last_pass(self, last: LastPass) -> None:
        """Save what this pass leaves to the next one."""
        self._save_index()
        self._write(PASS_FILE, _PASS.dump(_Pass(release(), last)), durable=False)

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
        path = f"{self.path}/{session_id}.json"
        try:
            content = _read_bytes(path)
        except FileNotFoundError:
            return None
        except NotADirectoryError as error:
            raise self._refusal("read", error) from None
        except OSError as error:
            raise CorruptEntryError(f"{path} cannot be read ({error.strerror}), so its session is left out.") from None
        known = self._parsed.get(session_id)
        if known and known[0] == content:
            return known[1]
        head = self._heads.get(_digest(content)) if self._heads else None
        if head:
            entry = QueueEntry.from_head(head, partial(_details, content, path))
        else:
            entry = QueueEntry.from_json(content, path)
        if session_id != entry.id:
            raise CorruptEntryError(f"{path} contains another session: move it to another folder.")
        if not head and entry.has_head:
            self._missing += 1
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


def _read_bytes(path: str) -> bytes:
    """Return the content of a file in the fewest steps, since a long queue has many."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return b"".join(iter(partial(os.read, descriptor, 1 << 20), b""))
    finally:
        os.close(descriptor)


def _details(content: bytes, path: str) -> dict[str, Any]:
    """Return the request and the record of an entry whose head is in the index."""
    try:
        return stored_details(content)
    except (ValueError, KeyError):
        # Only a file that somebody else has made says that such an entry is known.
        index = Path(path).with_name(INDEX_FILE)
        raise AnsibleActionFail(f"session_queue_path: {index} does not belong to {path}: remove it.") from None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


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
