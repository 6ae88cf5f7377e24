"""A host with a small program, and a connection to it."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.plugin_utils import host_program, host_request
from tests.unit.connection import Way
from tests.unit.program import archive_of


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the home of programs on this machine, for a program that returns its request."""
    archive = archive_of()
    monkeypatch.setattr(host_program, "archive", lambda: archive)
    monkeypatch.setattr(host_program, "program_digest", lambda: hashlib.sha256(archive).hexdigest())
    monkeypatch.setattr(host_request, "HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ANSIBLE_PYTHON_INTERPRETER", sys.executable)
    return tmp_path / "home"


@pytest.fixture
def way(home: Path) -> Way:
    """Return a connection to this machine."""
    return Way(home.parent)
