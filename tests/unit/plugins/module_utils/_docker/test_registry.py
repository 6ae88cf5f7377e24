"""Whether a login may read an image, asked of a server that plays the engine's API."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import Any
from urllib.parse import unquote

import docker
import pytest
from docker.credentials import StoreError

from ansible_collections.backendai.cluster.plugins.module_utils._docker.registry import (
    RegistryError,
    agent_login,
    may_read,
)

NAME = "registry.test:5000/team/private:1"
READER = {"username": "reader", "password": "hunter2"}
DIGEST = {"Descriptor": {"digest": "sha256:1"}}


class Engine(ThreadingMixIn, UnixStreamServer):
    """Gives every question the same ``status`` and ``content``, after ``seconds``, and notes it with its login."""

    daemon_threads, block_on_close = True, False

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), Handler)
        self.path = path
        self.status, self.content, self.seconds = 200, json.dumps(DIGEST), 0.0
        self.asked: list[tuple[str, Any]] = []


class Handler(BaseHTTPRequestHandler):
    """The endpoint ``/distribution/NAME/json``."""

    server: Engine

    def do_GET(self) -> None:
        login = self.headers["X-Registry-Auth"]
        self.server.asked.append((unquote(self.path), login and json.loads(base64.urlsafe_b64decode(login))))
        time.sleep(self.server.seconds)
        self.send_response(self.server.status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(self.server.content.encode())

    def log_message(self, *_said: object) -> None:
        """Suppress the log."""


@pytest.fixture
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Return an engine of which every registry lets everybody read everything."""
    # The name of a socket has to be short.
    with Engine(tmp_path_factory.mktemp("e") / "socket") as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.05,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def client(engine: Engine) -> docker.APIClient:
    """Return a client of the engine."""
    return docker.APIClient(f"unix://{engine.path}", version="1.41", timeout=60)


@pytest.fixture
def docker_config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return the file of ``docker login``, with a login to Docker Hub."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"auths": {"https://index.docker.io/v1/": {"auth": "cm9vdDpzZWNyZXQ="}}}))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    return path


# ---- questions


@pytest.mark.usefixtures("docker_config")
@pytest.mark.parametrize("login", [READER, {}], ids=["login", "nobody"])
@pytest.mark.parametrize("name", [NAME, "registry.test/private@sha256:1", "docker.io/library/python:3"])
def test_engine_asks_with_exactly_this_login(
    engine: Engine, client: docker.APIClient, name: str, login: dict[str, Any]
) -> None:
    assert may_read(client, name, login, 60)
    assert engine.asked == [(f"/v1.41/distribution/{name}/json", login)]
    assert client.timeout == 60


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (401, "unauthorized: authentication required"),
        (403, "denied: requested access to the resource is denied"),
        (404, "manifest unknown: manifest unknown"),
        (500, 'Head "http://registry.test:5000/v2/team/private/manifests/1": no basic auth credentials'),
        (500, 'Head "http://registry.test:5000/v2/team/private/manifests/1": unauthorized: incorrect password'),
        (500, "error parsing HTTP 403 response body: Denied: no"),
    ],
)
def test_refusal(engine: Engine, client: docker.APIClient, status: int, message: str) -> None:
    engine.status, engine.content = status, json.dumps({"message": message})
    assert not may_read(client, NAME, READER, 60)
    assert client.timeout == 60


# ---- no answer


@pytest.mark.parametrize(
    ("status", "message", "problem"),
    [
        (
            500,
            "Get https://registry.test: x509: unknown authority",
            "Get https://registry.test: x509: unknown authority",
        ),
        (500, "Get https://test/v2/denied: connection refused", "Get https://test/v2/denied: connection refused"),
        (429, "toomanyrequests: rate limit", "toomanyrequests: rate limit"),
        (503, "down\n\x1b[31m\u202e now", r"down \x1b[31m\u202e now"),
        (500, "x" * 300, "x" * 200),
    ],
    ids=["certificate", "name", "limit", "text for a terminal", "long"],
)
def test_error_is_no_answer(engine: Engine, client: docker.APIClient, status: int, message: str, problem: str) -> None:
    engine.status, engine.content = status, json.dumps({"message": message})
    with pytest.raises(RegistryError) as error:
        may_read(client, NAME, READER, 60)
    assert str(error.value) == f"cannot be asked ({problem})"


@pytest.mark.parametrize("content", ["{", ""])
def test_damaged_answer_is_no_permission(engine: Engine, client: docker.APIClient, content: str) -> None:
    engine.content = content
    with pytest.raises(RegistryError, match=r"^does not answer \("):
        may_read(client, NAME, READER, 60)


@pytest.mark.parametrize("seconds", [0.5, 0, -3])
def test_slow_answer_has_a_time_limit(engine: Engine, client: docker.APIClient, seconds: float) -> None:
    engine.seconds = 5
    with pytest.raises(RegistryError, match=r"^does not answer in time$"):
        may_read(client, NAME, READER, seconds)
    assert client.timeout == 60


def test_engine_that_is_gone_is_no_answer(tmp_path: Path) -> None:
    client = docker.APIClient(f"unix://{tmp_path}/none", version="1.41")
    with pytest.raises(RegistryError, match=r"^does not answer \("):
        may_read(client, NAME, READER, 60)


# ---- the docker login of the agent


@pytest.mark.parametrize("registry", ["registry.test:5000", "docker.io"])
def test_agent_login_is_that_of_the_sdk(docker_config: Path, registry: str) -> None:
    auths = {"registry.test:5000": {"identitytoken": "secret"}, **json.loads(docker_config.read_text())["auths"]}
    docker_config.write_text(json.dumps({"auths": auths}))
    login = {key: value for key, value in agent_login(registry).items() if value and key != "serveraddress"}
    assert (
        login
        == {
            "registry.test:5000": {"IdentityToken": "secret"},
            "docker.io": {"username": "root", "password": "secret"},
        }[registry]
    )


@pytest.mark.usefixtures("docker_config")
@pytest.mark.parametrize("registry", ["registry.test:5000", "LOCALHOST"])
def test_agent_without_a_login_to_a_registry_is_nobody(registry: str) -> None:
    assert agent_login(registry) == {}


@pytest.mark.filterwarnings("ignore:docker-credential-missing")
@pytest.mark.parametrize(
    "config",
    [
        {"auths": {"registry.test": 1}},
        {"auths": ["registry.test"]},
        {"auths": {"x": {"auth": ""}}},
        {"auths": {"x": {"auth": "?"}}},
        {"credsStore": "missing"},
    ],
)
def test_unreadable_agent_login_is_no_answer(docker_config: Path, config: dict[str, Any]) -> None:
    docker_config.write_text(json.dumps(config))
    with pytest.raises(
        RegistryError, match=r"^cannot be asked, because the docker login of this host cannot be read \("
    ):
        agent_login("registry.test")


def test_missing_credential_helper_is_no_answer_in_older_versions_of_the_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_what: object) -> None:
        raise StoreError("docker-credential-missing not installed or not available in PATH")

    monkeypatch.setattr(docker.auth, "resolve_authconfig", fail)
    with pytest.raises(RegistryError, match=r"^cannot be asked, because"):
        agent_login("registry.test")
