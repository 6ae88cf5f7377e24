"""The action queue: a pass starts what waits as far as there is room, ends what is over, and updates gateways."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import mark_terminated, mark_terminating
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.store import TIMER_FILE, QueueStore
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.record import ended_record, session_record
from ansible_collections.backendai.cluster.plugins.plugin_utils.agent_calls import Answer
from ansible_collections.backendai.cluster.plugins.plugin_utils.interruption import InterruptionError
from tests.unit.builders import NONCE, NOW, plan, requested, spec
from tests.unit.plugins.action.asked_hosts import GONE, Asked, use_short_names
from tests.unit.plugins.action.conftest import Run
from tests.unit.plugins.action.session_site import SessionSite, note_shown

MakeSite = Callable[..., SessionSite]
OTHER_ID = "00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
BATCH = plan({"agent1": 1, "agent2": 1}, command="train")


@pytest.fixture
def make_site(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeSite:
    use_short_names(monkeypatch)

    def make(*cores: int, gateways: tuple[str, ...] = ()) -> SessionSite:
        site = SessionSite(run, tmp_path, cores or (8, 8), gateways)
        note_shown(site, monkeypatch)
        return site

    return make


def waiting(number: int, **asked: Any) -> Any:
    """Return a session that waits, of one container with one core."""
    return requested(number, spec(name=f"session-{number}", resources={"cpu": 1, "mem": "1g"}, **asked))


def states(queue: QueueStore) -> dict[str, str]:
    return {entry.name: entry.state for entry in queue.entries()}


def of(entry: Any) -> Callable[[Asked], bool]:
    """Return what says whether a request is for a start of this session."""
    return lambda asked: asked.phase == "start" and entry.id in [one["id"] for one in asked.options["sessions"]]


def hold_batch(site: SessionSite, *, over: bool = True) -> None:
    """Have all agents hold the batch session, whose command is ``over``."""
    for agent in site.agents.values():
        agent.parts[BATCH.id] = (BATCH, True)
        agent.stopped = {"main1": ("exited", 0)} if over else {}


def test_an_empty_queue_starts_nothing(make_site: MakeSite) -> None:
    site = make_site()
    result = site.queue()
    assert (result["sessions"], result["changed"], result.get("failed")) == ([], False, None)
    assert {phase for phase, _host in site.phases()} == {"survey"}


def test_several_sessions_start_at_once_and_gateways_get_their_routes(make_site: MakeSite, queue: QueueStore) -> None:
    queue.save(waiting(1), waiting(2))
    site = make_site(2, gateways=("gateway1",))
    result = site.queue()
    assert [record["status"] for record in result["sessions"]] == ["RUNNING", "RUNNING"]
    assert states(queue) == {"session-1": "RUNNING", "session-2": "RUNNING"}
    (asked,) = [asked for asked in site.asked if asked.phase == "start"]
    assert [entry["patience"] for entry in asked.options["sessions"]] == [15, 15]
    assert len([line for line in site.shown if line.endswith("is RUNNING.")]) == 2
    (update,) = [asked.options["routes"] for asked in site.asked if asked.phase == "routes" and asked.options["routes"]]
    assert sorted(route["name"] for route in update) == ["session-1", "session-2"]


def test_a_session_that_fails_does_not_keep_the_others_from_starting(make_site: MakeSite, queue: QueueStore) -> None:
    first, second = waiting(1), waiting(2)
    queue.save(first, second)
    site = make_site(8)

    def fault(asked: Asked) -> Answer | None:
        if not of(first)(asked):
            return None
        answer = site.agents[asked.host].reply(asked)
        assert isinstance(answer, dict)
        answer["sessions"][first.id] = {"failed": "no image."}
        return answer

    site.fault = fault
    result = site.queue()
    assert (result["failed"], result["msg"]) == (
        True,
        "the session 'session-1' was not created: agent1: no image.",
    )
    assert states(queue) == {"session-1": "PENDING", "session-2": "RUNNING"}
    assert [record["status"] for record in result["sessions"]] == ["PENDING", "RUNNING"]


def test_a_slow_session_is_completed_after_the_others_are_recorded(make_site: MakeSite, queue: QueueStore) -> None:
    slow, other = waiting(1), waiting(2)
    queue.save(slow, other)
    site, seen = make_site(8), []

    def fault(asked: Asked) -> Answer | None:
        if not of(slow)(asked):
            return None
        (entry,) = [one for one in asked.options["sessions"] if one["id"] == slow.id]
        if "ready" in entry["steps"]:
            seen.append(states(queue))
            return None
        answer = site.agents[asked.host].reply(asked)
        assert isinstance(answer, dict)
        answer["sessions"][slow.id] = {"steps": ["claim", "apply"], "starting": True}
        return answer

    site.fault = fault
    result = site.queue()
    assert seen == [{"session-1": "CREATING", "session-2": "RUNNING"}]
    assert states(queue) == {"session-1": "RUNNING", "session-2": "RUNNING"}
    assert [record["name"] for record in result["sessions"]] == ["session-2", "session-1"]


def test_an_interrupted_pass_keeps_what_is_complete_and_lets_the_rest_wait(
    make_site: MakeSite, queue: QueueStore
) -> None:
    slow, other = waiting(1), waiting(2)
    queue.save(slow, other)
    site = make_site(8)

    def fault(asked: Asked) -> Answer | None:
        if not of(slow)(asked):
            return None
        if "ready" in asked.options["sessions"][0]["steps"]:
            raise InterruptionError("interrupted by SIGTERM")
        answer = site.agents[asked.host].reply(asked)
        assert isinstance(answer, dict)
        answer["sessions"][slow.id] = {"steps": ["claim", "apply"], "starting": True}
        return answer

    site.fault = fault
    with pytest.raises(InterruptionError):
        site.queue()
    assert states(queue) == {"session-1": "PENDING", "session-2": "RUNNING"}
    assert {entry.name: entry.attempts for entry in queue.entries()} == {"session-1": 0, "session-2": 0}
    assert [name for agent in site.agents.values() for name in agent.parts] == [other.id]


def test_what_has_answered_before_an_interruption_stays(make_site: MakeSite, queue: QueueStore) -> None:
    """Its command runs: a session that is complete is not undone because the run still waits for another one."""
    asked = {"resources": {"cpu": 8, "mem": "1g"}, "command": "train"}
    done, other = requested(1, spec(name="session-1", **asked)), requested(2, spec(name="session-2", **asked))
    queue.save(done, other)
    site = make_site(8, 8)

    def fault(asked: Asked) -> Answer | None:
        if of(other)(asked):
            raise InterruptionError("interrupted by SIGTERM")
        return None

    site.fault = fault
    with pytest.raises(InterruptionError):
        site.queue()
    assert states(queue) == {"session-1": "RUNNING", "session-2": "PENDING"}
    assert [(name, agent.begun[name]) for agent in site.agents.values() for name in agent.parts] == [(done.id, 1)]


@pytest.mark.parametrize("over", [True, False])
def test_a_command_that_a_killed_run_has_begun_does_not_begin_again(
    make_site: MakeSite, queue: QueueStore, over: bool
) -> None:
    """A session of the queue that was started, and whose run died before it wrote that down."""
    queue.save(requested(9, id=BATCH.id, name=BATCH.name, plan=BATCH, nonce=NONCE, updated_at=0.0))
    site = make_site()
    hold_batch(site, over=over)
    site.agents["agent1"].begun[BATCH.id] = 1
    for _pass in range(2):
        site.queue()
    (entry,) = queue.entries()
    ended = ("TERMINATED", "TERMINATED", 0)
    running = ("RUNNING", "RUNNING", None)
    assert (entry.state, entry.record["status"], entry.record["exit_code"]) == (ended if over else running)
    assert [agent.begun[BATCH.id] for agent in site.agents.values()] == [1, 0]
    assert [agent.parts != {} for agent in site.agents.values()] == [not over] * 2


def test_a_session_whose_command_has_ended_is_removed_and_its_room_given_away(
    make_site: MakeSite, queue: QueueStore
) -> None:
    over = requested(9, id=BATCH.id, name=BATCH.name, state="RUNNING", plan=BATCH)
    queue.save(over, waiting(1))
    site = make_site(1, 1, gateways=("gateway1",))
    hold_batch(site)
    site.queue()
    assert states(queue) == {BATCH.name: "TERMINATED", "session-1": "RUNNING"}
    phases = [phase for phase, _host in site.phases()]
    assert phases.index("routes") < phases.index("reap") < phases.index("claim")
    assert [asked.options["unrouted"] for asked in site.asked if asked.phase == "reap"] == [[BATCH.id]] * 2
    assert f"Session {BATCH.name} is TERMINATED: the command ended with exit code 0." in site.shown


@pytest.mark.parametrize("check_mode", [True, False])
def test_what_ends_is_said_once_and_of_check_mode_that_it_would(
    make_site: MakeSite, queue: QueueStore, check_mode: bool
) -> None:
    queue.save(requested(9, id=BATCH.id, name=BATCH.name, state="RUNNING", plan=BATCH))
    site = make_site()
    hold_batch(site)
    # In check mode agents end nothing, and are found to hold it again.
    nothing = {"changed": True, "failures": {}, "ends": {BATCH.id: {}}}
    site.fault = lambda asked: nothing if check_mode and asked.phase == "reap" else None
    site.queue(check_mode=check_mode)
    says = "would be" if check_mode else "is"
    said = [line for line in site.shown if line.startswith("Session")]
    assert said == [f"Session {BATCH.name} {says} TERMINATED: the command ended with exit code 0."]


def test_what_agents_say_of_a_reap_is_a_warning(make_site: MakeSite, queue: QueueStore) -> None:
    queue.save(requested(9, id=BATCH.id, name=BATCH.name, state="RUNNING", plan=BATCH))
    site = make_site()
    hold_batch(site)
    failures = {
        "changed": False,
        "failures": {BATCH.id: "the engine hangs."},
        "ends": {BATCH.id: {"lost_output": ["x"]}},
    }
    site.fault = lambda asked: failures if asked.phase == "reap" else None
    warnings = site.queue()["warnings"]
    assert warnings == [f"{BATCH.id}: the engine hangs.", f"{BATCH.id}: output was lost: x"]


def test_an_agent_that_could_not_end_a_session_is_asked_again_though_it_holds_nothing(
    make_site: MakeSite, queue: QueueStore
) -> None:
    """A request for it may still be about to claim."""
    killed = requested(9, id=BATCH.id, name=BATCH.name, state="CREATING", plan=BATCH, attended=True)
    queue.save(killed)
    site = make_site()
    failed = {"changed": False, "failures": {BATCH.id: "the lock is held."}, "ends": {BATCH.id: {}}}
    site.fault = lambda asked: failed if (asked.phase, asked.host) == ("reap", "agent2") else None
    assert site.queue()["warnings"] == [f"{BATCH.id}: the lock is held."]
    assert [(entry.state, entry.agents) for entry in queue.entries()] == [("TERMINATING", ("agent2",))]
    site.fault = lambda _asked: None
    site.queue()
    (entry,) = queue.entries()
    assert (entry.state, entry.record["status"]) == ("TERMINATED", "ERROR")
    ends = [(asked.host, asked.options["end"]) for asked in site.asked if asked.phase == "reap"]
    assert ends == [("agent1", [BATCH.id]), ("agent2", [BATCH.id]), ("agent2", [BATCH.id])]


def test_a_session_starts_again_when_agents_have_refused_its_last_start(make_site: MakeSite, queue: QueueStore) -> None:
    """A request of the run that was killed may be about to claim, and to start the command a second time."""
    asked = spec(name=BATCH.name, command="train", cluster_size=2, resources={"cpu": 1, "mem": "1g"})
    queue.save(requested(9, asked, id=BATCH.id, plan=BATCH, nonce=NONCE, updated_at=0.0))
    site = make_site()
    failed = {"changed": False, "failures": {BATCH.id: "the disk is full."}, "ends": {}}
    site.fault = lambda asked: failed if (asked.phase, asked.host) == ("reap", "agent2") else None
    assert site.queue()["warnings"] == [f"{BATCH.id}: the disk is full."]
    withdrawn = [(asked.host, asked.options["withdraw"]) for asked in site.asked if asked.phase == "reap"]
    assert withdrawn == [("agent1", {BATCH.id: NONCE}), ("agent2", {BATCH.id: NONCE})]
    (entry,) = queue.entries()
    reason = entry.record["pending"]["reason"]
    assert (entry.state, entry.nonce) == ("PENDING", NONCE)
    refusal = "it could not refuse the last start of a session"
    assert reason.startswith(f"agent2 may have begun its command, and cannot be used (agent2: {refusal}): ")
    site.fault = lambda _asked: None
    site.queue()
    (entry,) = queue.entries()
    assert (entry.state, entry.nonce in ("", NONCE)) == ("RUNNING", False)


def test_how_a_session_has_ended_is_recorded_though_another_run_has_removed_it_meanwhile(
    make_site: MakeSite, queue: QueueStore
) -> None:
    queue.save(requested(9, id=BATCH.id, name=BATCH.name, state="RUNNING", plan=BATCH))
    site = make_site()
    hold_batch(site)

    def fault(asked: Asked) -> Answer | None:
        if asked.phase != "reap":
            return None
        answer = site.agents[asked.host].reply(asked)
        (entry,) = queue.entries()
        queue.save(mark_terminated(entry, {**entry.record, "grace_exceeded": False}, NOW))
        return {**answer, "ends": {BATCH.id: {"grace_exceeded": True}}} if isinstance(answer, dict) else answer

    site.fault = fault
    site.queue()
    (entry,) = queue.entries()
    assert (entry.state, entry.record["grace_exceeded"]) == ("TERMINATED", True)


def test_an_agent_has_no_say_about_the_end_of_sessions_that_it_was_not_asked_to_end(
    make_site: MakeSite, queue: QueueStore
) -> None:
    """It cannot write into their records, and what it says about them is said to be its own words."""
    other = dataclasses.replace(plan({"agent1": 1}, name="other"), id=OTHER_ID)
    gone = ended_record(session_record(other, "TERMINATED"), "TERMINATED", "its time was up", None, NOW, NOW)
    waits_for_agent1 = requested(8, id=OTHER_ID, name="other", state="RUNNING", plan=other)
    queue.save(mark_terminating(waits_for_agent1, gone, ["agent1"], NOW))
    over = plan({"agent2": 1}, command="train")
    queue.save(requested(9, id=over.id, name=over.name, state="RUNNING", plan=over))
    site = make_site()
    site.agents["agent2"].parts[over.id] = (over, True)
    site.agents["agent2"].stopped = {"main1": ("exited", 0)}
    lie = {"grace_exceeded": True, "lost_output": ["all of it"]}

    def fault(asked: Asked) -> Answer | None:
        if asked.host == "agent1":
            return GONE if asked.phase == "survey" else None
        answer = site.agents[asked.host].reply(asked)
        if asked.phase != "reap" or not isinstance(answer, dict):
            return answer
        return {**answer, "failures": {OTHER_ID: "it was stolen."}, "ends": {OTHER_ID: lie}}

    site.fault = fault
    warnings = site.queue()["warnings"]
    (entry,) = [entry for entry in queue.entries() if entry.id == OTHER_ID]
    assert (entry.state, entry.record) == ("TERMINATING", gone)
    assert f"agent2: {OTHER_ID}: it was stolen." in warnings
    assert not [text for text in warnings if "all of it" in text]


def test_held_sessions_do_not_start(make_site: MakeSite, queue: QueueStore) -> None:
    first, second = waiting(1), waiting(2)
    queue.save(first, second)
    make_site(8).queue(variables={"__session_held": [first.id]})
    assert states(queue) == {"session-1": "PENDING", "session-2": "RUNNING"}


def test_a_manager_without_a_word_for_it_starts_none(make_site: MakeSite, queue: QueueStore) -> None:
    queue.save(waiting(1))
    make_site(8).queue(variables={"__session_starts_none": True})
    assert states(queue) == {"session-1": "PENDING"}


def test_an_invalid_option_is_refused(make_site: MakeSite) -> None:
    site = make_site()
    result = site.queue(history_days=-1)
    assert (result["failed"], result["refused"], site.asked) == (True, True, [])
    assert result["msg"].startswith("history_days: ")


def test_only_a_pass_of_the_timer_is_noted(make_site: MakeSite, queue: QueueStore) -> None:
    site = make_site()
    site.queue()
    site.queue(variables={"__session_timer_interval": 60.0}, check_mode=True)
    assert not (queue.path / TIMER_FILE).exists()
    site.queue(variables={"__session_timer_interval": 60.0})
    assert (queue.path / TIMER_FILE).read_text() == f"{os.uname().nodename} 60.0"


def test_a_note_that_cannot_be_written_is_a_warning_and_the_pass_has_its_result(
    make_site: MakeSite, queue: QueueStore
) -> None:
    queue.save(waiting(1))
    (queue.path / TIMER_FILE).mkdir()
    result = make_site(8).queue(variables={"__session_timer_interval": 60.0})
    assert [record["status"] for record in result["sessions"]] == ["RUNNING"]
    assert [text for text in result["warnings"] if "cannot be written" in text]


def test_a_pass_that_fails_is_not_noted(make_site: MakeSite, queue: QueueStore) -> None:
    def interrupt(_asked: Asked) -> None:
        raise InterruptionError("interrupted")

    site = make_site()
    site.fault = interrupt
    with pytest.raises(InterruptionError):
        site.queue(variables={"__session_timer_interval": 60.0})
    assert not (queue.path / TIMER_FILE).exists()
