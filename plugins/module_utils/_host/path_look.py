# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Looks at folders that users name, in a process that is abandoned if it gets no answer.

A path on a file system that does not answer, such as that of a lost NFS server, keeps a process in a state in which
nothing ends it. So no other process of this host touches such a path, and nobody waits for the one that does. It is
left behind with the lock of a file for that path, so that there is never a second one; that file then names the path.
"""

from __future__ import annotations

import dataclasses
import enum
import fcntl
import hashlib
import json
import os
import selectors
import signal
import stat
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn, Union

from .processes import keep_descriptors

# The locks: they end with the processes that hold them, so they need not outlive a reboot.
LOCKS = Path("/run/backendai-looks")

# How long a path may take to answer, and how long all paths of one call together, in seconds.
PATH_SECONDS = 3.0
ALL_SECONDS = 10.0

# How many paths are looked at together, and by how many processes once one of them was silent.
BATCH = 100
PARALLEL = 8

POLL_SECONDS = 0.02


class Place(NamedTuple):
    """A path, below the ``root`` of this host, or of another process, such as ``/proc/17/root``.

    With ``strict``, only root decides where it leads: no component may be a link, nor one before the last be writable
    for others. With ``inner``, it is that path below the folder there, whoever may write to that, and without links.
    """

    path: str
    root: str = ""
    strict: bool = False
    inner: str = ""


@dataclasses.dataclass(frozen=True)
class Folder:
    """A folder: its real ``path`` on this host, its device, its inode, and the number of the group that owns it.

    ``label`` is that of SELinux, empty without one.
    """

    path: str
    device: int
    inode: int
    group: int
    label: str = ""


class NoFolder(enum.Enum):
    """Why no folder was found: there is something else or nothing, or the path does not answer."""

    MISSING = "missing"
    SILENT = "silent"


class Unsafe(NamedTuple):
    """The ``component`` of a strict place by which others than root decide where it leads, and its ``problem``."""

    component: str
    problem: str


Answer = Union[Folder, NoFolder, Unsafe]


def look(places: Iterable[Place]) -> dict[Place, Answer]:
    """Return what is at each place.

    It takes at most about :data:`ALL_SECONDS`; what was not looked at by then counts as silent. Raises :class:`OSError`
    if :data:`LOCKS` cannot be written.
    """
    answers: dict[Place, Answer] = {}
    waiting, began = list(dict.fromkeys(places)), time.monotonic()
    while waiting and time.monotonic() - began < ALL_SECONDS:
        # After a silent one, the others do not wait for each other.
        count = PARALLEL if NoFolder.SILENT in answers.values() else 1
        late = time.monotonic() - began > PATH_SECONDS
        answers.update(_look_at_batch(waiting[:BATCH], count, late=late))
        waiting = [place for place in waiting if place not in answers]
    return {place: answers.get(place, NoFolder.SILENT) for place in [*answers, *waiting]}


def _look_at_batch(places: Sequence[Place], count: int, *, late: bool) -> dict[Place, Answer]:
    """Look at places with at most ``count`` processes, and return the answers so far.

    A place at which another process looks is left out; if that was abandoned, or when it is ``late``, it is silent.
    """
    LOCKS.mkdir(mode=0o700, exist_ok=True)
    locks: dict[Place, int] = {}
    answers: dict[Place, Answer] = {}
    try:
        for place in places:
            handle = _lock(_file_of(place))
            if handle is not None:
                locks[place] = handle
            elif late or _is_abandoned(place):
                answers[place] = NoFolder.SILENT
        free = list(locks)
        looks = [_Look(free[first::count], locks) for first in range(min(count, len(free)))]
        if not looks and not answers:
            time.sleep(POLL_SECONDS)
        answers.update(_read_answers(looks))
    finally:
        for place, handle in locks.items():
            _unlock(place, handle, abandoned=answers.get(place) is NoFolder.SILENT)
    return answers


class _Look:
    """A process that looks at places, one after the other."""

    def __init__(self, places: Sequence[Place], locks: Mapping[Place, int]) -> None:
        self.answers: dict[Place, Answer] = {}
        self._places, self._text, self._until = places, b"", time.monotonic() + PATH_SECONDS
        self.output, sender = os.pipe()
        # A copy of this process starts faster than a program.
        self._child = os.fork()
        if self._child == 0:
            _answer_and_exit(places, sender, {sender, *(locks[place] for place in places)})
        os.close(sender)

    @property
    def remaining_seconds(self) -> float:
        """How long the next answer may still take; 0 if there is none to come."""
        return max(0.0, self._until - time.monotonic()) if len(self.answers) < len(self._places) else 0.0

    def read(self) -> None:
        """Read the answers that were written; a process that has ended writes no more."""
        text = os.read(self.output, 1 << 16)
        *lines, self._text = (self._text + text).split(b"\n")
        for line in lines:
            found = json.loads(line)
            self.answers[self._places[len(self.answers)]] = _parse_answer(found)
        self._until = time.monotonic() + PATH_SECONDS if text else 0.0

    def end(self) -> None:
        """Reap the process; abandon it if an answer is missing, and note that place as silent."""
        os.close(self.output)
        if len(self.answers) < len(self._places):
            self.answers[self._places[len(self.answers)]] = NoFolder.SILENT
            # It ends once the file system answers again. Waiting for it could take forever.
            os.kill(self._child, signal.SIGKILL)
            os.waitpid(self._child, os.WNOHANG)
        else:
            os.waitpid(self._child, 0)


def _answer_and_exit(places: Sequence[Place], sender: int, keep: Collection[int]) -> NoReturn:
    """Write a line for each place, and end this process, which keeps nothing else of its parent open.

    If it hangs, it must hold neither locks of others nor the connection of the task.
    """
    try:
        os.setsid()
        keep_descriptors(keep)
        home = os.open("/", os.O_PATH)
        for place in places:
            os.write(sender, json.dumps(_find(place, home)).encode() + b"\n")
    finally:
        os._exit(0)


def _parse_answer(found: list[str | int] | None) -> Answer:
    """Return the answer of a line that :func:`_find` has written."""
    if found is None:
        return NoFolder.MISSING
    if len(found) == len(Unsafe._fields):
        return Unsafe(*map(str, found))
    path, device, inode, group, label = found
    return Folder(str(path), int(device), int(inode), int(group), str(label))


def _find(place: Place, home: int) -> tuple[str, int, int, int, str] | Unsafe | None:
    """Return what is known of a folder, all of one moment; ``home`` is this host's root."""
    try:
        if place.root:
            os.chroot(place.root)
            os.chdir("/")
        folder = _open_strictly(place.path) if place.strict else os.open(place.path, os.O_PATH | os.O_DIRECTORY)
        if place.inner and not isinstance(folder, Unsafe):
            folder = _open_below(folder, place.inner)
    except (OSError, ValueError):
        return None
    finally:
        if place.root:
            os.fchdir(home)
            os.chroot(".")
    if isinstance(folder, Unsafe):
        return folder
    try:
        found, path = os.fstat(folder), f"/proc/self/fd/{folder}"
        return os.readlink(path), found.st_dev, found.st_ino, found.st_gid, _read_label(path)
    except OSError:
        return None
    finally:
        os.close(folder)


