"""Fixtures of the tests of the command of a manager."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.roles.manager.manager_host import ManagerHost


@pytest.fixture
def host(tmp_path: Path) -> Iterator[ManagerHost]:
    """A manager; the signal handlers of this process stay as they were."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield ManagerHost(tmp_path / "manager")
    for number, handler in handlers.items():
        signal.signal(number, handler)
