"""Playbooks run with nothing of the user's surroundings, and leave nothing behind."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from backendai_manager import schedule
from backendai_manager.errors import CancelledError, CommandError, RefusedError
from backendai_manager.manager.run_events import RunEvents
from backendai_manager.manager.runs import MAX_REPORT, Outcome, Runs, _read, clean_environment
from backendai_manager.manager.settings import load_settings
from backendai_manager.service import _start_runs
from tests.unit.plugins.action.test_session_plays import TRAIN, Site
from tests.unit.roles.manager.manager_host import ManagerHost

LIST = "session_list_path"
LOOKUP = "{{ lookup('pipe', 'touch PATH') }}"


@pytest.fixture
def runs(host: ManagerHost, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """Runs of a manager whose inventory has no agents."""
    inventory = Path(host.settings["inventory"])
    inventory.write_text("all: {children: {agents: {hosts: {}}}}\n")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    return Runs(host.paths, str(inventory), str(host.queue), lambda: False, "1001")


def leftovers(host: ManagerHost) -> list[str]:
    return sorted(path.name for path in host.paths.runtime.iterdir())


def test_a_run_reports_and_leaves_nothing(host: ManagerHost, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    # The folder that a user has called the command from.
    folder = host.paths.home / "evil"
    folder.mkdir()
    (folder / "ansible.cfg").write_text("[defaults]\nstrategy = evil\n")
    monkeypatch.chdir(folder)
    tasks: list[str] = []
    events = RunEvents(task=lambda task, _host, state: tasks.append(f"{task}: {state}"))
    outcome = runs.run("list_sessions", reports=[LIST], events=events)
    assert outcome == Outcome(True, "", {LIST: []})
    assert "List the sessions: done" in tasks
    assert leftovers(host) == ["ssh"]


@pytest.mark.usefixtures("runs")
def test_each_step_of_a_start_is_an_event_as_it_happens(host: ManagerHost, tmp_path: Path) -> None:
    shown: dict[str, float] = {}

    class Timed(RunEvents):
        def take(self, event: Mapping[str, Any]) -> bool:
            shown.setdefault(event["stdout"].strip(), datetime.fromisoformat(event["created"]).timestamp())
            return super().take(event)

    (tmp_path / "site").mkdir()
    site, steps = Site(tmp_path / "site"), set[tuple[str, str, str]]()
    runs = Runs(host.paths, str(site.folder / "inventory.yml"), str(host.queue), lambda: False, "1001")
    request = {f"session_{name}": value for name, value in TRAIN.items()}
    outcome = runs.run("create_session", request, events=Timed(task=lambda *step: steps.add(step)))
    assert (outcome.done, site.parts) == (True, ["agent1", "agent2"])
    assert steps >= {("Claim resources", "", "begun"), *(("Claim resources", name, "done") for name in site.parts)}
    # Agents were asked to start containers after that.
    assert shown["Claim resources (agent1): done"] < (site.folder / "asked").stat().st_mtime


def test_a_template_in_any_option_is_no_template(host: ManagerHost, runs: Runs) -> None:
    ran = host.paths.home / "ran"
    text = LOOKUP.replace("PATH", str(ran))
    request: dict[str, Any] = {
        f"session_{name}": text for name in ("name", "image", "command", "resource_group", "bootstrap_script")
    }
    request["session_env"] = {text: text}
    outcome = runs.run("create_session", request, reports=["session_record_path"])
    assert (outcome.done, outcome.refused) == (False, True)
    assert "name: " in outcome.reason
    assert "session_" not in outcome.reason
    assert not ran.exists()
    assert leftovers(host) == ["ssh"]
    with pytest.raises(RefusedError):
        outcome.require()


@pytest.mark.usefixtures("runs")
def test_a_cancelled_run_is_killed_and_leaves_nothing(host: ManagerHost) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        agent = f"{{ansible_host: 127.0.0.1, ansible_port: {silent.getsockname()[1]}}}"
        Path(host.settings["inventory"]).write_text(f"all: {{children: {{agents: {{hosts: {{agent1: {agent}}}}}}}}}\n")
        reached: list[str] = []
        events = RunEvents(task=lambda task, _host, _state: reached.append(task))
        asks = "List the sessions"
        waiting = Runs(host.paths, host.settings["inventory"], str(host.queue), lambda: asks in reached, "1001")
        with pytest.raises(CancelledError):
            waiting.run("list_sessions", reports=[LIST], events=events)
    assert leftovers(host) == ["ssh"]


def test_a_playbook_that_does_not_start_has_a_reason(runs: Runs) -> None:
    outcome = runs.run("no_such_playbook")
    assert outcome.reason == "the playbook: backendai.cluster.no_such_playbook could not be found"
    with pytest.raises(CommandError):
        outcome.require()


def test_a_report_that_is_damaged_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "session_list_path.json"
    assert _read(path) is None
    path.write_text("{")
    with pytest.raises(CommandError, match=r"has written a damaged session_list_path\.json"):
        _read(path)
    with path.open("wb") as stream:
        stream.truncate(MAX_REPORT + 1)
    with pytest.raises(CommandError, match="is larger than"):
        _read(path)


def test_nothing_of_the_users_environment_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before, folder = dict(os.environ), Path.cwd()
    umask = os.umask(0o022)
    try:
        monkeypatch.setenv("ANSIBLE_CALLBACK_PLUGINS", "/evil")
        monkeypatch.setenv("PYTHONPATH", "/evil")
        clean_environment(tmp_path)
        assert sorted(os.environ) == ["HOME", "LANG", "LC_ALL", "PATH"]
        assert Path.cwd() == Path("/")
        assert os.umask(0o022) == 0o077
    finally:
        os.chdir(folder)
        os.umask(umask)
        os.environ.clear()
        os.environ.update(before)


def test_a_configuration_of_the_operator_replaces_the_defaults(host: ManagerHost, runs: Runs) -> None:
    with runs.environment() as environment:
        assert environment["ANSIBLE_FORKS"] == "50"
    host.paths.ansible_settings.touch()
    with runs.environment() as environment:
        assert "ANSIBLE_FORKS" not in environment
        assert environment["ANSIBLE_CONFIG"] == str(host.paths.ansible_settings)


def test_neither_the_timer_nor_two_users_share_a_connection(host: ManagerHost, monkeypatch: pytest.MonkeyPatch) -> None:
    shared: list[str] = []

    def start(runs: Runs) -> int:
        with runs.environment() as environment:
            shared.append(environment["ANSIBLE_SSH_CONTROL_PATH_DIR"])
        return 0

    settings = load_settings(host.paths.manager_settings)
    for uid in (1001, 1002):
        start(_start_runs(host.paths, settings, uid, lambda: False))
    monkeypatch.setattr(schedule, "Paths", lambda: host.paths)
    monkeypatch.setattr(schedule, "clean_environment", lambda _home: None)
    monkeypatch.setattr(schedule, "schedule", lambda _paths, _settings, _accounts, runs, _playbook: start(runs))
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert schedule.main() == 0
    assert shared == [str(host.paths.runtime / "ssh" / word) for word in ("1001", "1002", "timer")]


def failure(host: str, task: str = "x", returned: Mapping[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    result = {"msg": fields.pop("msg", "Task failed: it broke"), **(returned or {})}
    return {"event": "runner_on_failed", "event_data": {"host": host, "task": task, "res": result, **fields}}


def asked(agent: str, problem: str, reason: str) -> dict[str, Any]:
    """Return the event of a task that has asked all agents itself."""
    result = {"unavailable": {agent: {"problem": problem, "reason": reason}}}
    return {"event": "runner_on_ok", "event_data": {"host": "localhost", "task": "x", "res": result}}


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ([], "Ansible has ended without a reason."),
        ([failure("localhost"), failure("localhost")], "it broke"),
        ([failure("agent1"), failure("agent2")], "agent1: it broke\nagent2: it broke"),
        ([failure("agent1", ignore_errors=True)], "Ansible has ended without a reason."),
        (
            [failure("agent1", msg="")],
            "agent1: a step has failed whose message is hidden, because it may quote secrets",
        ),
        (
            [{"event": "runner_on_unreachable", "event_data": {"host": "agent1", "res": {"msg": "timed out"}}}],
            "agent1 does not answer: timed out",
        ),
        ([asked("agent1", "unreachable", "timed out")], "agent1 does not answer: timed out"),
        ([asked("agent1", "unusable", "no engine")], "Ansible has ended without a reason."),
        ([{"event": "verbose", "stdout": "[ERROR]: no inventory"}], "no inventory"),
        ([{"event": "verbose", "stdout": "ERROR! no inventory"}, failure("localhost")], "it broke"),
        ([failure("localhost", msg="session_env is not session_x")], "env is not x"),
        (
            [failure("localhost", msg="session_mounts[0].source: '/data/session_out' and my-session_a of 'session_b'")],
            "mounts[0].source: '/data/session_out' and my-session_a of 'session_b'",
        ),
    ],
)
def test_a_failed_run_has_a_reason_for_users(events: list[dict[str, Any]], reason: str) -> None:
    seen = RunEvents()
    assert not any(seen.take(event) for event in events)
    assert seen.reason == reason


@pytest.mark.parametrize(
    ("result", "refused"),
    [
        ({"refused": True}, True),
        ({"refused": False}, False),
        ({}, False),
    ],
)
def test_only_what_was_refused_before_a_change_is_a_refusal(result: dict[str, bool], refused: bool) -> None:
    seen = RunEvents()
    seen.take(failure("localhost", "Create the session", result))
    assert seen.refused is refused


def test_agents_that_do_not_answer_are_known_after_a_failure_as_well() -> None:
    seen, text = RunEvents(), "no agent can be used: agent1: timed out"
    away = {"agent1": {"problem": "unreachable", "reason": "timed out"}}
    seen.take(failure("localhost", "Create the session", {"unavailable": away}, msg=text))
    assert (seen.refused, seen.reason, seen.unreachable) == (False, text, {"agent1": "timed out"})


def test_lines_of_progress_are_steps_on_hosts() -> None:
    steps: list[tuple[str, str, str]] = []
    seen = RunEvents(task=lambda *step: steps.append(step))
    lines = [
        "Claim resources: begun",
        "Claim resources (agent1): done",
        "Start the command of batch sessions (agent-2.example.com): failed: no image: x",
        "agent1: pulling lab/python:1: 1 of 2 GB",
        "Session train is RUNNING.",
        "[WARNING]: agent3 is left out: no route to host.",
    ]
    for line in lines:
        seen.take({"event": "verbose", "stdout": f"{line}\n"})
    assert steps == [
        ("Claim resources", "", "begun"),
        ("Claim resources", "agent1", "done"),
        ("Start the command of batch sessions", "agent-2.example.com", "failed"),
    ]
    assert seen.errors == []


def test_the_request_is_only_in_its_file(host: ManagerHost, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: dict[str, Any] = {}

    def start(_self: Runs, folder: Path, _playbook: str, variables: dict[str, Any], *_rest: object) -> bool:
        path = Path(variables["session_request_path"])
        kept.update(variables=dict(variables), text=json.loads(path.read_text()), mode=path.stat().st_mode & 0o777)
        kept["parent"] = path.parent == folder
        return True

    monkeypatch.setattr(Runs, "_start", start)
    umask = os.umask(0o077)
    Runs(host.paths, "", "/queue", lambda: False, "1001").run(
        "create_session", {"session_env": {"A": "hunter2"}}, {"session_user": "a"}
    )
    os.umask(umask)
    assert kept["text"] == {"session_env": {"A": "hunter2"}}
    assert (kept["mode"], kept["parent"]) == (0o600, True)
    assert sorted(kept["variables"]) == ["session_queue_path", "session_request_path", "session_user"]
