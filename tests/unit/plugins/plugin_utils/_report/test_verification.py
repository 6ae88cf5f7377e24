"""The report of a verified session."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.verification import (
    AgentReports,
    SessionNotFoundError,
    build_verification_report,
    find_plan,
    not_found_report,
)
from tests.unit.builders import SESSION_ID, plan, queued

MOUNTS: list[dict[str, Any]] = [
    {"source": "/mnt/data", "target": "/data"},
    {"source": "/mnt/set", "target": "/set", "read_only": True},
]
MADE = plan({"agent1": 2, "agent2": 1})
MOUNTED = plan({"agent1": 2, "agent2": 1}, mounts=MOUNTS)
OTHER_ID = "00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
WELL = {"name": True, "tcp": True, "frame": True, "ssh": True, "ssh_error": None}
NOTHING = dict.fromkeys(WELL)


def part(of: SessionPlan, agent: str, **changes: Any) -> dict[str, Any]:
    """Return an agent's result for its part of a healthy session."""
    hostnames = [kernel.hostname for kernel in of.kernels_on(agent)]
    return {
        "plan": of.to_dict(),
        "committed": True,
        "expired": False,
        "containers": {name: {"status": "running", "image_digest": "sha256:1"} for name in hostnames},
        "drift": [],
        "pairs": [{"from": source, "to": other.hostname, **WELL} for source in hostnames for other in of.kernels],
        **changes,
    }


def parts(of: SessionPlan, **changes: dict[str, Any]) -> dict[str, Any]:
    """Return the results of all agents, each with its changes."""
    return {agent: part(of, agent, **changes.get(agent, {})) for agent in of.agents}


def report_of(held: dict[str, Any], answers: AgentReports | None = None, of: SessionPlan = MADE) -> dict[str, Any]:
    """Return the report of a session of which agents hold these parts."""
    listed = {agent: [each] for agent, each in held.items()}
    return build_verification_report(of, dataclasses.replace(answers or AgentReports({}), parts=listed))


def sight(marker: bool = True, folder: str = "1:1", names: str = "abc") -> dict[str, Any]:
    return {"marker": marker, "folder": folder, "names": names}


def mounts(marked: tuple[str, ...] = (), stays: tuple[str, ...] = (), **observed: Any) -> list[dict[str, Any]]:
    """Return the mounts of the report, given what the containers saw in all of them."""
    sights = {
        name: {"/data": observation, "/set": observation} for name, observation in observed.items() if observation
    }
    report = report_of(parts(MOUNTED), AgentReports({}, {}, marked, stays, sights), MOUNTED)
    assert report["healthy"] is all(mount["same"] and not mount["marker_left"] for mount in report["mounts"])
    return list(report["mounts"])


def test_a_healthy_session_is_reported_as_healthy() -> None:
    report = report_of(parts(MADE))
    assert report["session"] == {"id": SESSION_ID, "name": "train-llm", "status": "RUNNING"}
    assert (report["healthy"], report["error"]) == (True, None)
    assert (report["agents"], report["drift"], report["mounts"]) == ({}, [], [])
    names = ["main1", "sub1", "sub2"]
    assert report["pairs"] == [{"from": source, "to": other, **WELL} for source in names for other in names]


def test_drift_is_reported_with_its_agent() -> None:
    change = {"subject": "link bax-1", "actual": "mtu 1400", "expected": "mtu 1450"}
    report = report_of(parts(MADE, agent2={"drift": [change]}))
    assert report["drift"] == [{"agent": "agent2", **change}]
    assert report["error"] == (
        "the session 'train-llm' is not healthy: 1 difference from the plan;"
        " repair_session, or create_session with the same variables, repairs what differs from the plan."
    )


