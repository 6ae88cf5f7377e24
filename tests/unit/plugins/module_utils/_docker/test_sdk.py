"""Tests for the deferred import of the Docker SDK."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker.sdk import docker
from tests.unit.builders import REPOSITORY

RESTORE = "ansible_collections.backendai.cluster.plugins.module_utils._session.reconcile"


def test_reconciliation_does_not_import_the_sdk() -> None:
    program = f"import sys; sys.path.insert(0, '.venv/collections'); import {RESTORE}; print('docker' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    assert run.stdout == "False\n"


def test_missing_sdk_raises_at_its_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)
    with pytest.raises(ImportError):
        issubclass(docker.errors.NotFound, docker.errors.APIError)
    monkeypatch.undo()
    assert issubclass(docker.errors.NotFound, docker.errors.APIError)
