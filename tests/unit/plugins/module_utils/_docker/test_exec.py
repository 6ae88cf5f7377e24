"""Commands in containers, with an engine on a real socket: no output holds the caller up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker import exec as exec_module
from ansible_collections.backendai.cluster.plugins.module_utils._docker.client import connect
from ansible_collections.backendai.cluster.plugins.module_utils._docker.exec import ExecLimitError, run_as_work
from tests.unit.engine_server import EngineServer, never_stops, says, says_and_hangs

LIMIT = [exec_module.BUSYBOX, "timeout", "-s", "KILL"]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineServer]:
    monkeypatch.setattr(exec_module, "KILL_SECONDS", 0)
    with EngineServer(tmp_path / "docker.sock").serving() as serving:
        yield serving


@pytest.fixture
def client(server: EngineServer) -> Any:
    return connect(server.url, timeout=600)


def failure(client: Any, seconds: int = 1) -> ExecLimitError:
    began = time.monotonic()
    with pytest.raises(ExecLimitError) as failed:
        run_as_work(client, "c", ["hostname"], seconds)
    assert time.monotonic() - began < seconds + 60
    return failed.value


def test_output_is_returned_and_the_command_is_limited_by_the_kit(server: EngineServer, client: Any) -> None:
    server.prints = says("main1 caf\u00e9\n".encode() + b"\xff")
    assert run_as_work(client, "c", ["hostname", "-f"], 70) == "main1 caf\u00e9\n\ufffd"
    assert server.commands == [[*LIMIT, "70", "hostname", "-f"]]


def test_standard_error_is_no_answer(server: EngineServer, client: Any) -> None:
    def print_both(send: Any, _over: Any) -> None:
        send(b"bash: warning: cannot change locale\n", 2)
        send(b"ma")
        send(b"ERROR: ld.so: ignored.\n", 2)
        send(b"in1\n")

    server.prints = print_both
    assert run_as_work(client, "c", ["hostname"], 60) == "main1\n"


def test_control_characters_of_a_container_are_escaped(server: EngineServer, client: Any) -> None:
    server.prints = says(b"\x1b]0;owned\x07\x1b[2Jmain1\r\n\tnext\xc2\x9b31m\xe2\x80\xae")
    assert run_as_work(client, "c", ["x"], 60) == ("\\x1b]0;owned\\x07\\x1b[2Jmain1\\r\n\tnext\\x9b31m\\u202e")


def test_output_of_a_silent_command_that_never_ends_is_awaited_for_a_limited_time(
    server: EngineServer, client: Any
) -> None:
    server.prints = says_and_hangs(b"main1 main1\n")
    error = failure(client)
    assert str(error) == "a command in c did not end within 1 seconds"
    assert error.output == "main1 main1\n"


def test_endless_output_is_read_up_to_a_limit(
    server: EngineServer, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exec_module, "OUTPUT_BYTES", 100_000)
    server.prints = never_stops
    error = failure(client, seconds=20)
    assert str(error) == "a command in c printed more than 100000 bytes"
    assert 90_000 < len(error.output) < 300_000
    assert server.disconnected.wait(60)


def test_slow_endless_output_is_read_for_a_limited_time(server: EngineServer, client: Any) -> None:
    def drip(send: Any, over: Any) -> None:
        while not over.wait(0.05):
            send(b".")

    server.prints = drip
    assert str(failure(client)) == "a command in c did not end within 1 seconds"
    assert server.disconnected.wait(60)


def test_engine_is_usable_after_an_abandoned_command(server: EngineServer, client: Any) -> None:
    server.prints = says_and_hangs(b"")
    failure(client)
    server.prints = says(b"well")
    assert run_as_work(client, "c", ["x"], 60) == "well"
    assert client.inspect_container("c")["Id"] == "c"
