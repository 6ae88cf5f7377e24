# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Manage whole files: compare them with their desired content, and write it."""

from __future__ import annotations

import dataclasses
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

from .._model.change import Change
from .._model.files import write_atomically


@dataclasses.dataclass(frozen=True)
class DesiredFile:
    """A file and its content, ``None`` if it must be absent. ``secret`` excludes the content from diffs.

    A file that is mounted by itself is written ``in_place``: the mount follows the inode, not the name.
    """

    path: Path
    content: str | None
    mode: int = 0o600
    secret: bool = False
    in_place: bool = False


def plan_files(files: Iterable[DesiredFile]) -> list[tuple[DesiredFile, Change]]:
    """Return the files that differ from the desired ones in content or mode, with their changes.

    Bytes that are not UTF-8 are escaped.
    """
    drifted = []
    for file in files:
        try:
            content, mode = file.path.read_bytes(), stat.S_IMODE(file.path.stat().st_mode)
            before: str | None = content.decode(errors="backslashreplace")
        except FileNotFoundError:
            before, mode = None, file.mode
        if before != file.content:
            drifted.append((file, Change(f"file {file.path}", *_diff_contents(before, file.content, file.secret))))
        elif before is not None and mode != file.mode:
            drifted.append((file, Change(f"file {file.path}", f"mode {mode:04o}", f"mode {file.mode:04o}")))
    return drifted


def write_files(files: Iterable[DesiredFile], *, durable: bool = True) -> None:
    """Write or remove files. A write that fails, or is killed, leaves the old content or the new one.

    ``durable`` is as for :func:`write_atomically`.
    """
    for file in files:
        if file.content is None:
            file.path.unlink()
            continue
        file.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if file.in_place and file.path.exists():
            _overwrite(file.path, file.content.encode(), file.mode)
        else:
            write_atomically(file.path, file.content, file.mode, durable=durable)


def _overwrite(path: Path, content: bytes, mode: int) -> None:
    """Replace the content of a file of lines, but not the file. If there is no room, it keeps its content.

    It is one write, which the kernel does not interrupt within a page. A process that is killed right after it leaves
    empty lines at the end, where the old content was longer.
    """
    with tempfile.TemporaryFile(dir=path.parent) as room:
        room.write(content)
    descriptor = os.open(path, os.O_RDWR)
    try:
        before = path.read_bytes()
        try:
            _write_all(descriptor, content.ljust(len(before), b"\n"))
        except OSError:
            # Its blocks are still allocated.
            _write_all(descriptor, before)
            os.ftruncate(descriptor, len(before))
            raise
        os.ftruncate(descriptor, len(content))
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, content: bytes) -> None:
    """Write content at the beginning of a file. Raises :class:`OSError` if only a part of it can be written."""
    done = 0
    while done < len(content):
        done += os.pwrite(descriptor, content[done:], done)


def _diff_contents(before: str | None, after: str | None, secret: bool) -> tuple[str | None, str | None]:
    """Return both contents for a diff: only the lines that differ, directly below the file's name."""
    if secret:
        return (None if before is None else "(other content hidden)"), (None if after is None else "(content hidden)")
    if before is None or after is None:
        return _format_block(before.splitlines()) if before else before, _format_block(
            after.splitlines()
        ) if after else after
    old, new = before.splitlines(), after.splitlines()
    removed, added = [line for line in old if line not in new], [line for line in new if line not in old]
    return (
        (_format_block(removed), _format_block(added)) if removed or added else (_format_block(old), _format_block(new))
    )


def _format_block(lines: Iterable[str]) -> str:
    return "".join(f"\n  {line}" for line in lines) or "(nothing)"


def remove_path(path: Path) -> None:
    """Remove a file, a link, or a folder with all that is in it; it may be missing."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