def test_an_agent_that_lost_its_part_differs() -> None:
    session_parts = parts(MADE)
    del session_parts["agent2"]
    report = report_of(session_parts)
    assert report["drift"] == [{"agent": "agent2", "subject": "session train-llm", "actual": None, "expected": "held"}]
    assert report["session"]["status"] == "DEGRADED"
    assert report["pairs"][6:] == [{"from": "sub2", "to": name, **NOTHING} for name in ("main1", "sub1", "sub2")]


def test_an_agent_that_cannot_be_asked_is_a_finding_and_others_are_not() -> None:
    session_parts = parts(MADE)
    del session_parts["agent2"]
    report = report_of(session_parts, AgentReports({}, {"agent2": "no route", "agent9": "unreachable"}))
    assert (report["agents"], report["drift"]) == ({"agent2": "no route"}, [])
    assert "1 unavailable agent, 3 unchecked pairs;" in report["error"]


@pytest.mark.parametrize("check", ["name", "tcp", "frame", "ssh"])
def test_a_pair_that_does_not_meet_is_not_healthy(check: str) -> None:
    pairs = [{"from": "sub2", "to": "main1", **WELL, check: False}]
    report = report_of(parts(MADE, agent2={"pairs": pairs}))
    assert "1 pair with failed checks, 2 unchecked pairs;" in report["error"]


def test_a_session_that_is_being_made_says_so() -> None:
    change = {"subject": "session train-llm", "actual": "not committed", "expected": "committed"}
    report = report_of(parts(MADE, agent1={"committed": False, "drift": [change]}))
    assert (report["session"]["status"], report["healthy"]) == ("CREATING", False)


def test_a_mark_that_all_containers_see_shows_the_same_data() -> None:
    data, _set = mounts(("/data",), main1=sight(), sub1=sight(), sub2=sight(names="other"))
    assert data == {
        **MOUNTS[0],
        "read_only": False,
        "strict": False,
        "compared": "marker",
        "same": True,
        "differing": [],
        "unknown": [],
        "marker_left": False,
    }


def test_containers_that_do_not_see_the_mark_are_apart() -> None:
    data, _set = mounts(("/data",), main1=sight(), sub1=sight(), sub2=sight(marker=False))
    assert (data["same"], data["differing"]) == (False, ["sub2"])


def test_without_a_mark_the_names_are_compared() -> None:
    hostnames: dict[str, Any] = {"main1": sight(marker=False), "sub1": sight(marker=False)}
    alike = mounts(**hostnames, sub2=sight(marker=False, folder="9:9"))
    assert [(mount["compared"], mount["same"]) for mount in alike] == [("names", True), ("names", True)]
    unlike = mounts(**hostnames, sub2=sight(marker=False, names="xyz"))
    assert [(mount["same"], mount["differing"]) for mount in unlike] == [(False, ["sub2"]), (False, ["sub2"])]


def test_one_folder_on_one_agent_is_the_same_even_while_its_names_change() -> None:
    observed: dict[str, Any] = {
        "main1": sight(marker=False),
        "sub1": sight(marker=False, names="new"),
        "sub2": sight(marker=False, names="new"),
    }
    assert [mount["differing"] for mount in mounts(**observed)] == [["sub2"], ["sub2"]]


def test_containers_that_said_nothing_leave_it_open() -> None:
    data, read_only = mounts(("/data",), main1=sight(), sub1=sight(), sub2={})
    assert (data["same"], data["unknown"], data["differing"]) == (None, ["sub2"], [])
    assert (read_only["same"], read_only["unknown"]) == (None, ["sub2"])


@pytest.mark.parametrize("main1", [{}, sight(marker=False, folder="-", names="-")], ids=["silent", "unreadable"])
def test_what_main1_cannot_read_is_compared_with_nothing(main1: dict[str, Any]) -> None:
    data, _set = mounts(main1=main1, sub1=sight(marker=False), sub2=sight(marker=False))
    assert (data["compared"], data["same"], data["unknown"]) == (None, None, ["main1", "sub1", "sub2"])


def test_a_leftover_marker_file_is_reported() -> None:
    data, read_only = mounts(("/data",), ("/data",), main1=sight(), sub1=sight(), sub2=sight())
    assert (data["marker_left"], read_only["marker_left"]) == (True, False)


