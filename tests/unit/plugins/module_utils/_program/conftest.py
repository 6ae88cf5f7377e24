"""A host whose programs are in a folder of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.program import Host


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """Return a host that has no program."""
    (tmp_path / "cwd").mkdir()
    return Host(tmp_path / "lib" / "backendai", tmp_path / "cwd")
