"""Reads, changes and commands by an engine on a real socket without the Docker SDK; with it the rest."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker.client import (
    PING_SECONDS,
    DockerUnavailableError,
    connect,
)
from ansible_collections.backendai.cluster.plugins.module_utils._docker.light_client import (
    EngineSilentError,
    LightClient,
)
from tests.unit.builders import REPOSITORY
from tests.unit.engine_server import EngineServer, says

PACKAGE = "ansible_collections.backendai.cluster.plugins.module_utils._docker"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EngineServer]:
    with EngineServer(tmp_path / "docker.sock").serving() as serving:
        yield serving


@pytest.fixture
def sdk(server: EngineServer) -> Any:
    return docker.APIClient(server.url, version="auto")


@pytest.fixture
def client(server: EngineServer) -> Any:
    return connect(server.url)


READS: list[tuple[str, tuple[str, ...], dict[str, Any]]] = [
    ("info", (), {}),
    ("version", (), {}),
    ("nodes", (), {}),
    ("inspect_container", ("c",), {}),
    ("inspect_image", ("registry.example:5000/lab/a b:1@sha256:0",), {}),
    ("networks", (), {}),
    ("networks", (), {"filters": {"label": ["a=b", "c"]}}),
    ("containers", (), {"all": True, "filters": {"label": ["a=b"]}}),
]


@pytest.mark.parametrize(("name", "names", "parameters"), READS, ids=[name for name, *_rest in READS])
def test_reads_ask_for_what_the_sdk_asks(
    server: EngineServer, client: Any, sdk: Any, name: str, names: tuple[str, ...], parameters: dict[str, Any]
) -> None:
    server.asked.clear()
    assert getattr(client, name)(*names, **parameters) == getattr(sdk, name)(*names, **parameters)
    (ours, own), (theirs, others) = server.asked
    assert ours == theirs
    assert own.get("filters", "{}") == others.get("filters", "{}")
    assert own.keys() <= others.keys()


CHANGES: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("start", ("c",), {}),
    ("kill", ("c",), {"signal": "SIGPWR"}),
    ("remove_container", ("c",), {"force": True, "v": True}),
    ("remove_network", ("n",), {}),
    ("connect_container_to_network", ("c", "n"), {}),
    ("create_network", ("n",), {"driver": "bridge", "internal": True, "check_duplicate": None, "options": {"a": "b"}}),
    ("create_container_from_config", ({"Image": "i", "HostConfig": {"Memory": 1}}, "c"), {}),
]


@pytest.mark.parametrize(("name", "values", "settings"), CHANGES, ids=[name for name, *_rest in CHANGES])
def test_changes_are_made_without_the_sdk_as_it_would(
    server: EngineServer, sdk: Any, name: str, values: tuple[Any, ...], settings: dict[str, Any]
) -> None:
    def refuse() -> Any:
        raise AssertionError(f"{name} asks the SDK")

    light: Any = LightClient(server.url.removeprefix("unix://"), "1.41", refuse, 5)
    server.looks["c"] = {}
    getattr(light, name)(*values, **settings)
    ours, server.changed, created, server.created = server.changed, [], server.created, []
    server.looks["c"] = {}
    with contextlib.suppress(docker.errors.NotFound, ValueError):
        getattr(sdk, name)(*values, **settings)
    assert [_without_defaults(request) for request in ours] == [_without_defaults(each) for each in server.changed]
    assert created == server.created
    assert len(ours) + len(created) == 1


def _without_defaults(request: str) -> tuple[str, set[str], dict[str, Any]]:
    """Return a request's method and path, its parameters, and its fields without those that say nothing."""
    method, target, *body = request.split(" ", 2)
    path, _mark, query = target.partition("?")
    fields = json.loads(body[0]) if body and body[0] else {}
    said = {key: value for key, value in fields.items() if value not in (None, {}, {"IPAMConfig": {}})}
    given = {key: value.lower() for key, value in urllib.parse.parse_qsl(query)}
    return f"{method} {path}", {f"{key}={value}" for key, value in given.items() if value != "false"}, said


@pytest.mark.parametrize(("name", "values", "settings"), CHANGES, ids=[name for name, *_rest in CHANGES])
def test_a_change_that_the_engine_does_not_answer_is_asked_for_once(
    server: EngineServer, name: str, values: tuple[Any, ...], settings: dict[str, Any]
) -> None:
    client: Any = connect(server.url, timeout=1)
    server.silent = {"POST", "DELETE"}
    with pytest.raises(EngineSilentError, match=r"within 1 seconds: restart it on this host"):
        getattr(client, name)(*values, **settings)


def test_errors_of_changes_are_those_of_the_sdk(server: EngineServer, client: Any) -> None:
    server.refuses = "invalid mount config"
    with pytest.raises(docker.errors.APIError, match="invalid mount config"):
        client.create_container_from_config({"Image": "i"}, "c")
    with pytest.raises(docker.errors.NotFound, match="no gone"):
        client.start("gone")
    with pytest.raises(docker.errors.NotFound, match="No such container"):
        client.remove_container("gone", force=True, v=True)