RUNNING = queued(1, id=SESSION_ID, name="train-llm", state="RUNNING", plan=MADE)


@pytest.mark.parametrize("selector", [("train-llm", ""), ("", SESSION_ID), ("train-llm", SESSION_ID)])
def test_a_session_of_the_record_is_verified_by_its_plan(selector: tuple[str, str]) -> None:
    assert find_plan(*selector, [RUNNING]) == MADE


def refusal(name: str, session_id: str, *entries: Any) -> str:
    with pytest.raises(SessionNotFoundError) as refused:
        find_plan(name, session_id, entries)
    return str(refused.value)


def test_namesakes_are_distinguished_by_id() -> None:
    assert refusal("train-llm", "", RUNNING, dataclasses.replace(RUNNING, id=OTHER_ID)) == (
        f"session_name: 2 sessions are called 'train-llm': give session_id ({OTHER_ID}, {SESSION_ID})"
    )


def test_an_id_that_belongs_to_another_name_is_refused() -> None:
    sentence = f"session_id: {SESSION_ID!r} is the id of 'train-llm', not of 'other'"
    assert refusal("other", SESSION_ID, RUNNING) == sentence


def test_a_session_without_a_record_is_not_verified() -> None:
    assert refusal("ghost", "", RUNNING) == "this control node has no record of the session 'ghost'"
    assert refusal("", OTHER_ID, RUNNING) == f"this control node has no record of the session {OTHER_ID!r}"


def test_a_session_that_waits_or_has_ended_is_not_verified() -> None:
    waits, ended = queued(1), queued(2, state="TERMINATED", spec=None, record={"status": "TERMINATED"})
    assert refusal("session-1", "", waits, ended) == "the session 'session-1' is PENDING: no agent holds it"
    assert refusal("", waits.id, waits) == "the session 'session-1' is PENDING: no agent holds it"
    for state in ("TERMINATED", "TERMINATING"):
        ended = dataclasses.replace(ended, state=state)
        assert refusal("session-2", "", waits, ended) == "the session 'session-2' is TERMINATED"


def test_a_session_that_no_agent_holds_is_not_verified_unless_one_cannot_be_asked() -> None:
    with pytest.raises(SessionNotFoundError, match=r"^the session 'train-llm' is on no agent$"):
        report_of({})
    assert report_of({}, AgentReports({}, {"agent2": "no route"}))["session"]["status"] == "DEGRADED"


def test_what_is_not_there_has_a_report_of_the_same_shape() -> None:
    absent = not_found_report("ghost", "", "no session 'ghost' was found.")
    assert absent.keys() == report_of(parts(MADE)).keys()
    assert absent["session"] == {"id": None, "name": "ghost", "status": None}
    assert (absent["healthy"], absent["error"]) == (False, "no session 'ghost' was found.")


def test_a_plan_that_differs_from_the_record_is_drift() -> None:
    report = report_of(parts(MOUNTED))
    assert report["session"]["status"] == "RUNNING"
    expected = {"subject": "plan: mounts[0]", "expected": "missing"}
    drift = [{**expected, "agent": agent} for agent in ("agent1", "agent2")]
    assert [{key: each[key] for key in ("subject", "expected", "agent")} for each in report["drift"]] == drift
    assert "'/mnt/data'" in report["drift"][0]["actual"]
    assert report["mounts"] == []


def test_a_part_on_another_agent_is_drift() -> None:
    report = report_of({**parts(MADE), "agent3": part(MADE, "agent1")})
    assert report["drift"] == [{"agent": "agent3", "subject": "session train-llm", "actual": "held", "expected": None}]


def test_parts_of_other_sessions_are_ignored() -> None:
    other = dataclasses.replace(MADE, id=OTHER_ID)
    assert report_of({**parts(MADE), "agent3": part(other, "agent1")})["healthy"] is True
