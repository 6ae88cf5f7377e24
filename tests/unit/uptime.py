"""Fake uptime and boot id of a host."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host import deadline, processes


class Uptime:
    """``up`` is the uptime of the host in seconds, ``boot`` its boot id."""

    def __init__(self, boot_id: Path) -> None:
        self._boot_id = boot_id
        self.reboot(up=1000.0)

    def reboot(self, up: float) -> None:
        """Reboot, and set the uptime."""
        self.up, self.boot = up, str(uuid.uuid4())
        self._boot_id.write_text(f"{self.boot}\n")

    def read(self, clock: int) -> float:
        assert clock == time.CLOCK_BOOTTIME, "other clocks can be set, or stand still while the host sleeps"
        return self.up


@contextmanager
def uptime_of_numbers(folder: Path) -> Iterator[Uptime]:
    """Return the uptime of the host, which tests control; the boot id is in a file of the folder."""
    uptime = Uptime(folder / "boot_id")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "BOOT_ID", folder / "boot_id")
        patch.setattr(deadline.time, "clock_gettime", uptime.read)
        yield uptime
