"""One command on a lab at a time."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab.command import LabError, report
from tests.lab.identity import Lab

PATIENCE = 600
LOCKS = Path("/proc/locks")


@contextmanager
def exclusive(lab: Lab, patience: float = PATIENCE) -> Iterator[None]:
    """Lock the checkout's folder, so that one command runs at a time without a lock file; wait for another one."""
    folder = os.open(lab.checkout, os.O_RDONLY)
    deadline = time.monotonic() + patience
    waiting = False
    try:
        while not _locked(folder):
            if not waiting:
                report(f"waiting for another command on this lab, {_holder(folder)}")
                waiting = True
            if time.monotonic() > deadline:
                raise LabError(f"another command on this lab, {_holder(folder)}, has not ended for {patience:.0f} s")
            time.sleep(min(1, patience))
        yield
    finally:
        os.close(folder)


def _locked(folder: int) -> bool:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(folder: int) -> str:
    """Name the process that has locked a folder, as the kernel lists it."""
    inode = os.fstat(folder).st_ino
    for line in LOCKS.read_text().splitlines():
        fields = line.split()
        # Without the device, whose number is another one on file systems such as btrfs.
        if fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == str(inode):
            return f"process {fields[4]} ({_command(fields[4])})"
    return "which has just ended"


def _command(pid: str) -> str:
    try:
        return " ".join(Path("/proc", pid, "cmdline").read_text().replace("\0", " ").split())
    except OSError:
        return "ended"
