"""Tests for the connection to the engine and its errors."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest
import requests

from ansible_collections.backendai.cluster.plugins.module_utils._docker.client import DockerUnavailableError, connect
from ansible_collections.backendai.cluster.plugins.module_utils._docker.container import create_container
from tests.unit.engine_server import EngineServer
from tests.unit.plugins.module_utils._docker.test_containers import MAIN


@pytest.fixture
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineServer]:
    # The name of a socket has to be short.
    with EngineServer(tmp_path_factory.mktemp("e") / "socket").serving() as engine:
        yield engine


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
        "the Docker engine at unix:///run/docker.sock cannot be used: the Docker SDK for Python cannot be imported by"
        f" {interpreter} (import of docker halted; None in sys.modules): {remedy}"
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


def test_an_sdk_that_does_not_work_with_its_libraries_is_said_with_their_versions_and_places(
    engine: EngineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_settings: object) -> None:
        raise docker.errors.DockerException("Not supported URL scheme http+docker")

    monkeypatch.setattr(docker, "APIClient", fail)
    client: Any = connect(engine.url)
    with pytest.raises(DockerUnavailableError) as raised:
        client.volumes()
    place = Path(requests.__file__).parent.parent
    message = str(raised.value)
    assert message.startswith(
        f"the Docker engine at {engine.url} cannot be used: the Docker SDK for Python does not work with the libraries"
    )
    assert "(Not supported URL scheme http+docker); there are " in message
    assert f"requests {requests.__version__} in {place}, urllib3 " in message
    assert "remove what pip has installed" in message


def test_an_sdk_that_cannot_be_imported_with_its_libraries_is_not_called_missing(
    engine: EngineServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker/__init__.py").write_text("raise ImportError('no DEFAULT_CIPHERS in urllib3')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "docker")
    client: Any = connect(engine.url)
    with pytest.raises(
        DockerUnavailableError, match=rf"\(no DEFAULT_CIPHERS in urllib3\).* docker \S+ in {tmp_path}, "
    ):
        client.volumes()


PROXIES = {"default": {"httpProxy": "http://192.0.2.1:3128", "noProxy": "localhost"}}


@pytest.mark.parametrize("place", ["HOME", "DOCKER_CONFIG"])
@pytest.mark.parametrize(
    "config",
    [
        {"auths": {"https://index.docker.io/v1/": {"auth": "dckr_pat_aBcDeFgHiJkLmNoPqRsTuVwXyZ0"}}},
        {"auths": {"x": {"auth": ""}}},
        [],
        {"HttpHeaders": {"X-Number": 1}},
        {"proxies": PROXIES},
    ],
    ids=["token as login", "empty login", "list", "header that is a number", "proxies"],
)
def test_nothing_of_roots_configuration_of_docker_reaches_a_session(
    engine: EngineServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, config: object, place: str
) -> None:
    folder = tmp_path / ".docker" if place == "HOME" else tmp_path
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    monkeypatch.setenv(place, str(tmp_path))
    before = dict(os.environ)
    create_container(connect(engine.url), dataclasses.replace(MAIN, network=None, address=None, mac=None))
    (created,) = engine.created
    assert sorted(created["Env"]) == ["BACKENDAI_CLUSTER_SIZE=1", "PATH=/bin", "TOKEN=hunter2"]
    assert dict(os.environ) == before
