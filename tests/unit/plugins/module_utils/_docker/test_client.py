"""Tests for the connection to the engine and its errors."""

from __future__ import annotations

import sys
from pathlib import Path

import docker
import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker.client import DockerUnavailableError, connect


@pytest.mark.parametrize(
    ("interpreter", "remedy"),
    [
        (
            "/usr/bin/python3",
            "install python3-docker, or run backendai.cluster.provision_agents on this host.",
        ),
        (
            "/opt/site/bin/python",
            (
                "set ansible_python_interpreter to /usr/bin/python3, which python3-docker is for, or install the"
                " package docker for /opt/site/bin/python."
            ),
        ),
    ],
)
def test_missing_sdk_error_names_the_interpreter_and_what_helps(
    interpreter: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)
    monkeypatch.setattr(sys, "executable", interpreter)
    with pytest.raises(DockerUnavailableError) as raised:
        connect("unix:///run/docker.sock")
    assert str(raised.value) == (
        f"the Docker SDK for Python cannot be imported by {interpreter} (import of docker halted; None in"
        f" sys.modules), so the engine at unix:///run/docker.sock cannot be used: {remedy}"
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
