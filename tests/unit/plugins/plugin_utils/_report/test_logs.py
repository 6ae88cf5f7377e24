"""The report of a session's logs, and its rendering."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import QueueEntry
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.logs import (
    empty_logs_report,
    logs_report,
    render_logs,
    select_logs,
)
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
    state = {"status": "running", "image_digest": "sha256:1", "exit_code": None, "finished_at": None}
    return {
        "plan": of.to_dict(),
        "containers": dict.fromkeys(hostnames, state),
        "logs": {name: {"log": json.dumps([f"I am {name}"]), "apps": {}, "error": None} for name in hostnames},
        **changes,
    }


def all_parts(of: SessionPlan = MADE) -> dict[str, dict[str, Any]]:
    return {agent: logged(of, agent) for agent in of.agents}


def ended_entry(number: int, **changes: Any) -> QueueEntry:
    return queued(number, **{"state": "TERMINATED", "spec": None, "name": "train-llm", "record": OVER, **changes})


def refusal(name: str, session_id: str, answers: AgentReports, *entries: QueueEntry) -> str:
    with pytest.raises(SessionNotFoundError) as refused:
        select_logs(name, session_id, answers, entries)
    return str(refused.value)


@pytest.mark.parametrize("selector", [("train-llm", ""), ("", SESSION_ID)])
def test_a_held_session_is_found_despite_ended_namesakes(selector: tuple[str, str]) -> None:
    answers = AgentReports({agent: [part] for agent, part in all_parts().items()})
    assert select_logs(*selector, answers, [ended_entry(1)]) == all_parts()


def test_output_of_the_last_ended_session_of_a_name_is_found_unless_one_lives() -> None:
    older = dataclasses.replace(MADE, id="00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a", created_at=MADE.created_at - 1)
    kept = {agent: logged(MADE, agent, ended_at=2.0) for agent in MADE.agents}
    stale = logged(older, "agent1", ended_at=1.0)
    answers = AgentReports({"agent1": [stale, kept["agent1"]], "agent2": [kept["agent2"]], "agent3": []})
    assert select_logs("train-llm", "", answers, [ended_entry(1)]) == kept
    assert select_logs("", SESSION_ID, AgentReports({a: [part] for a, part in kept.items()}), []) == kept
    living = AgentReports({"agent1": [logged(MADE, "agent1")], "agent2": [logged(older, "agent2", ended_at=1.0)]})
    assert select_logs("train-llm", "", living, []) == {"agent1": logged(MADE, "agent1")}
    failed = ended_entry(5, state="TERMINATING", agents=("agent2",))
    assert select_logs("train-llm", "", answers, [ended_entry(1), failed]) == kept
    waits = queued(4, name="train-llm")
    assert refusal("train-llm", "", answers, waits) == "the session 'train-llm' is PENDING: no agent holds it"


def test_an_ended_session_of_which_nothing_was_kept_has_no_logs() -> None:
    before = ended_entry(1, record={**OVER, "reason": "it was ended by alice"})
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


def test_logs_of_a_pending_or_unknown_session_are_an_error() -> None:
    nothing = AgentReports({"agent1": []})
    waits = queued(4, name="train-llm")
    assert (
        refusal("train-llm", "", nothing, ended_entry(1), waits)
        == "the session 'train-llm' is PENDING: no agent holds it"
    )
    assert refusal("ghost", "", nothing, ended_entry(1)) == "no session 'ghost' was found"
    both = AgentReports({"agent1": [logged(MADE, "agent1"), {"plan": {**MADE.to_dict(), "id": "0"}}]})
    assert refusal("train-llm", "", both).startswith("session_name: 2 sessions are called 'train-llm': give session_id")


def test_containers_are_reported_in_rank_order() -> None:
    report = logs_report(all_parts(), AgentReports({}), "")
    assert report["session"] == {"id": SESSION_ID, "name": "train-llm"}
    assert (report["agents"], report["error"]) == ({}, None)
    assert [(kernel["hostname"], kernel["agent"], kernel["status"], kernel["log"]) for kernel in report["kernels"]] == [
        ("main1", "agent1", "running", ["I am main1"]),
        ("sub1", "agent2", "running", ["I am sub1"]),
        ("sub2", "agent2", "running", ["I am sub2"]),
    ]


def test_logs_of_a_single_container_need_its_agent_only() -> None:
    report = logs_report(all_parts(), AgentReports({}, {"agent1": "no route"}), "sub2")
    assert [kernel["hostname"] for kernel in report["kernels"]] == ["sub2"]
    assert (report["agents"], report["error"]) == ({}, None)


def test_an_unknown_container_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SessionNotFoundError) as refused:
        logs_report(all_parts(), AgentReports({}), "sub9")
    assert str(refused.value) == "session_kernel: 'sub9' is not a container of 'train-llm'; it has main1, sub1, sub2"


def test_containers_of_an_unavailable_agent_are_unknown() -> None:
    report = logs_report(
        {"agent1": logged(MADE, "agent1")}, AgentReports({}, {"agent2": "no route", "agent3": "off"}), ""
    )
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
        report = logs_report(available, AgentReports({}), "")
        assert [kernel["status"] for kernel in report["kernels"]] == ["running", "missing", "missing"]
        assert report["error"] is None


def test_what_is_not_there_has_a_report_of_the_same_shape() -> None:
    absent = empty_logs_report("ghost", "", "no session 'ghost' was found.")
    assert absent.keys() == logs_report(all_parts(), AgentReports({}), "").keys()
    assert absent["session"] == {"id": None, "name": "ghost"}
    assert list(render_logs(absent)) == []


def test_people_see_a_heading_for_each_log() -> None:
    parts = all_parts()
    parts["agent1"]["logs"]["main1"]["apps"] = {"jupyter": '["served"]', "tensorboard": "[]"}
    parts["agent1"]["logs"]["main1"]["error"] = "/var/log/backendai/x.log is not a regular file"
    parts["agent2"]["containers"] = {"sub1": {"status": "exited", "exit_code": 137}}
    del parts["agent2"]["logs"]["sub2"]
    assert list(render_logs(logs_report(parts, AgentReports({}), ""))) == [
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
    report = logs_report(parts, AgentReports({}), "main1")
    assert list(render_logs(report))[1:] == [
        "\\x1b[2Ja\tb",
        "10%\\r20%",
        "caf\u00e9 \\x9b31m\\x7f\\x00",
        "\\x1b]0;x\\x07\\u202etxt",
    ]
    assert report["kernels"][0]["log"][0] == "\x1b[2Ja\tb\r"


@pytest.mark.parametrize("log", ["", "{}", "[", "[NaN]", '["\\ud800"]'])
def test_damaged_log_of_an_agent_is_named(log: str) -> None:
    parts = all_parts()
    parts["agent1"]["logs"]["main1"]["log"] = log
    report = logs_report(parts, AgentReports({}), "main1")
    assert report["kernels"][0]["log"] == ["(what its agent sent is damaged)"]
