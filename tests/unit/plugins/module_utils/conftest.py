"""What tests of several host packages share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.nvidia_smi import NvidiaSmi


@pytest.fixture
def driver(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> NvidiaSmi:
    """Return a stand-in for nvidia-smi that is found first, and names no process."""
    folder: Path = tmp_path_factory.mktemp("driver")
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    program = NvidiaSmi(folder)
    program.says(":")
    return program
