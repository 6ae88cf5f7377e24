"""Tests for the connection to the engine and its errors."""

from __future__ import annotations

import sys
from pathlib import Path

import docker
import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker.client import DockerUnavailableError, connect


def test_missing_sdk_error_contains_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)
    with pytest.raises(DockerUnavailableError) as raised:
        connect("unix:///run/docker.sock")
    assert str(raised.value) == (
        "the Docker SDK for Python cannot be imported (import of docker halted; None in sys.modules), so the engine at"
        " unix:///run/docker.sock cannot be used: install python3-docker, or run backendai.cluster.provision_agents on"
        " this host."
    )


def test_unreachable_engine_error_contains_its_address(tmp_path: Path) -> None:
    address = f"unix://{tmp_path}/docker.sock"
    with pytest.raises(DockerUnavailableError) as raised:
        connect(address, timeout=1)
    message = str(raised.value)
    assert message.startswith(
        f"the Docker engine at {address} does not answer the Docker SDK for Python {docker.__version__} ("
    )
    assert message.endswith("): start docker on this host, or run backendai.cluster.provision_agents on this host.")


def test_invalid_engine_address_is_reported_like_an_unreachable_one() -> None:
    with pytest.raises(DockerUnavailableError, match=r"^the Docker engine at nonsense://x does not answer"):
        connect("nonsense://x")
