# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Copies what an image has in ``/home/work`` to a folder of the session's user.

The archive is data of whoever made the image. So it is read by a process that is that user, has no other root than the
new folder, and cannot load any code; it takes files, folders and links, and nothing that gives rights. What is copied
is limited, because a session waits for it.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import selectors
import signal
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from .._model.errors import ClusterError, as_phrase, one_line
from .processes import keep_descriptors

FILES = 2_000
BYTES = 256 << 20
"""How many files, folders and links, and how many bytes of files, are copied at most."""

HEADER_BYTES = 8 << 20
"""How much an archive may have besides the bytes of files: names, padding, what is left out."""

SECONDS = 120.0

_CHUNK = 1 << 16
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_TOO_LARGE = "too large"
_LATEST = 1 << 33
_END = bytes(1024)
"""Any archive ends with as many zero bytes, unless it was cut off."""


class HomeTooLargeError(ClusterError):
    """An image has more in ``/home/work`` than is copied. The message is one sentence."""


class HomeCopyError(ClusterError):
    """What an image has in ``/home/work`` was not copied. The message is one sentence."""


def copy_home(stream: Iterator[bytes], folder: Path, uid: int, gid: int, image: str) -> None:
    """Extract an archive to an empty ``folder`` of the user, and leave out its first component.

    Raises :class:`HomeTooLargeError` and :class:`HomeCopyError`, and what ``stream`` raises.
    """
    problem = _extract_elsewhere(stream, folder, uid, gid)
    if problem == _TOO_LARGE:
        raise HomeTooLargeError(
            f"session_image: {image!r} has more than {FILES:,} files or {BYTES >> 20} MiB in /home/work, which is the"
            " most that is copied for user work: make them that user's in the image, with the line RUN chown -R"
            f" {uid}:{gid} /home/work, or use one that has less there"
        )
    if problem:
        raise HomeCopyError(f"session_image: /home/work of {image!r} could not be copied: {as_phrase(problem)}")


def _extract_elsewhere(stream: Iterator[bytes], folder: Path, uid: int, gid: int) -> str:
    """Extract an archive in a process of the user; return why that failed, empty if it did not."""
    until = time.monotonic() + SECONDS
    source, sender = os.pipe()
    receiver, report = os.pipe()
    child = os.fork()
    if child == 0:
        _extract_and_exit(source, report, folder, (uid, gid))
    try:
        os.close(source)
        os.close(report)
        try:
            in_time = _send(stream, sender, until)
        finally:
            os.close(sender)
        answer = _receive(receiver, until) if in_time else b""
    finally:
        os.close(receiver)
        # It has ended, or nobody waits for it any more.
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if answer:
        return str(json.loads(answer))
    return f"it took more than {SECONDS:g} seconds" if time.monotonic() > until else "the copy was killed"


def _send(stream: Iterator[bytes], sender: int, until: float) -> bool:
    """Send all there is, unless the process needs no more; return whether it took all in time."""
    os.set_blocking(sender, False)
    with selectors.DefaultSelector() as selector, contextlib.suppress(BrokenPipeError):
        selector.register(sender, selectors.EVENT_WRITE)
        for chunk in stream:
            rest = memoryview(chunk)
            while rest:
                if not selector.select(max(0.0, until - time.monotonic())):
                    return False
                rest = rest[os.write(sender, rest[:_CHUNK]) :]
    return True


def _receive(receiver: int, until: float) -> bytes:
    """Return what the process reports before it ends; nothing if it is late."""
    report = b""
    with selectors.DefaultSelector() as selector:
        selector.register(receiver, selectors.EVENT_READ)
        while selector.select(max(0.0, until - time.monotonic())):
            part = os.read(receiver, _CHUNK)
            if not part:
                return report
            report += part
    return b""


def _extract_and_exit(source: int, report: int, folder: Path, owner: tuple[int, int]) -> NoReturn:
    """Become the user in the folder, extract the archive, report why that failed, and end this process."""
    try:
        keep_descriptors({source, report})
        _confine(folder, *owner)
        os.write(report, json.dumps(_problem(source)).encode())
    finally:
        os._exit(0)


def _confine(folder: Path, uid: int, gid: int) -> None:
    """Take from this process all rights but those of a user in a folder."""
    os.chroot(folder)
    os.chdir("/")
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    os.umask(0o077)
    # A module that is imported from now on would be the image's.
    sys.path.clear()
    sys.meta_path.clear()


def _problem(source: int) -> str:
    """Extract the archive from a descriptor to the root; return why it failed, empty if it did not."""
    try:
        root = os.open("/", _FOLDER)
        _Copy(_Input(source), root).run()
    except _TooLargeError:
        return _TOO_LARGE
    except OSError as error:
        return error.strerror or str(error)
    except (tarfile.TarError, ValueError, OverflowError, EOFError) as error:
        # Part of a name may be in it; what is written to a pipe at once arrives as a whole.
        return one_line(error)[:200]
    return ""


