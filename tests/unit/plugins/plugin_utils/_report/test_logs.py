"""The report of a session's logs, and its rendering."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import QueueEntry
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.logs import (
    empty_logs_report,
    read_logs,
    render_logs,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.record import session_record
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.verification import (
    AgentReports,
    SessionNotFoundError,
)
from tests.unit.builders import SESSION_ID, plan, queued

MADE = plan({"agent1": 1, "agent2": 2})
OVER = {"status": "TERMINATED", "reason": "the command ended with exit code 3"}


def logged(of: SessionPlan, agent: str, **changes: Any) -> dict[str, Any]:
    """Return an agent's part of a session with running containers, each having printed its name."""
    hostnames = [kernel.hostname for kernel in of.kernels_on(agent)]
    state = {"status": "running", "image_digest": "sha256:1", "exit_code": None}
    return {
        "id": of.id,
        "batch": bool(of.command),
        "containers": dict.fromkeys(hostnames, state),
        "logs": {name: {"log": json.dumps([f"I am {name}"]), "apps": {}, "error": None} for name in hostnames},
        **changes,
    }


def all_parts(of: SessionPlan = MADE) -> dict[str, dict[str, Any]]:
    return {agent: logged(of, agent) for agent in of.agents}


RECORD = session_record(MADE, "TERMINATED") | OVER
RUNNING = queued(9, id=SESSION_ID, name="train-llm", state="RUNNING", plan=MADE)
OTHER_ID = "00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"


def ended_entry(number: int, **changes: Any) -> QueueEntry:
    return queued(number, **{"state": "TERMINATED", "spec": None, "name": "train-llm", "record": RECORD, **changes})


def reports(parts: dict[str, dict[str, Any]], errors: dict[str, str] | None = None) -> AgentReports:
    return AgentReports({agent: [part] for agent, part in parts.items()}, errors or {})


def refusal(name: str, session_id: str, answers: AgentReports, *entries: QueueEntry) -> str:
    with pytest.raises(SessionNotFoundError) as refused:
        read_logs(name, session_id, answers, entries, "")
    return str(refused.value)


def logs_of(
    parts: dict[str, dict[str, Any]], errors: dict[str, str] | None = None, hostname: str = ""
) -> dict[str, Any]:
    """Return the report of a session of the record."""
    return read_logs("train-llm", "", reports(parts, errors), [RUNNING], hostname)


@pytest.mark.parametrize("selector", [("train-llm", ""), ("", SESSION_ID)])
def test_a_live_session_is_found_despite_ended_namesakes(selector: tuple[str, str]) -> None:
    report = read_logs(*selector, reports(all_parts()), [ended_entry(1), RUNNING], "")
    assert (report["session"]["id"], report["kernels"][0]["log"]) == (SESSION_ID, ["I am main1"])


def test_output_of_the_last_ended_session_of_a_name_is_found_unless_one_lives() -> None:
    kept = {agent: logged(MADE, agent, ended_at=2.0) for agent in MADE.agents}
    ended = [ended_entry(1), ended_entry(5, id=SESSION_ID, state="TERMINATING", agents=("agent2",))]
    report = read_logs("train-llm", "", reports(kept), ended, "")
    assert [kernel["log"] for kernel in report["kernels"]] == [["I am main1"], ["I am sub1"], ["I am sub2"]]
    waits = queued(4, name="train-llm")
    assert refusal("train-llm", "", reports(kept), *ended, waits) == (
        "the session 'train-llm' is PENDING: no agent holds it"
    )


def test_an_ended_session_of_which_nothing_was_kept_has_no_logs() -> None:
    before = ended_entry(1, record={**RECORD, "reason": "it was ended by alice"})
    sentence = "the session 'train-llm' is TERMINATED: the command ended with exit code 3; no agent has kept its output"
    nothing = AgentReports({"agent1": []})
    assert refusal("train-llm", "", nothing, ended_entry(2), before) == sentence
    assert refusal("train-llm", "", nothing, ended_entry(2, state="TERMINATING", agents=("agent2",))) == sentence
    assert refusal("", ended_entry(2).id, nothing, before, ended_entry(2)) == sentence
    answers = AgentReports({"agent1": []}, {"agent2": "no route"})
    assert refusal("train-llm", "", answers, ended_entry(2)) == f"{sentence}; agent2 is unavailable: no route"
    plain = ended_entry(3, record={"status": "CANCELLED"})
    assert refusal("train-llm", "", nothing, plain).startswith(
        "the session 'train-llm' is CANCELLED; no agent has kept"
    )


def test_logs_of_a_session_without_a_record_are_read_by_its_id() -> None:
    odd = logged(MADE, "agent2")
    report = read_logs("", SESSION_ID, reports({"agent3": odd, "agent1": logged(MADE, "agent1")}), [], "")
    assert report["session"] == {"id": SESSION_ID, "name": None}
    assert [(kernel["hostname"], kernel["agent"]) for kernel in report["kernels"]] == [
        ("main1", "agent1"),
        ("sub1", "agent3"),
        ("sub2", "agent3"),
    ]


def test_logs_of_an_unknown_session_are_an_error() -> None:
    hint = "; give session_id for one that was started elsewhere, which list_sessions shows"
    nothing = AgentReports({"agent1": []}, {"agent2": "no route"})
    assert refusal("ghost", "", nothing, ended_entry(1)) == (
        f"this control node has no record of the session 'ghost'{hint}; agent2 is unavailable: no route"
    )
    assert refusal("", OTHER_ID, reports(all_parts()), RUNNING) == (
        f"this control node has no record of the session {OTHER_ID!r}"
    )
    twins = RUNNING, queued(8, id=OTHER_ID, name="train-llm", state="RUNNING", plan=MADE)
    assert refusal("train-llm", "", nothing, *twins).startswith("session_name: 2 sessions are called 'train-llm': give")


