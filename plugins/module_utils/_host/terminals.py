# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writes to the terminals of a container, as wall(1) does."""

from __future__ import annotations

import contextlib
import os
import stat

from .processes import PROC

# The major numbers of pseudo terminals.
_PTY_MAJORS = range(136, 144)


def write_to_terminals(pid: int, text: str) -> int:
    """Write a line to all terminals of the container of a process; return how many took it.

    Nothing is followed that is not a terminal: the container's root may have put anything there. A terminal that is
    stopped is left out.
    """
    written = 0
    with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
        root = os.open(PROC / str(pid) / "root", os.O_PATH | os.O_DIRECTORY)
        stack.callback(os.close, root)
        for name in ("dev", "pts"):
            root = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=root)
            stack.callback(os.close, root)
        for name in filter(str.isdigit, os.listdir(root)):
            with contextlib.suppress(OSError):
                written += _write(root, name, text)
    return written


def _write(folder: int, name: str, text: str) -> bool:
    # Opened without its driver first, because opening another device may have effects.
    kind = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if not stat.S_ISCHR(kind.st_mode) or os.major(kind.st_rdev) not in _PTY_MAJORS:
        return False
    terminal = os.open(name, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_NOFOLLOW, dir_fd=folder)
    try:
        return os.write(terminal, f"\r\n{text}\r\n".encode()) > 0
    finally:
        os.close(terminal)
