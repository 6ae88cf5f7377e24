"""The action session with state=absent: a session is marked before anything is changed, and then in the history."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import mark_terminated, mark_terminating
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.store import QueueStore
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.record import ended_record, session_record
from ansible_collections.backendai.cluster.plugins.plugin_utils.agent_calls import Answer, Failure
from ansible_collections.backendai.cluster.plugins.plugin_utils.interruption import InterruptionError
from tests.unit.builders import NOW, SESSION_ID, plan, requested
from tests.unit.plugins.action.asked_hosts import GONE, Asked, use_short_names
from tests.unit.plugins.action.conftest import Run
from tests.unit.plugins.action.session_site import SessionSite, note_shown

MADE = plan()
OTHER_ID = "00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
RECORD = ended_record(session_record(MADE, "TERMINATED"), "TERMINATED", "on request", None, NOW, NOW)
RUNNING = requested(9, id=MADE.id, name="train-llm", state="RUNNING", plan=MADE)
NOTE = mark_terminating(RUNNING, RECORD, MADE.agents, NOW)
MakeSite = Callable[..., SessionSite]


@pytest.fixture
def make_site(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeSite:
    """Return a function that makes a site, whose first two agents hold the session."""
    use_short_names(monkeypatch)

    def make(*, gateways: tuple[str, ...] = (), held: bool = True) -> SessionSite:
        site = SessionSite(run, tmp_path, (8, 8, 8), gateways)
        for agent in ("agent1", "agent2") if held else ():
            site.agents[agent].parts[MADE.id] = (MADE, True)
        note_shown(site, monkeypatch)
        return site

    return make


def away(*agents: str, phase: str = "") -> Callable[[Asked], Answer | None]:
    """Return a fault by which agents do not answer, from a phase on."""
    begun = [not phase]

    def fault(asked: Asked) -> Answer | None:
        begun[0] |= asked.phase == phase
        return GONE if begun[0] and asked.host in agents else None

    return fault


def end(site: SessionSite, **args: Any) -> dict[str, Any]:
    return site.session(state="absent", **args)


@pytest.mark.parametrize(
    "selected",
    [{"name": "train-llm"}, {"name": "train-llm", "id": ""}, {"id": SESSION_ID}, {"name": "", "id": SESSION_ID}],
    ids=["name", "name, empty id", "id", "id, empty name"],
)
def test_a_session_is_removed_from_all_agents(make_site: MakeSite, queue: QueueStore, selected: dict[str, str]) -> None:
    queue.save(RUNNING)
    site = make_site(gateways=("gateway1",))
    states = []

    def fault(asked: Asked) -> Answer | None:
        if asked.phase in ("routes", "remove"):
            states.append((asked.phase, [entry.state for entry in queue.entries()]))
        return None

    site.fault = fault
    result = end(site, **selected)
    # Gateways are told before the agents remove it, and it is marked before.
    assert states == [("routes", ["TERMINATING"]), ("remove", ["TERMINATING"]), ("remove", ["TERMINATING"])]
    assert (result["session"]["status"], result["changed"], result.get("failed")) == ("TERMINATED", True, None)
    (entry,) = queue.entries()
    assert (entry.id, entry.state, entry.agents, entry.record) == (SESSION_ID, "TERMINATED", (), result["session"])
    assert (site.record, site.shown) == (result["session"], ["Session train-llm is TERMINATED."])
    requests = [asked.options for asked in site.asked if asked.phase == "remove"]
    assert [request["sessions"] for request in requests] == [[{"id": SESSION_ID, "nonce": None}]] * 2
    assert {tuple(request["unrouted"]) for request in requests} == {(SESSION_ID,)}


def test_agents_keep_the_ports_that_a_gateway_may_still_lead_to(make_site: MakeSite, queue: QueueStore) -> None:
    queue.save(RUNNING)
    site = make_site(gateways=("gateway1", "gateway2"))
    site.fault = away("gateway2")
    end(site, name="train-llm")
    assert {tuple(asked.options["unrouted"]) for asked in site.asked if asked.phase == "remove"} == {()}


@pytest.mark.parametrize("selected", [{"name": "other"}, {"id": OTHER_ID}, {"name": "train", "id": ""}])
def test_an_unknown_session_needs_no_termination(
    make_site: MakeSite, queue: QueueStore, selected: dict[str, str]
) -> None:
    site = make_site()
    result = end(site, **selected)
    assert (result["session"]["status"], result["changed"], queue.entries()) == ("TERMINATED", False, [])
    assert {phase for phase, _host in site.phases()} == {"survey"}


def test_a_session_without_a_record_is_ended_by_its_id(make_site: MakeSite, queue: QueueStore) -> None:
    site = make_site()
    refused = end(site, name="train-llm")
    assert (refused["failed"], refused["refused"]) == (True, False)
    assert "this control node has no record of 'train-llm', and agents" in refused["msg"]
    result = end(site, id=SESSION_ID)
    assert result["session"]["name"] == "train-llm"
    assert [(entry.id, entry.state) for entry in queue.entries()] == [(SESSION_ID, "TERMINATED")]
    assert not any(agent.parts for agent in site.agents.values())


def test_a_session_that_nobody_names_is_refused(make_site: MakeSite) -> None:
    result = end(make_site())
    assert (result["failed"], result["refused"]) == (True, True)
    assert result["msg"] == "session_name or session_id is required."


def test_a_partial_termination_is_rejected(make_site: MakeSite, queue: QueueStore) -> None:
    queue.save(RUNNING)
    site = make_site()
    site.fault = away("agent2")
    result = end(site, name="train-llm")
    assert result["msg"] == (
        "the session 'train-llm' has containers on agents that cannot be used, so nothing was ended:"
        " agent2: no route to host; with session_force it is removed from them when they return."
    )
    assert [entry.state for entry in queue.entries()] == ["RUNNING"]
    assert len(site.agents["agent1"].parts) == 1


def test_force_skips_unreachable_agents(make_site: MakeSite, queue: QueueStore) -> None:
    queue.save(RUNNING)
    site = make_site()
    site.fault = away("agent2")
    result = end(site, name="train-llm", force=True)
    assert result["warnings"] == ["agent2 is left out: no route to host."]
    assert [(entry.state, entry.agents) for entry in queue.entries()] == [("TERMINATING", ("agent2",))]
    assert site.shown[1] == "  agent2: the next run that reaches it removes the session there."
    assert {asked.options["force"] for asked in site.asked if asked.phase == "remove"} == {True}


@pytest.mark.parametrize("force", [False, True])
def test_a_removal_that_fails_is_said_and_goes_on_later(make_site: MakeSite, queue: QueueStore, force: bool) -> None:
    def fault(asked: Asked) -> Answer | None:
        if asked.host != "agent2":
            return None
        answers: dict[str, Answer] = {
            "remove": {"sessions": {SESSION_ID: {"failed": "the engine hangs."}}},
            "reap": {"changed": False, "failures": {SESSION_ID: "the engine hangs."}, "ends": {}},
        }
        return answers.get(asked.phase)

    queue.save(RUNNING)
    site = make_site()
    site.fault = fault
    result = end(site, name="train-llm", force=force)
    (entry,) = queue.entries()
    assert (entry.state, "agent2" in entry.agents) == ("TERMINATING", True)
    if force:
        assert "agent2: the engine hangs." in result["warnings"]
    else:
        assert (result["failed"], result["msg"]) == (True, "agent2: the engine hangs.")


def test_what_some_agents_say_of_an_end_is_recorded_though_it_fails_on_others(
    make_site: MakeSite, queue: QueueStore
) -> None:
    """The next run ends it on the others alone, and nobody says it again."""
    queue.save(RUNNING)
    site = make_site()
    answers: dict[str, Answer] = {
        "agent1": {"sessions": {SESSION_ID: {"grace_exceeded": True, "lost_output": ["main1: no room"]}}},
        "agent2": {"sessions": {SESSION_ID: {"failed": "the engine hangs."}}},
    }
    site.fault = lambda asked: answers[asked.host] if asked.phase == "remove" else None
    assert end(site, name="train-llm")["failed"]
    site.agents["agent1"].parts.clear()
    site.fault = lambda _asked: None
    end(site, name="train-llm")
    (entry,) = queue.entries()
    known = (entry.state, entry.record["grace_exceeded"], entry.record["lost_output"])
    assert known == ("TERMINATED", True, ["main1: no room"])


def test_a_termination_that_is_repeated_in_vain_changes_nothing(make_site: MakeSite, queue: QueueStore) -> None:
    queue.save(NOTE)
    site = make_site()
    failed: dict[str, Answer] = {
        "remove": {"sessions": {SESSION_ID: {"failed": "the engine hangs."}}},
        "reap": {"changed": False, "failures": {SESSION_ID: "the engine hangs."}, "ends": {SESSION_ID: {}}},
    }
    site.fault = lambda asked: failed.get(asked.phase)
    result = end(site, name="train-llm", force=True)
    assert (result["changed"], result["session"]["status"]) == (False, "TERMINATED")
    assert [entry.state for entry in queue.entries()] == ["TERMINATING"]


def test_a_session_of_a_killed_run_is_cancelled_though_an_agent_cannot_end_it(
    make_site: MakeSite, queue: QueueStore
) -> None:
    queue.save(requested(9, id=MADE.id, name="train-llm", state="CREATING", attended=True, plan=MADE))
    site = make_site(held=False)
    failed: dict[str, Answer] = {
        "remove": {"sessions": {SESSION_ID: {"failed": "the lock is held."}}},
        "reap": {"changed": False, "failures": {SESSION_ID: "the lock is held."}, "ends": {SESSION_ID: {}}},
    }
    site.fault = lambda asked: failed.get(asked.phase) if asked.host == "agent2" else None
    result = end(site, name="train-llm")
    assert (result["changed"], result["session"]["status"]) == (True, "CANCELLED")
    assert "agent2: the lock is held." in result["warnings"]
    assert [(entry.state, entry.agents) for entry in queue.entries()] == [("TERMINATING", ("agent2",))]
    again = end(site, name="train-llm")
    assert (again["changed"], again["session"]["status"]) == (False, "CANCELLED")


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ({"sessions": {SESSION_ID: {"failed": None}}}, "it failed, and gave no reason."),
        ({"sessions": {SESSION_ID: {"failed": "the engine\nhangs"}}}, "the engine hangs."),
        (Failure("the engine\nhangs."), "the engine hangs."),
    ],
)
def test_why_a_removal_fails_is_one_sentence(make_site: MakeSite, queue: QueueStore, said: Answer, shown: str) -> None:
    queue.save(RUNNING)
    site = make_site()
    site.fault = lambda asked: said if asked.phase == "remove" else None
    assert end(site, name="train-llm")["msg"] == f"agent1: {shown} agent2: {shown}"


def test_an_unread_agent_may_run_an_unknown_session(make_site: MakeSite, queue: QueueStore) -> None:
    site = make_site(held=False)
    site.hidden = {"agent3"}
    assert end(site, id=OTHER_ID)["msg"] == (
        f"this control node has no record of the session {OTHER_ID}, and not all agents are available: agent3: hidden"
        " by --limit; with session_force it is removed from them when they return."
    )
    result = end(site, id=OTHER_ID, force=True)
    assert result["changed"] is True
    assert [(entry.state, entry.agents) for entry in queue.entries()] == [("TERMINATING", ("agent3",))]


def test_cancelling_a_pending_session_is_a_change(make_site: MakeSite, queue: QueueStore) -> None:
    queue.save(requested(1))
    result = end(make_site(held=False), name="session-1")
    assert (result["changed"], result["session"]["status"]) == (True, "CANCELLED")
    assert [(entry.state, entry.spec) for entry in queue.entries()] == [("TERMINATED", None)]


@pytest.mark.parametrize("name", ["train-llm", "session-1"])
def test_check_mode_saves_nothing(make_site: MakeSite, queue: QueueStore, name: str) -> None:
    queue.save(RUNNING if name == "train-llm" else requested(1))
    before, site = queue.entries(), make_site(held=name == "train-llm")
    site.fault = lambda asked: {"changed": False, "sessions": {SESSION_ID: {}}} if asked.phase == "remove" else None
    result = end(site, name=name, check_mode=True)
    assert (result["changed"], queue.entries(), site.record) == (True, before, None)
    assert site.shown[0] == f"Session {name} was not touched: this is check mode."


def test_the_record_says_whether_the_grace_was_exceeded_and_what_was_lost(
    make_site: MakeSite, queue: QueueStore
) -> None:
    queue.save(RUNNING)
    site = make_site()
    site.fault = lambda asked: (
        {"sessions": {MADE.id: {"grace_exceeded": True, "lost_output": ["sub1: no room"]}}}
        if (asked.phase, asked.host) == ("remove", "agent2")
        else None
    )
    result = end(site, name="train-llm")
    assert (site.record["grace_exceeded"], site.record["lost_output"]) == (True, ["sub1: no room"])
    assert f"{MADE.id}: output was lost: sub1: no room" in result["warnings"]


@pytest.mark.parametrize(("told", "known"), [(True, False), (False, True)], ids=["this run", "the other run"])
def test_what_two_runs_that_end_a_session_at_once_are_told_is_in_its_record(
    make_site: MakeSite, queue: QueueStore, told: bool, known: bool
) -> None:
    queue.save(RUNNING)
    site = make_site()

    def fault(asked: Asked) -> Answer | None:
        if (asked.phase, asked.host) != ("remove", "agent2"):
            return None
        (entry,) = queue.entries()
        queue.save(mark_terminated(entry, {**entry.record, "grace_exceeded": known}, NOW))
        return {"sessions": {MADE.id: {"grace_exceeded": True} if told else {}}}

    site.fault = fault
    end(site, name="train-llm")
    (entry,) = queue.entries()
    assert (entry.state, entry.record["grace_exceeded"], site.record["grace_exceeded"]) == ("TERMINATED", True, True)


def test_an_agent_that_only_says_that_it_holds_a_part_has_no_say_in_the_record(
    make_site: MakeSite, queue: QueueStore
) -> None:
    queue.save(RUNNING)
    site = make_site()
    site.agents["agent3"].parts[MADE.id] = (MADE, True)
    site.fault = lambda asked: (
        {"sessions": {MADE.id: {"grace_exceeded": True, "lost_output": ["all of it"]}}}
        if (asked.phase, asked.host) == ("remove", "agent3")
        else None
    )
    end(site, name="train-llm")
    assert ("remove", "agent3") in site.phases()
    assert (site.record["grace_exceeded"], "lost_output" in site.record) == (False, False)


@pytest.mark.parametrize("waits", [True, False])
def test_pending_sessions_start_after_a_termination(make_site: MakeSite, queue: QueueStore, waits: bool) -> None:
    queue.save(RUNNING)
    if waits:
        queue.save(requested(2))
    end(make_site(), name="train-llm")
    states = {entry.name: entry.state for entry in queue.entries()}
    assert states == {"train-llm": "TERMINATED", **({"session-2": "RUNNING"} if waits else {})}


def test_what_an_earlier_run_could_not_remove_goes_when_its_agent_is_back(
    make_site: MakeSite, queue: QueueStore
) -> None:
    queue.save(NOTE)
    site = make_site()
    end(site, name="other")
    assert [entry.state for entry in queue.entries()] == ["TERMINATED"]
    assert [asked.options["end"] for asked in site.asked if asked.phase == "reap"] == [[SESSION_ID]] * 2


def test_an_interruption_leaves_a_session_that_the_next_run_ends(make_site: MakeSite, queue: QueueStore) -> None:
    def fault(asked: Asked) -> Answer | None:
        if (asked.phase, asked.host) == ("remove", "agent2"):
            raise InterruptionError("interrupted by SIGINT")
        return None

    queue.save(RUNNING)
    site = make_site()
    site.fault = fault
    with pytest.raises(InterruptionError):
        end(site, name="train-llm")
    assert [entry.state for entry in queue.entries()] == ["TERMINATING"]
    site.fault = lambda _asked: None
    assert end(site, name="train-llm")["session"]["status"] == "TERMINATED"
    assert [entry.state for entry in queue.entries()] == ["TERMINATED"]
    assert not any(agent.parts for agent in site.agents.values())
