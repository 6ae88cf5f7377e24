"""Fixtures of a host with its own program folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.agent import engine
from tests.unit.program import Host

__all__ = ("engine", "host")


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """Return a host without a program."""
    (tmp_path / "cwd").mkdir()
    return Host(tmp_path / "lib" / "backendai", tmp_path / "cwd")
