# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A private folder for each run, in memory: requests, reports and what ansible-runner keeps may hold secrets."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "run-"


@contextlib.contextmanager
def run_folder(runtime: Path) -> Iterator[Path]:
    """Make a folder that only the account can read, and remove it, and those of processes that were killed."""
    with _exclusively(runtime):
        _remove_stale(runtime)
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=runtime))
        handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


@contextlib.contextmanager
def _exclusively(runtime: Path) -> Iterator[None]:
    """Hold a lock while folders appear, so that none is seen before it is locked."""
    with (runtime / "folders.lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _remove_stale(runtime: Path) -> None:
    for folder in runtime.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(handle)