def _read_label(path: str) -> str:
    try:
        return os.getxattr(path, "security.selinux").rstrip(b"\0").decode(errors="replace")
    except OSError:
        return ""


def _open_strictly(path: str) -> int | Unsafe:
    """Open a folder component by component, each in the one before, which only root may be able to write.

    ``openat2`` would follow no link either, but tells nobody whose the folders on the way are. Raises :class:`OSError`.
    """
    folder, here = os.open("/", os.O_PATH | os.O_DIRECTORY), "/"
    try:
        for name in filter(None, path.split("/")):
            problem = _find_writers(os.fstat(folder))
            if problem:
                return Unsafe(here, problem)
            here = os.path.join(here, name)
            outer, folder = folder, _open_inner(name, folder)
            os.close(outer)
            if folder < 0:
                return Unsafe(here, "is a symbolic link")
        return os.dup(folder)
    finally:
        if folder >= 0:
            os.close(folder)


def _open_below(folder: int, path: str) -> int:
    """Open what is below a folder, which is closed, without following a link. Raises :class:`OSError`."""
    for name in path.split("/"):
        try:
            inner = _open_inner(name, folder)
        finally:
            os.close(folder)
        if inner < 0:
            raise NotADirectoryError(name)
        folder = inner
    return folder


def _open_inner(name: str, folder: int) -> int:
    """Open a folder in another one; -1 for a link. Raises :class:`OSError`."""
    try:
        # As a folder, so that an automatic mount takes place.
        return os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
    except NotADirectoryError:
        if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            return -1
        raise


def _find_writers(status: os.stat_result) -> str:
    """Return who else than root may write to a folder, as a phrase; empty if nobody may. ACLs show as the group's."""
    if status.st_uid:
        return f"belongs to user {status.st_uid}"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"is writable for others than root (mode {stat.S_IMODE(status.st_mode):04o})"
    return ""


def _read_answers(looks: Iterable[_Look]) -> dict[Place, Answer]:
    answers: dict[Place, Answer] = {}
    with selectors.DefaultSelector() as selector:
        active = list(looks)
        for process in active:
            selector.register(process.output, selectors.EVENT_READ, process)
        while active:
            for key, _events in selector.select(min(process.remaining_seconds for process in active)):
                key.data.read()
            for process in [process for process in active if not process.remaining_seconds]:
                selector.unregister(process.output)
                active.remove(process)
                process.end()
                answers.update(process.answers)
    return answers


def _file_of(place: Place) -> Path:
    text = "\0".join(map(str, place)).encode(errors="surrogateescape")
    return LOCKS / hashlib.sha256(text).hexdigest()[:32]


def _lock(path: Path) -> int | None:
    """Return the locked file, open; ``None`` if another process holds the lock."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        if os.fstat(handle).st_nlink:
            os.ftruncate(handle, 0)
            return handle
        # It was removed in between, so that its lock is no longer worth anything.
        os.close(handle)


def _is_abandoned(place: Place) -> bool:
    """Return whether the process that looks at a place was left behind."""
    try:
        return _file_of(place).stat().st_size > 0
    except FileNotFoundError:
        return False


def _unlock(place: Place, handle: int, *, abandoned: bool) -> None:
    """Remove the file and release its lock, unless a process was abandoned with that."""
    if abandoned:
        os.pwrite(handle, place.path.encode(errors="surrogateescape"), 0)
    else:
        _file_of(place).unlink()
        # The process has the descriptor, too.
        fcntl.flock(handle, fcntl.LOCK_UN)
    os.close(handle)
