# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Manage whole files: compare them with their desired content, and write it."""

from __future__ import annotations

import dataclasses
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from .._model.change import Change
from .._model.files import write_atomically

# Larger files are not read, unless as much is desired: a container of an earlier release can write its hosts file.
READ_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True)
class DesiredFile:
    """A file and its content, ``None`` if it must be absent. ``secret`` excludes the content from diffs."""

    path: Path
    content: str | None
    mode: int = 0o600
    secret: bool = False


def plan_files(files: Iterable[DesiredFile]) -> list[tuple[DesiredFile, Change]]:
    """Return the files that differ from the desired ones in content or mode, with their changes.

    Bytes that are not UTF-8 are escaped, and only the size of a file is shown that is larger than :data:`READ_BYTES`
    and than desired.
    """
    drifted = []
    for file in files:
        try:
            before, mode = _read_limited(file), stat.S_IMODE(file.path.stat().st_mode)
        except FileNotFoundError:
            before, mode = None, file.mode
        if before != file.content:
            drifted.append((file, Change(f"file {file.path}", *_diff_contents(before, file.content, file.secret))))
        elif before is not None and mode != file.mode:
            drifted.append((file, Change(f"file {file.path}", f"mode {mode:04o}", f"mode {file.mode:04o}")))
    return drifted


def _read_limited(file: DesiredFile) -> str:
    """Return the content of an existing file, or only its size if that is too large."""
    with open(file.path, "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        if size > max(READ_BYTES, len((file.content or "").encode())):
            return f"({size} bytes)"
        return stream.read(size).decode(errors="backslashreplace")


def write_files(files: Iterable[DesiredFile], *, atomically: bool = False) -> None:
    """Write or remove files: in place, or with ``atomically`` by replacement.

    In-place writes are visible through bind mounts of single files, which follow the inode, not the name.
    """
    for file in files:
        if file.content is None:
            file.path.unlink()
            continue
        file.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if atomically:
            write_atomically(file.path, file.content, file.mode)
        else:
            _overwrite(file.path, file.content, file.mode)


def _overwrite(path: Path, content: str, mode: int) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w") as stream:
        # The mode of a new file is reduced by the umask, and an existing file keeps its mode.
        os.fchmod(stream.fileno(), mode)
        stream.write(content)


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