class _TooLargeError(Exception):
    """There is more in the archive than is copied."""


class _Input(io.RawIOBase):
    """The archive, for :mod:`tarfile`: it may have ``allowed`` more bytes, and ``end`` are its last ones."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self.allowed, self.end = HEADER_BYTES, b""

    def read(self, size: int = _CHUNK) -> bytes:
        """Return as much as there is, ``size`` bytes at most; nothing at the end. Raises :class:`_TooLargeError`."""
        data = os.read(self._descriptor, min(size, _CHUNK))
        self.allowed -= len(data)
        if self.allowed < 0:
            raise _TooLargeError
        self.end = (self.end + data)[-len(_END) :]
        return data


class _Copy:
    """Extracts an archive to the folder ``root``, an open one."""

    def __init__(self, source: _Input, root: int) -> None:
        self._source, self._root = source, root
        self._top = ""
        self._files = self._bytes = 0
        self._left_out: set[tuple[bytes, ...]] = set()
        self._folders: list[tuple[tuple[bytes, ...], tarfile.TarInfo]] = []

    def run(self) -> None:
        """Extract everything. Raises :class:`_TooLargeError`, and what :mod:`tarfile` and the file system raise."""
        with tarfile.open(
            fileobj=self._source, mode="r|", encoding="utf-8", errors="surrogateescape", bufsize=_CHUNK
        ) as archive:
            for member in archive:
                path = self._path(member.name)
                if not path and not member.isdir():
                    raise ValueError("it is no folder")
                if path:
                    self._files += 1
                    if self._files > FILES:
                        raise _TooLargeError
                    self._take(archive, member, path)
        while self._source.read():
            pass
        if self._source.end != _END:
            raise EOFError("its archive was cut off")
        # At last, since nothing can be made in a folder that is read-only; those inside first.
        for path, member in reversed(self._folders):
            folder = self._open(path)
            try:
                _set_attributes(folder, member)
            finally:
                os.close(folder)

    def _path(self, name: str) -> tuple[bytes, ...]:
        """Return the path of an entry, without the first component, which all entries have. Raises ValueError."""
        top, *path = [part for part in name.split("/") if part not in ("", ".")] or [""]
        self._top = self._top or top
        if name.startswith("/") or not top or top != self._top or ".." in (top, *path):
            raise ValueError(f"{name!r} leads out of it")
        return tuple(part.encode("utf-8", "surrogateescape") for part in path)

    def _take(self, archive: tarfile.TarFile, member: tarfile.TarInfo, path: Sequence[bytes]) -> None:
        *above, name = path
        folder = self._open(above)
        try:
            if member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and member.sparse is None:
                self._take_file(archive, member, name, folder)
            elif member.isdir():
                os.mkdir(name, 0o700, dir_fd=folder)
                self._folders.append((tuple(path), member))
            elif member.issym():
                os.symlink(member.linkname.encode("utf-8", "surrogateescape"), name, dir_fd=folder)
            elif member.islnk():
                self._take_link(self._path(member.linkname), name, folder)
            else:
                self._left_out.add(tuple(path))
        finally:
            os.close(folder)

    def _take_file(self, archive: tarfile.TarFile, member: tarfile.TarInfo, name: bytes, folder: int) -> None:
        self._bytes += member.size
        if self._bytes > BYTES:
            raise _TooLargeError
        self._source.allowed += member.size
        content = archive.extractfile(member)
        file = os.open(name, _NEW_FILE, 0o600, dir_fd=folder)
        try:
            rest = member.size
            while content and rest > 0:
                data = content.read(min(rest, _CHUNK))
                if not data:
                    raise EOFError("its archive was cut off")
                rest -= len(data)
                while data:
                    data = data[os.write(file, data) :]
            _set_attributes(file, member)
        finally:
            os.close(file)

    def _take_link(self, target: tuple[bytes, ...], name: bytes, folder: int) -> None:
        """Make another name of a file, unless that was left out."""
        if target in self._left_out or not target:
            return
        there = self._open(target[:-1])
        try:
            os.link(target[-1], name, src_dir_fd=there, dst_dir_fd=folder, follow_symlinks=False)
        finally:
            os.close(there)

    def _open(self, path: Sequence[bytes]) -> int:
        """Open a folder, component by component, without following a link."""
        folder = os.dup(self._root)
        for name in path:
            outer = folder
            try:
                folder = os.open(name, _FOLDER, dir_fd=outer)
            finally:
                os.close(outer)
        return folder


def _set_attributes(descriptor: int, member: tarfile.TarInfo) -> None:
    """Set the time and the permissions of a file or folder, without those that give rights."""
    moment = min(max(0, int(member.mtime)), _LATEST)
    os.utime(descriptor, (moment, moment))
    os.fchmod(descriptor, member.mode & 0o777)
