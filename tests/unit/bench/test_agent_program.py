"""The program that the benchmark runs on an agent is complete and needs no package that an agent lacks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from tests.bench import many_sessions
from tests.bench.agent_program import sessions as program
from tests.bench.agent_program.parts import PartTimes
from tests.unit.builders import agent_data

HOST = {"agent_underlay_address": "192.0.2.1"}
# Prints what the program does, and waits as it does.
HOLDING = """
import json, sys
print(json.dumps({"kind": "created", "seconds": {}}), flush=True)
sys.stdin.buffer.read()
print(json.dumps({"kind": "removed", "seconds": {}}), flush=True)
"""


def test_archive_runs_without_any_package_but_its_own(tmp_path: Path) -> None:
    place = tmp_path / "bench.pyz"
    place.write_bytes(many_sessions.archive())
    request = json.dumps(many_sessions.request(1, HOST))
    # Isolated, without site-packages: it runs until it imports the Docker SDK, which is missing.
    command = [sys.executable, "-I", "-S", str(place), request]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "the Docker SDK for Python cannot be imported" in process.stderr


def test_the_sessions_stay_while_something_else_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_sessions.lab, "host_variables", lambda _agent: HOST)
    monkeypatch.setattr(many_sessions.lab, "ssh_command", lambda _agent, _line: [sys.executable, "-c", HOLDING])
    calls: list[str] = []
    parts = many_sessions._run_on_agent(1, lambda: calls.append("measured"))
    assert (parts, calls) == ({"created": [{}], "removed": [{}]}, ["measured"])


def test_as_many_sessions_fit_as_are_created(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "connect", lambda _address: None)
    request = many_sessions.request(100, HOST)
    sessions = program.Sessions(request, PartTimes())
    spec = sessions.spec(0)
    facts: dict[str, Any] = agent_data("agent1", cpu=2 * request["settings"]["agent_cpu_overcommit"])
    facts["images"] = {many_sessions.lab.BUSYBOX: facts["images"].popitem()[1]}
    plan = sessions.plan(spec, AgentFacts.from_dict("agent1", facts))
    assert [(kernel.hostname, kernel.agent) for kernel in plan.kernels] == [("main1", "agent1"), ("sub1", "agent1")]


def test_inner_parts_exist_and_count_in_total() -> None:
    times = PartTimes()
    for _name, module, function in program.INNER_PARTS:
        assert callable(getattr(module, function))
    add = times.wrap("add", lambda first, second: first + second)
    assert add(1, second=2) + add(1, 1) == 5
    assert list(times.take()) == ["add"]
    assert times.take() == {}
