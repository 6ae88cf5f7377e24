"""The recorder of requests passes them on to an engine on a real socket, and back, and writes them down."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from ansible_collections.backendai.cluster.plugins.module_utils._docker.client import connect
from ansible_collections.backendai.cluster.plugins.module_utils._docker.exec import run_as_work
from tests.hosts import recorder
from tests.integration.waiting import wait_until
from tests.unit.engine_api.calls import make_all_calls
from tests.unit.engine_api.derive import CALLS
from tests.unit.engine_api.engine import ApiEngine
from tests.unit.engine_api.judge import call_of, problems_of
from tests.unit.engine_server import EngineServer, says


def test_all_requests_are_recorded_and_answered(tmp_path: Path) -> None:
    socket, engine_socket, file = (tmp_path / name for name in ("recorder.sock", "docker.sock", "requests.json"))
    line = [sys.executable, str(recorder.__file__), str(socket), str(engine_socket), str(file)]
    with ApiEngine(engine_socket, "1.52").serving() as engine, subprocess.Popen(line) as process:
        try:
            wait_until(socket.exists, 30)
            make_all_calls(connect(f"unix://{socket}"))
        finally:
            process.kill()
    recorded = [json.loads(text) for text in file.read_text().splitlines()]
    assert sorted((each["method"], each["target"]) for each in recorded) == sorted(each[:2] for each in engine.asked)
    paths = {call_of(each["method"], each["target"].partition("?")[0].removeprefix("/v1.52")) for each in recorded}
    assert paths == {*CALLS}
    created = [each["body"] for each in recorded if "/containers/create" in each["target"]]
    assert created == [body for _method, target, body in engine.asked if "/containers/create" in target]
    assert [text for each in recorded for text in problems_of(each["method"], each["target"], each["body"])] == []


def test_the_output_of_a_command_comes_through(tmp_path: Path) -> None:
    socket, engine_socket = tmp_path / "recorder.sock", tmp_path / "docker.sock"
    line = [sys.executable, str(recorder.__file__), str(socket), str(engine_socket), str(tmp_path / "requests.json")]
    with EngineServer(engine_socket).serving() as engine, subprocess.Popen(line) as process:
        engine.prints = says(b"main1")
        try:
            wait_until(socket.exists, 30)
            assert run_as_work(connect(f"unix://{socket}"), "c", ["hostname"], 60) == "main1"
        finally:
            process.kill()
