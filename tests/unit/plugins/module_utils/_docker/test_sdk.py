"""Tests for the deferred import of the Docker SDK."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker.sdk import SdkUnavailableError, docker
from ansible_collections.backendai.cluster.plugins.module_utils._model.errors import ClusterError, reason
from tests.unit.builders import REPOSITORY

RESTORE = "ansible_collections.backendai.cluster.plugins.module_utils._session.reconcile"


def test_reconciliation_does_not_import_the_sdk() -> None:
    program = f"import sys; sys.path.insert(0, '.venv/collections'); import {RESTORE}; print('docker' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    assert run.stdout == "False\n"


def test_missing_sdk_raises_at_its_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)
    with pytest.raises(SdkUnavailableError, match="the Docker SDK for Python cannot be imported by"):
        docker.APIClient()
    monkeypatch.undo()
    assert issubclass(docker.errors.NotFound, docker.errors.APIError)


def test_what_python_asks_a_module_for_is_no_part_of_the_sdk() -> None:
    assert not hasattr(docker, "__wrapped__")


def test_what_handles_an_error_of_a_missing_sdk_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)

    def read(error: Exception) -> str:
        try:
            raise error
        except docker.errors.NotFound:
            return "nothing is there"

    with pytest.raises(ClusterError, match="the SDK does not work"):
        read(ClusterError("the SDK does not work"))
    failed = docker.errors.APIError("the engine has failed", explanation="no space left")
    with pytest.raises(OSError, match="the engine has failed"):
        read(failed)
    assert reason(failed) == "no space left"
    assert read(docker.errors.NotFound("gone")) == "nothing is there"