def test_an_agent_has_no_say_about_the_logs_of_others() -> None:
    parts = all_parts()
    parts["agent2"]["logs"]["main1"] = {"log": '["a lie"]', "apps": {}, "error": None}
    parts["agent3"] = parts["agent2"]
    assert logs_of(parts) == logs_of(all_parts())


def test_containers_are_reported_in_rank_order() -> None:
    report = logs_of(all_parts())
    assert report["session"] == {"id": SESSION_ID, "name": "train-llm"}
    assert (report["agents"], report["error"]) == ({}, None)
    assert [(kernel["hostname"], kernel["agent"], kernel["status"], kernel["log"]) for kernel in report["kernels"]] == [
        ("main1", "agent1", "running", ["I am main1"]),
        ("sub1", "agent2", "running", ["I am sub1"]),
        ("sub2", "agent2", "running", ["I am sub2"]),
    ]


def test_logs_of_a_single_container_need_its_agent_only() -> None:
    report = logs_of(all_parts(), {"agent1": "no route"}, "sub2")
    assert [kernel["hostname"] for kernel in report["kernels"]] == ["sub2"]
    assert (report["agents"], report["error"]) == ({}, None)


def test_an_unknown_container_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SessionNotFoundError) as refused:
        logs_of(all_parts(), hostname="sub9")
    assert str(refused.value) == "session_kernel: 'sub9' is not a container of 'train-llm'; it has main1, sub1, sub2"


def test_containers_of_an_unavailable_agent_are_unknown() -> None:
    report = logs_of({"agent1": logged(MADE, "agent1")}, {"agent2": "no route", "agent3": "off"})
    assert [(kernel["status"], kernel["error"]) for kernel in report["kernels"]] == [
        ("running", None),
        ("unknown", "agent2 is unavailable: no route"),
        ("unknown", "agent2 is unavailable: no route"),
    ]
    assert report["agents"] == {"agent2": "no route"}
    assert report["error"] == (
        "not all logs of the session 'train-llm' could be read: agent2 is unavailable: no route."
    )


def test_containers_that_their_agent_does_not_have_are_missing() -> None:
    parts = all_parts()
    parts["agent2"] = logged(MADE, "agent2", containers={}, logs={})
    for available in (parts, {"agent1": parts["agent1"]}):
        report = logs_of(available)
        assert [kernel["status"] for kernel in report["kernels"]] == ["running", "missing", "missing"]
        assert report["error"] is None


def test_what_is_not_there_has_a_report_of_the_same_shape() -> None:
    absent = empty_logs_report("ghost", "", "no session 'ghost' was found.")
    assert absent.keys() == logs_of(all_parts()).keys()
    assert absent["session"] == {"id": None, "name": "ghost"}
    assert list(render_logs(absent)) == []


def test_people_see_a_heading_for_each_log() -> None:
    parts = all_parts()
    parts["agent1"]["logs"]["main1"]["apps"] = {"jupyter": '["served"]', "tensorboard": "[]"}
    parts["agent1"]["logs"]["main1"]["error"] = "/var/log/backendai/x.log is not a regular file"
    parts["agent2"]["containers"] = {"sub1": {"status": "exited", "exit_code": 137}}
    del parts["agent2"]["logs"]["sub2"]
    assert list(render_logs(logs_of(parts))) == [
        "== main1 on agent1: running ==",
        "I am main1",
        "== main1, app jupyter ==",
        "served",
        "== main1, app tensorboard ==",
        "== main1: /var/log/backendai/x.log is not a regular file ==",
        "== sub1 on agent2: exited with code 137 ==",
        "I am sub1",
        "== sub2 on agent2: missing ==",
    ]


def test_a_terminal_obeys_nothing_of_what_users_print() -> None:
    parts = all_parts()
    parts["agent1"]["logs"]["main1"]["log"] = json.dumps(
        ["\x1b[2Ja\tb\r", "10%\r20%", "caf\u00e9 \u009b31m\x7f\x00", "\x1b]0;x\x07\u202etxt"]
    )
    parts["agent1"]["logs"]["main1"]["apps"] = {"web ==\nx": '["a\\nb"]'}
    parts["agent1"]["logs"]["main1"]["error"] = "a\nb"
    parts["agent1"]["containers"] = {"main1": {"status": "running\nx", "exit_code": None}}
    report = logs_of(parts, hostname="main1")
    assert list(render_logs(report)) == [
        "== main1 on agent1: running\\nx ==",
        "\\x1b[2Ja\tb",
        "10%\\r20%",
        "caf\u00e9 \\x9b31m\\x7f\\x00",
        "\\x1b]0;x\\x07\\u202etxt",
        "== main1, app web ==\\nx ==",
        "a\\nb",
        "== main1: a\\nb ==",
    ]
    assert report["kernels"][0]["log"][0] == "\x1b[2Ja\tb\r"


@pytest.mark.parametrize("log", ["", "{}", "[", "[NaN]", '["\\ud800"]'])
def test_damaged_log_of_an_agent_is_named(log: str) -> None:
    parts = all_parts()
    parts["agent1"]["logs"]["main1"]["log"] = log
    report = logs_of(parts, hostname="main1")
    assert report["kernels"][0]["log"] == ["(what its agent sent is damaged)"]
