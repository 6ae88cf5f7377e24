# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Removes the folders of ended sessions, which may have any number of files at any depth, in a unit of its own.

The unit has the lowest priority. While less space is free than the agent's reserve, the removal has the usual one.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Sequence

from .homes import Homes
from .units import start_units

UNIT = "backendai-homes.service"

POLL_SECONDS = 1.0
"""The time between two looks at the free space."""

BATCH = 100


def start_removal() -> None:
    """Start the unit, if there is one, and do not wait for it; the timer of the agent tries again."""
    start_units([UNIT])


def lacks_space(homes: Homes, reserve: int) -> bool:
    """Return whether folders of ended sessions are to be removed while less than the reserve, in bytes, is free."""
    return homes.has_retired() and free_bytes(homes) < reserve


def free_bytes(homes: Homes) -> int:
    """Return the free space of the file system of homes. Raises :class:`OSError`."""
    status = os.statvfs(homes.root)
    return status.f_bavail * status.f_frsize


def remove_retired(homes: Homes, reserve: int) -> list[str]:
    """Remove the folders of ended sessions, also of those that end meanwhile; return a sentence for each that is left.

    Raises :class:`OSError`.
    """
    left: set[str] = set()
    while True:
        names = sorted({*os.listdir(homes.removed)} - left)[:BATCH]
        if not names:
            return [f"{homes.removed / name} cannot be removed: see why with rm -r on it" for name in sorted(left)]
        _remove(homes, names, reserve)
        left |= {name for name in names if os.path.lexists(homes.removed / name)}


def _remove(homes: Homes, names: Sequence[str], reserve: int) -> None:
    """Remove folders, follow no link, and leave other file systems alone."""
    # Python would open a file for each level.
    command = ["rm", "-rf", "--one-file-system", "--", *names]
    hurried = False
    with subprocess.Popen(command, cwd=homes.removed, stderr=subprocess.DEVNULL) as process:
        while True:
            if not hurried and free_bytes(homes) < reserve:
                _raise_priority(process.pid)
                hurried = True
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(POLL_SECONDS)
                return


def _raise_priority(pid: int) -> None:
    """Give a process the usual priority, if it has not ended."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, 0)
        subprocess.run(["ionice", "-c", "2", "-n", "4", "-p", str(pid)], check=False, capture_output=True)
