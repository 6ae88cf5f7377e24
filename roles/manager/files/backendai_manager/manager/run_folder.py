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
import time
from collections.abc import Iterator
from pathlib import Path

NEW, PREFIX = "new-", "run-"
NEW_SECONDS = 60.0
"""How old a folder is that was never locked, because its process was killed."""


@contextlib.contextmanager
def run_folder(runtime: Path) -> Iterator[Path]:
    """Make a folder that only the account can read, and remove it, and those of processes that were killed."""
    _remove_stale(runtime)
    new = Path(tempfile.mkdtemp(prefix=NEW, dir=runtime))
    handle = os.open(new, os.O_RDONLY | os.O_CLOEXEC)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    # Others look at it once it is locked. A lock for all runs could be held for ever: users may stop their requests.
    folder = new.rename(runtime / f"{PREFIX}{new.name.removeprefix(NEW)}")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _remove_stale(runtime: Path) -> None:
    for folder in runtime.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(handle)
    for folder in runtime.glob(f"{NEW}*"):
        with contextlib.suppress(OSError):
            if time.time() - folder.lstat().st_mtime > NEW_SECONDS:
                folder.rmdir()