def test_a_change_that_the_engine_has_failed_at_is_not_asked_for_again(server: EngineServer, client: Any) -> None:
    with pytest.raises(docker.errors.APIError) as raised:
        client.start("broken")
    assert (raised.value.explanation, len(server.changed)) == ("no broken", 1)


def test_program_that_reads_runs_commands_and_ends_containers_does_not_import_the_sdk(server: EngineServer) -> None:
    server.prints = says(b"main1")
    program = (
        f"import sys; sys.path.insert(0, '.venv/collections'); from {PACKAGE}.client import connect;"
        f" from {PACKAGE}.exec import run_as_work; from {PACKAGE}.logs import tail_of;"
        f" from {PACKAGE}.stop import _signal; client = connect({server.url!r}); client.info();"
        " _signal(client, 'c', 'SIGKILL'); print(*tail_of(client, 'c', 9));"
        " print(run_as_work(client, 'c', ['hostname'], 60), 'docker' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    assert run.stdout == "main1\nmain1 False\n"
    assert [request.split(" ")[1].rpartition("/")[2] for request in server.changed] == ["kill?signal=SIGKILL"]


_REFUSALS = f"""
import sys
sys.path.insert(0, ".venv/collections")
from {PACKAGE}.client import connect
from {PACKAGE}.sdk import docker
from ansible_collections.backendai.cluster.plugins.module_utils._model.errors import sentence

client = connect(sys.argv[1])
calls = [lambda: client.exec_create("gone", ["true"]), lambda: client.exec_start("gone", socket=True)]
calls += [lambda: client.inspect_container("gone"), lambda: client.start("broken"), lambda: client.exec_inspect("e")]
calls += [lambda: docker.utils]
for call in calls:
    try:
        call()
    except docker.errors.NotFound as error:
        print("absent", sentence(error))
    except docker.errors.APIError as error:
        print("failed", sentence(error))
    except Exception as error:
        print(type(error).__name__)
"""


@pytest.mark.parametrize("problem", ["ImportError('no DEFAULT_CIPHERS')", "AttributeError('no X509_V_FLAG')"])
def test_what_is_refused_without_the_sdk_is_told_from_its_absence(
    server: EngineServer, tmp_path: Path, problem: str
) -> None:
    (tmp_path / "requests.py").write_text(f"raise {problem}")
    run = subprocess.run(
        [sys.executable, "-c", _REFUSALS, server.url],
        capture_output=True,
        text=True,
        check=True,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert run.stdout.splitlines() == [
        "absent the Docker engine failed: no gone.",
        "absent the Docker engine failed: no gone.",
        "absent the Docker engine failed: no gone.",
        "failed the Docker engine failed: no broken.",
        "DockerUnavailableError",
        "SdkUnavailableError",
    ]


@pytest.mark.parametrize(("name", "error"), [("gone", docker.errors.NotFound), ("broken", docker.errors.APIError)])
def test_errors_are_those_of_the_sdk(client: Any, name: str, error: type[Exception]) -> None:
    with pytest.raises(error, match=f"no {name}"):
        client.inspect_container(name)


def test_answer_that_is_no_json_is_asked_again(server: EngineServer, client: Any) -> None:
    server.asked.clear()
    with pytest.raises(ValueError, match="Expecting value"):
        client.inspect_container("garbled")
    assert [path.rpartition("/v1.41")[2] for path, _query in server.asked] == [
        "/containers/garbled/json",
        "/_ping",
        "/containers/garbled/json",
    ]


@pytest.mark.parametrize(("name", "names", "parameters"), READS, ids=[name for name, *_rest in READS])
def test_an_engine_that_hangs_in_one_call_is_asked_once_and_answers_others(
    server: EngineServer, name: str, names: tuple[str, ...], parameters: dict[str, Any]
) -> None:
    client: Any = connect(server.url, timeout=1)
    getattr(client, name)(*names, **parameters)
    (path, _query) = server.asked[-1]
    server.silent = {f"GET {path}"}
    server.asked.clear()
    with pytest.raises(EngineSilentError) as raised:
        getattr(client, name)(*names, **parameters)
    assert str(raised.value) == (
        f"the Docker engine at {server.url} did not answer GET {path} within 1 seconds: restart it on this host"
        " (systemctl restart docker) if that stays so."
    )
    # The SDK would wait as long again.
    assert [asked for asked, _query in server.asked] == [path]
    assert client.inspect_container("other")["Id"] == "c"


@pytest.mark.parametrize("call", ["exec_create", "exec_start", "tag"])
def test_a_command_that_the_engine_does_not_start_is_given_up_at_the_limit(server: EngineServer, call: str) -> None:
    client: Any = connect(server.url, timeout=1)
    server.silent = {"POST"}
    calls = {"exec_create": ("c", ["true"]), "exec_start": ("e", True), "tag": ("a", "b")}
    with pytest.raises(EngineSilentError, match=r"did not answer POST /v1\.41/[a-z/]+ within 1 seconds: restart it"):
        getattr(client, call)(*calls[call])


def test_an_engine_that_hangs_altogether_is_given_up_at_the_limit(server: EngineServer) -> None:
    server.silent = {"GET /_ping"}
    with pytest.raises(DockerUnavailableError, match=r"did not answer GET /_ping within 1 seconds: restart it on this"):
        connect(server.url, timeout=1)
    assert [path for path, _query in server.asked] == ["/_ping"]


def test_an_engine_that_hangs_altogether_is_given_up_before_one_that_hangs_in_a_call(
    server: EngineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{PACKAGE}.client.PING_SECONDS", 1)
    server.silent = {"GET /_ping"}
    with pytest.raises(DockerUnavailableError, match=r"did not answer GET /_ping within 1 seconds"):
        connect(server.url, timeout=30)
    assert PING_SECONDS < 30
    server.silent = set()
    assert connect(server.url, timeout=30).timeout == 30


def test_errors_of_commands_are_those_of_the_sdk(client: Any) -> None:
    with pytest.raises(docker.errors.NotFound, match="no gone"):
        client.exec_create("gone", ["true"])
    with pytest.raises(docker.errors.NotFound, match="no gone"):
        client.exec_start("gone", socket=True)
    with pytest.raises(docker.errors.NotFound, match="no gone"):
        client.logs("gone", stream=True, stdout=True)


def test_a_log_that_is_refused_leaves_no_connection(tmp_path: Path) -> None:
    def sdk() -> Any:
        raise AssertionError("the SDK is asked")

    light: Any = LightClient(f"{tmp_path}/engine.sock", "1.41", sdk, 5)
    with socket.socket(socket.AF_UNIX) as engine:
        engine.bind(f"{tmp_path}/engine.sock")
        engine.listen()
        ends: list[bytes] = []

        def refuse() -> None:
            peer = engine.accept()[0]
            peer.settimeout(5)
            peer.sendall(b"HTTP/1.0 404 Not Found\r\nContent-Length: 2\r\n\r\n{}")
            peer.recv(1 << 16)
            ends.append(peer.recv(1))
            peer.close()

        refusing = threading.Thread(target=refuse)
        refusing.start()
        # The error, and with it what its frames hold, lives until the end of the test.
        with pytest.raises(docker.errors.NotFound) as raised:
            light.logs("c", stream=True)
        refusing.join()
    assert (ends, type(raised.value)) == ([b""], docker.errors.NotFound)


def test_logs_are_those_of_the_sdk(client: Any, sdk: Any, server: EngineServer) -> None:
    def two(send: Any, _over: object) -> None:
        send(b"one\n")
        send("zwei\u00fc".encode(), 2)

    server.prints = two
    asked = {"stdout": True, "stderr": True, "follow": False, "tail": 9, "timestamps": True, "since": 1.5}
    server.asked.clear()
    assert [*client.logs("c", stream=True, **asked)] == [*sdk.logs("c", stream=True, **asked)]
    (_path, ours), (_same, theirs), *_inspected = server.asked
    truth = {"true": "1", "false": "0"}
    assert {name: truth.get(value, value) for name, value in ours.items()} == theirs


def test_a_command_whose_start_the_engine_does_not_answer_is_not_started_again(tmp_path: Path) -> None:
    def refuse() -> Any:
        raise AssertionError("the SDK is asked")

    light: Any = LightClient(f"{tmp_path}/engine.sock", "1.41", refuse, 5)
    with socket.socket(socket.AF_UNIX) as engine:
        engine.bind(f"{tmp_path}/engine.sock")
        engine.listen()

        def hang_up() -> None:
            engine.accept()[0].close()

        hanging_up = threading.Thread(target=hang_up)
        hanging_up.start()
        with pytest.raises(OSError, match=r"closed the connection without|reset|Broken pipe"):
            light.exec_start("e", socket=True)
        hanging_up.join()


def test_everything_else_is_the_sdks(client: Any) -> None:
    assert isinstance(client, LightClient)
    assert client.exec_inspect("e")["Id"] == "c"
    client.timeout = 7.5
    assert (client.timeout, client.exec_inspect.__self__.timeout) == (7.5, 7.5)


def test_engine_that_has_ended_is_given_up(client: Any, server: EngineServer) -> None:
    Path(server.url.removeprefix("unix://")).unlink()
    with pytest.raises(DockerUnavailableError, match="does not answer the Docker SDK"):
        client.info()


def test_engine_over_tcp_is_the_sdks() -> None:
    with pytest.raises(DockerUnavailableError, match=r"^the Docker engine at tcp://127.0.0.1:1 does not answer"):
        connect("tcp://127.0.0.1:1", timeout=1)
