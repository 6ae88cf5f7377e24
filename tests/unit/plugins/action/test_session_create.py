"""The action session: a session is created, or undone, in one task that asks all hosts itself."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible.playbook.task import Task

from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import QueueEntry, mark_terminating
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.owner import current_owner
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.store import QueueStore
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.record import ended_record
from ansible_collections.backendai.cluster.plugins.plugin_utils._run import hosts, session_run
from ansible_collections.backendai.cluster.plugins.plugin_utils._run.crew import TITLES
from ansible_collections.backendai.cluster.plugins.plugin_utils.agent_calls import Answer, Failure
from ansible_collections.backendai.cluster.plugins.plugin_utils.interruption import InterruptionError
from tests.unit.builders import IMAGE, NONCE, NOW, SESSION_ID, plan, requested, spec
from tests.unit.plugins.action.asked_hosts import GONE, Asked, use_short_names
from tests.unit.plugins.action.conftest import Run
from tests.unit.plugins.action.session_site import SessionSite, gateway_reply, note_shown

ASKED: dict[str, Any] = {
    "name": "train-llm",
    "image": IMAGE,
    "cluster_mode": "multi-node",
    "cluster_size": 4,
    "resources": {"cpu": 2, "mem": "1g"},
    "env": {"TOKEN": "hunter2"},
}
ADVISED = 3
"""How many lines are said first: what the session takes, that it keeps nothing, and that nobody can log in."""

MakeSite = Callable[..., SessionSite]


@pytest.fixture
def make_site(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeSite:
    """Return a function that makes a site; runs do not sleep."""
    use_short_names(monkeypatch)
    for module in (session_run, hosts):
        monkeypatch.setattr(module.time, "sleep", lambda _seconds: None)

    def make(*cores: int, gateways: tuple[str, ...] = ()) -> SessionSite:
        site = SessionSite(run, tmp_path, cores or (4, 4), gateways)
        note_shown(site, monkeypatch)
        return site

    return make


def of_step(asked: Asked, step: str) -> bool:
    """Return whether a request is for a step of a start, or is of a phase."""
    return step in asked.options["sessions"][0]["steps"] if asked.phase == "start" else asked.phase == step


def refused_once(site: SessionSite) -> None:
    """Have agent2 refuse the first claim."""
    left = [1]

    def fault(asked: Asked) -> Answer | None:
        if of_step(asked, "claim") and asked.host == "agent2" and left:
            left.clear()
            return {"sessions": {entry["id"]: {"refused": "agent2: too late."} for entry in asked.options["sessions"]}}
        return None

    site.fault = fault


def fails(step: str, host: str, reason: str = "no image.") -> Callable[[Asked], Answer | None]:
    """Return a fault by which a step fails on a host."""

    def fault(asked: Asked) -> Answer | None:
        if of_step(asked, step) and asked.host == host:
            return {"sessions": {entry["id"]: {"failed": reason} for entry in asked.options["sessions"]}}
        return None

    return fault


# ---- a start


def test_a_session_is_created_on_two_agents(make_site: MakeSite, queue: QueueStore) -> None:
    site = make_site(gateways=("gateway1",))
    result = site.session(**ASKED)
    record = result["session"]
    assert (record["status"], [kernel["agent"] for kernel in record["kernels"]]) == (
        "RUNNING",
        ["agent1", "agent1", "agent2", "agent2"],
    )
    assert site.phases() == [
        *(("survey", name) for name in site.agents),
        *(("claim", name) for name in site.agents),
        *(("apply", name) for name in site.agents),
        ("routes", "gateway1"),
    ]
    assert (result["changed"], result.get("failed"), result["refused"], result["unavailable"]) == (
        True,
        None,
        False,
        {},
    )
    assert result["access"] == [{"gateway": "gateway1", "ssh": {"host": "gateway1", "port": 31001}, "apps": []}]
    assert site.record == record
    assert stat.S_IMODE((site.folder / "record.json").stat().st_mode) == 0o600
    (entry,) = queue.entries()
    assert (entry.state, entry.owner, entry.record) == ("RUNNING", None, record)
    assert site.shown[ADVISED] == "Session train-llm is RUNNING."
    assert "  [gateway1]:31001 HOST-main1" in site.shown


def test_the_result_holds_no_secret(make_site: MakeSite) -> None:
    site = make_site()
    result = site.session(**ASKED)
    assert "hunter2" not in json.dumps(result)
    assert "hunter2" in json.dumps([asked.options for asked in site.asked])
    assert not [line for line in site.shown + site.progress if "hunter2" in line]


def test_variables_stand_for_options_that_are_not_given(make_site: MakeSite, queue: QueueStore) -> None:
    site = make_site()
    variables = {"session_name": "of-the-inventory", "session_image": IMAGE, "session_priority": 7}
    site.session(variables=variables, name="of-the-task")
    assert [(entry.name, entry.priority) for entry in queue.entries()] == [("of-the-task", 7)]


def test_each_step_and_host_is_a_line_of_progress(make_site: MakeSite) -> None:
    site = make_site()
    site.session(**ASKED)
    assert site.progress == [
        line
        for step in ("Survey the agents", "Claim resources", "Start the containers")
        for line in (f"{step}: begun", f"{step} (agent1): done", f"{step} (agent2): done")
    ]


def test_a_session_without_room_waits_in_the_queue(make_site: MakeSite, queue: QueueStore) -> None:
    site = make_site(1, 1)
    result = site.session(**ASKED)
    assert (result["session"]["status"], result.get("failed")) == ("PENDING", None)
    assert (site.record["status"], site.record["pending"]) == ("PENDING", result["session"]["pending"])
    assert [entry.state for entry in queue.entries()] == ["PENDING"]
    assert site.shown[ADVISED] == "Session train-llm is PENDING."
    assert site.phases("survey") == []


def test_images_are_pulled_before_the_containers_start(make_site: MakeSite) -> None:
    site = make_site()
    result = site.session(**{**ASKED, "image": "other:1"})
    assert result["session"]["status"] == "RUNNING"
    phases = site.phases("survey")
    assert [phase for phase, _host in phases] == ["claim"] * 2 + ["pull"] * 4 + ["apply"] * 2
    # After the last pull, the claims are renewed.
    names = [asked.options["name"] for asked in site.asked if asked.phase == "pull"]
    assert names == ["other:1", "other:1", "", ""]
    assert [line for line in site.progress if line.startswith("Pull")] == [
        f"Pull images ({name}): {state}" for state in ("begun", "done") for name in ("agent1", "agent2")
    ]


def test_a_plan_is_shown_with_the_differences_of_agents(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Task, "diff", True)
    (plan_of, *_others) = make_site().session(**ASKED)["diff"]
    assert plan_of["before_header"] == "train-llm"
    assert plan_of["after"].startswith("session train-llm: multi-node, 4 containers of lab/python:1\n")


def test_check_mode_changes_nothing_and_says_what_would_change(make_site: MakeSite, queue: QueueStore) -> None:
    site = make_site()
    result = site.session(check_mode=True, **ASKED)
    assert (result["changed"], result["session"]["status"]) == (True, "RUNNING")
    assert (queue.entries(), site.record) == ([], None)
    told = ["It would start now, on agent1, agent2.", "Session train-llm was not touched: this is check mode."]
    assert site.shown[ADVISED:] == told


def test_a_gateway_that_is_away_is_a_warning(make_site: MakeSite) -> None:
    site = make_site(gateways=("gateway1",))
    site.fault = lambda asked: GONE if asked.phase == "routes" else None
    result = site.session(**ASKED)
    assert (result["session"]["status"], result["access"], result.get("failed")) == ("RUNNING", [], None)
    assert result["warnings"] == [
        "gateway1: no route to host; the next run of backendai.cluster.schedule_sessions updates its routes."
    ]


def test_a_gateway_behind_the_limit_is_not_asked(make_site: MakeSite) -> None:
    site = make_site(gateways=("gateway1",))
    site.hidden = {"gateway1"}
    site.session(**ASKED)
    assert ("routes", "gateway1") not in site.phases()


# ---- what is refused


def test_an_invalid_option_is_refused_by_its_name_before_any_host_is_asked(make_site: MakeSite) -> None:
    site = make_site()
    result = site.session(**{**ASKED, "cluster_size": 0})
    assert (result["failed"], result["refused"], result["changed"]) == (True, True, False)
    assert result["msg"].startswith("cluster_size: ")
    assert (site.asked, site.record["status"]) == ([], "ERROR")


def test_an_unknown_option_is_refused_with_the_one_that_was_meant(make_site: MakeSite) -> None:
    result = make_site().session(**ASKED, cluster_sizes=3)
    assert (result["failed"], result["refused"]) == (True, True)
    assert result["msg"] == "cluster_sizes is not an option of a session; did you mean cluster_size?"


@pytest.mark.parametrize("away", [False, True])
def test_a_session_that_cannot_be_planned_is_refused_unless_an_agent_is_away(make_site: MakeSite, away: bool) -> None:
    site = make_site(4, 4)
    site.fault = lambda asked: GONE if away and asked.host == "agent2" else None
    result = site.session(**{**ASKED, "resource_group": "gpu"})
    assert (result["failed"], result["refused"]) == (True, not away)
    assert (site.record["status"], site.record["error"]) == ("ERROR", result["msg"])
    if away:
        assert "agent2 is left out: no route to host." in site.warned
        assert result["unavailable"] == {"agent2": {"problem": "unreachable", "reason": "no route to host"}}


# ---- other runs were faster


@pytest.mark.parametrize("command", ["", "python train.py"])
def test_a_lost_claim_is_planned_again_after_a_new_survey(make_site: MakeSite, queue: QueueStore, command: str) -> None:
    site = make_site()
    refused_once(site)
    result = site.session(**ASKED, command=command)
    assert (result["session"]["status"], result.get("failed")) == ("RUNNING", None)
    phases = [phase for phase, _host in site.phases()]
    # Room may have become free for others: the run looks at the queue if something waits there.
    assert phases == ["survey", "survey", "claim", "claim", "remove", "remove"] + ["survey"] * 2 + ["claim"] * 2 + [
        "apply",
        "apply",
        *(["command"] if command else []),
    ]
    assert [entry.state for entry in queue.entries()] == ["RUNNING"]


def test_what_a_killed_run_was_starting_is_left_to_who_repeats_it(make_site: MakeSite, queue: QueueStore) -> None:
    """A run for another session has agents refuse that start, and says nothing about it: nothing has ended."""
    killed = plan({"agent1": 1, "agent2": 1}, name="other")
    left: dict[str, Any] = {"id": killed.id, "plan": killed, "nonce": NONCE, "state": "CREATING", "attended": True}
    queue.save(requested(9, spec(name="other"), updated_at=0.0, **left))
    site = make_site()
    assert site.session(**ASKED)["session"]["status"] == "RUNNING"
    assert [asked.options["withdraw"] for asked in site.asked if asked.phase == "reap"] == [{killed.id: NONCE}] * 2
    (entry,) = [entry for entry in queue.entries() if entry.name == "other"]
    assert (entry.state, entry.plan, entry.nonce) == ("CREATING", None, "")
    assert [line for line in site.shown if "other" in line] == []


@pytest.mark.parametrize("waits", [True, False])
def test_a_start_that_takes_over_what_a_killed_run_has_committed_is_undone_when_it_fails(
    make_site: MakeSite, queue: QueueStore, waits: bool
) -> None:
    site = make_site()
    site.session(**ASKED, command="train")
    (entry,) = queue.entries()
    queue.save(dataclasses.replace(entry, state="PENDING" if waits else "CREATING", attended=not waits))
    site.agents["agent1"].begun.clear()

    def fault(asked: Asked) -> Answer | None:
        if of_step(asked, "apply") and asked.host == "agent2":
            return {"sessions": {each["id"]: {"failed": "the disk is full."} for each in asked.options["sessions"]}}
        return None

    site.fault = fault
    result = site.session(**ASKED, command="train")
    assert result["msg"] == "the session 'train-llm' was not created: agent2: the disk is full."
    assert [agent.parts for agent in site.agents.values()] == [{}, {}]
    (entry,) = queue.entries()
    assert entry.state == ("PENDING" if waits else "TERMINATED")


def test_a_session_waits_after_too_many_lost_claims(make_site: MakeSite, queue: QueueStore) -> None:
    site = make_site()

    def fault(asked: Asked) -> Answer | None:
        if of_step(asked, "claim"):
            return {"sessions": {entry["id"]: {"refused": "too late"} for entry in asked.options["sessions"]}}
        return None

    site.fault = fault
    result = site.session(variables={"session_claim_attempts": 2}, **ASKED)
    assert (result["session"]["status"], result.get("failed")) == ("PENDING", None)
    # Two attempts, and one of the pass over the queue that follows a claim which was given back.
    assert len([phase for phase, _host in site.phases() if phase == "claim"]) == 6
    assert site.record["pending"]["reason"] == "it will be retried: too late; too late"
    assert [entry.state for entry in queue.entries()] == ["PENDING"]


def test_who_waits_gets_the_room_of_what_has_ended_though_the_request_is_refused(
    make_site: MakeSite, queue: QueueStore
) -> None:
    over = plan({"agent1": 1, "agent2": 1}, name="over", command="train")
    waits = spec(name="waits", resources={"cpu": 4, "mem": "1g"})
    queue.save(requested(8, id=over.id, name="over", state="RUNNING", plan=over), requested(9, waits))
    site = make_site()
    for agent in site.agents.values():
        agent.parts[over.id], agent.stopped = (over, True), {"main1": ("exited", 0)}
    result = site.session(**{**ASKED, "name": "waits", "cluster_size": 1, "env": {}})
    assert (result["failed"], result["refused"]) == (True, True)
    assert {entry.name: entry.state for entry in queue.entries()} == {"over": "TERMINATED", "waits": "RUNNING"}


@pytest.mark.parametrize("said", ["refused", "failed"])
def test_a_session_that_is_ended_meanwhile_is_not_started_again(
    make_site: MakeSite, queue: QueueStore, said: str
) -> None:
    """Another run ends it while agent2 works on its claim."""
    site = make_site()

    def fault(asked: Asked) -> Answer | None:
        if not (of_step(asked, "claim") and asked.host == "agent2"):
            return None
        (entry,) = queue.entries()
        record = ended_record(entry.record, "TERMINATED", "on request", None, NOW, NOW)
        queue.save(mark_terminating(entry, record, ["agent1", "agent2"], NOW))
        return {"sessions": {each["id"]: {said: "it has been ended."} for each in asked.options["sessions"]}}

    site.fault = fault
    result = site.session(**ASKED)
    assert (result["session"]["status"], result["session"]["reason"]) == ("TERMINATED", "on request")
    assert [phase for phase, _host in site.phases()].count("claim") == 2
    assert [entry.has_ended for entry in queue.entries()] == [True]
    assert [agent.parts for agent in site.agents.values()] == [{}, {}]


# ---- faults


@pytest.mark.parametrize("step", ["claim", "apply"])
def test_a_step_that_fails_is_rolled_back_on_all_agents(make_site: MakeSite, queue: QueueStore, step: str) -> None:
    site = make_site()
    site.fault = fails(step, "agent2")
    result = site.session(**ASKED)
    assert (result["failed"], result["refused"]) == (True, False)
    assert result["msg"] == "the session 'train-llm' was not created: agent2: no image."
    assert (site.record["status"], site.record["error"]) == ("ERROR", result["msg"])
    assert [agent.parts for agent in site.agents.values()] == [{}, {}]
    assert [entry.state for entry in queue.entries()] == ["TERMINATED"]
    assert site.shown[ADVISED:] == ["Session train-llm is ERROR."]


@pytest.mark.parametrize("host", ["agent3", "gateway1"])
def test_what_a_hostile_host_says_beside_its_answer_stops_no_other(
    make_site: MakeSite, queue: QueueStore, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    """It may send the fields of other phases in any shape, and choose no header of a difference."""
    site = make_site(4, 4, 4, gateways=("gateway1",))

    def fault(asked: Asked) -> Answer | None:
        if asked.host != host:
            return None
        answer = gateway_reply(asked) if host == "gateway1" else site.agents[host].reply(asked)
        assert isinstance(answer, dict)
        return {**answer, "sessions": [1], "error": None, "diff": {"before": "", "after": "all is well\n"}}

    site.fault = fault
    monkeypatch.setattr(Task, "diff", True)
    result = site.session(**ASKED)
    assert [entry.state for entry in queue.entries()] == ["RUNNING"]
    assert {diff["before_header"] for diff in result["diff"]} <= {"train-llm", host}


@pytest.mark.parametrize("step", ["claim", "apply"])
def test_a_step_that_fails_without_a_text_says_so(make_site: MakeSite, step: str) -> None:
    site = make_site()
    given: Any = None
    site.fault = fails(step, "agent2", given)
    assert site.session(**ASKED)["msg"] == (
        "the session 'train-llm' was not created: agent2: it failed, and gave no reason."
    )
    assert any(line.startswith(f"{TITLES[step]} (agent2): failed: it failed, and gave") for line in site.progress)


FORGED = "x\nSession train-llm is STOLEN."


@pytest.mark.parametrize(
    ("phase", "reply"),
    [
        ("apply", {"failed": FORGED, "printed": [FORGED], "warnings": [FORGED], "lost_output": [FORGED]}),
        ("claim", {"refused": FORGED}),
        ("pull", {"progress": FORGED, "warnings": [FORGED], "images": {}, "under_way": ["other:1"]}),
        ("pull", Failure(FORGED)),
        ("survey", Failure(FORGED, unreachable=True)),
        ("routes", {"links": [], "unrouted": [], "warnings": [FORGED]}),
        ("routes", Failure(FORGED)),
    ],
)
def test_what_a_host_says_stays_on_its_line(
    make_site: MakeSite, queue: QueueStore, phase: str, reply: dict[str, Any] | Failure
) -> None:
    site, first = make_site(gateways=("gateway1",)), list[str]()

    def fault(asked: Asked) -> Answer | None:
        if not of_step(asked, phase) or asked.host not in ("agent2", "gateway1") or (first and phase == "pull"):
            return None
        first.append(asked.host)
        if asked.phase != "start" or isinstance(reply, Failure):
            return reply
        return {"sessions": {entry["id"]: reply for entry in asked.options["sessions"]}}

    site.fault = fault
    image = "other:1" if phase == "pull" else IMAGE
    result = site.session(**{**ASKED, "image": image})
    forged = [line for line in [*site.shown, *site.progress] if line.startswith("Session train-llm is STOLEN")]
    assert (bool(first), forged) == (True, [])
    assert not [text for text in [*site.warned, *result.get("warnings", ()), result.get("msg", "")] if "\n" in text]
    records = [entry.record for entry in queue.entries()]
    assert not [text for text in (json.dumps(each) for each in [*records, result["session"]]) if "\\n" in text]


@pytest.mark.parametrize("step", ["claim", "apply"])
def test_an_agent_that_dies_in_a_step_is_cleaned_up_later(make_site: MakeSite, queue: QueueStore, step: str) -> None:
    site, dead = make_site(), [False]

    def fault(asked: Asked) -> Answer | None:
        dead[0] |= of_step(asked, step) and asked.host == "agent2"
        return GONE if dead[0] and asked.host == "agent2" else None

    site.fault = fault
    result = site.session(**ASKED)
    assert "agent2: it became unreachable; agent2 may still hold a part of it" in result["msg"]
    assert site.agents["agent1"].parts == {}
    assert [(entry.state, entry.agents) for entry in queue.entries()] == [("TERMINATING", ("agent2",))]


@pytest.mark.parametrize("number", range(1, 13))
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (InterruptionError("interrupted by SIGINT"), "interrupted by SIGINT"),
        (OSError("No space left\non device."), "No space left on device"),
        (KeyError("before"), "KeyError: 'before'"),
    ],
    ids=["SIGINT", "disk", "bug"],
)
def test_a_run_that_ends_at_any_request_leaves_a_whole_session_or_none(
    make_site: MakeSite, queue: QueueStore, number: int, error: BaseException, reason: str
) -> None:
    site, left = make_site(gateways=("gateway1",)), [number]

    def fault(_asked: Asked) -> Answer | None:
        left[0] -= 1
        if left[0] == 0:
            raise error
        return None

    site.fault = fault
    with contextlib.suppress(type(error)):
        site.session(**ASKED, command="train", wait=True)
        assert left[0] > 0, "nothing was raised"
    held = [parts for agent in site.agents.values() for parts in agent.parts.values()]
    entries = queue.entries()
    assert len(held) in (0, 2)
    if held:
        assert [committed for _plan, committed in held] == [True, True]
        assert [entry.state for entry in entries] == ["RUNNING"]
        assert site.record["status"] == "RUNNING"
    else:
        # One that was never planned has no entry.
        assert [entry.state for entry in entries] in ([], ["TERMINATED"])
        expected = f"the session 'train-llm' was not created: {reason}."
        assert (site.record["status"], site.record["error"]) == ("ERROR", expected)
        assert [entry.record["error"] for entry in entries] in ([], [expected])
    assert not [entry for entry in entries if entry.owner]


def test_what_was_under_way_is_given_up_before_it_is_undone(make_site: MakeSite) -> None:
    site, at = make_site(), []

    def fault(asked: Asked) -> Answer | None:
        if asked.phase == "remove":
            at.append(asked.host)
        if of_step(asked, "apply"):
            raise InterruptionError("interrupted by SIGTERM")
        return None

    site.fault = fault
    with pytest.raises(InterruptionError):
        site.session(**ASKED)
    assert (site.given_up, at) == (1, ["agent1", "agent2"])


def test_an_interruption_between_two_attempts_ends_the_session(
    make_site: MakeSite, queue: QueueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_seconds: float) -> None:
        raise InterruptionError("interrupted by SIGHUP")

    site = make_site()
    refused_once(site)
    monkeypatch.setattr(session_run.time, "sleep", interrupt)
    with pytest.raises(InterruptionError):
        site.session(**ASKED)
    assert [(entry.state, entry.owner) for entry in queue.entries()] == [("TERMINATED", None)]
    assert site.record["error"] == "the session 'train-llm' was not created: interrupted by SIGHUP."


@pytest.mark.parametrize("waited", [True, False])
def test_an_interruption_before_the_record_is_written_leaves_one_that_says_what_the_queue_does(
    make_site: MakeSite, queue: QueueStore, monkeypatch: pytest.MonkeyPatch, waited: bool
) -> None:
    site, written = make_site(), []
    asked_for = spec(cluster_mode="multi-node", cluster_size=4, resources={"cpu": 2, "mem": "1g"}, env=ASKED["env"])
    if waited:
        queue.save(requested(1, asked_for, name="train-llm"))
    site.fault = fails("apply", "agent2")
    write = session_run.SessionRun.write_record

    def interrupted(run: session_run.SessionRun, record: Any) -> None:
        written.append(record)
        if len(written) == 1:
            raise InterruptionError("interrupted by SIGINT")
        write(run, record)

    monkeypatch.setattr(session_run.SessionRun, "write_record", interrupted)
    with pytest.raises(InterruptionError):
        site.session(**ASKED)
    (entry,) = queue.entries()
    assert (entry.state, entry.attempts) == (("PENDING", 1) if waited else ("TERMINATED", 0))
    assert site.record == entry.record
    assert site.record["status"] == ("PENDING" if waited else "ERROR")


# ---- the command


def test_a_run_that_waits_for_a_command_that_fails_shows_the_end_of_its_log(
    make_site: MakeSite, queue: QueueStore
) -> None:
    site = make_site(8)
    site.agents["agent1"].lines = ["out of memory"]

    def fault(asked: Asked) -> Answer | None:
        if asked.phase != "wait":
            return None
        (entry,) = queue.entries()
        ended = {**entry.record, "status": "TERMINATED", "exit_code": 3, "ended_at": 1.0, "reason": "it ended with 3"}
        queue.save(dataclasses.replace(entry, state="TERMINATED", spec=None, record=ended))
        return {"ended": True, "exit_code": 3}

    site.fault = fault
    result = site.session(**ASKED, command="train", wait=True)
    assert (result["failed"], result["msg"]) == (True, "the session 'train-llm' has ended: it ended with 3.")
    assert site.shown[ADVISED:] == [
        "Session train-llm is TERMINATED.",
        "== main1 on agent1: exited with code 3 ==",
        "out of memory",
    ]
    assert site.record["exit_code"] == 3


@pytest.mark.parametrize("exit_code", [0, 3])
def test_a_command_that_was_waited_for_has_ended_though_nothing_is_kept_of_sessions(
    make_site: MakeSite, queue: QueueStore, exit_code: int
) -> None:
    """The timer's pass has ended it, and with ``session_history_days`` 0 its entry is gone."""
    site = make_site(8)

    def fault(asked: Asked) -> Answer | None:
        if asked.phase != "wait":
            return None
        queue.remove(*(entry.id for entry in queue.entries()))
        site.agents["agent1"].parts.clear()
        return {"ended": True, "exit_code": exit_code}

    site.fault = fault
    result = site.session(**ASKED, command="train", wait=True)
    failure = "the session 'train-llm' has ended: the command ended with exit code 3."
    assert result.get("msg") == (failure if exit_code else None)
    assert (site.record["status"], site.record["exit_code"]) == ("TERMINATED", exit_code)
    assert site.record["ended_at"] >= site.record["created_at"]


def test_a_broken_connection_does_not_end_the_wait(make_site: MakeSite) -> None:
    site, waits = make_site(8), [0]

    def fault(asked: Asked) -> Answer | None:
        waits[0] += asked.phase == "wait"
        if asked.phase == "wait" and waits[0] < 4:
            return GONE if waits[0] % 2 else {"ended": False, "exit_code": None}
        return None

    site.fault = fault
    result = site.session(**ASKED, command="train", wait=True)
    assert waits == [4]
    assert [line for line in site.progress if line.startswith("Wait")] == [
        "Wait for the command to end: begun",
        "Wait for the command to end (agent1): no answer: no route to host",
        "Wait for the command to end (agent1): running",
        "Wait for the command to end (agent1): no answer: no route to host",
    ]
    assert result["msg"] == "the session 'train-llm' is still running: its agent became unreachable."


def test_an_agent_that_stays_away_while_a_run_waits_is_told_once(make_site: MakeSite) -> None:
    site, waits = make_site(8), [0]

    def fault(asked: Asked) -> Answer | None:
        waits[0] += asked.phase == "wait"
        return Failure(f"no route to host,\nattempt {waits[0]}.") if 0 < waits[0] < 4 else None

    site.fault = fault
    site.session(**ASKED, command="train", wait=True)
    assert waits == [4]
    assert [line for line in site.progress if "no answer" in line] == [
        "Wait for the command to end (agent1): no answer: no route to host, attempt 1"
    ]


def test_an_interruption_while_it_waits_leaves_the_session(make_site: MakeSite, queue: QueueStore) -> None:
    def fault(asked: Asked) -> Answer | None:
        if asked.phase == "wait":
            raise InterruptionError("interrupted by SIGINT")
        return None

    site = make_site(8)
    site.fault = fault
    with pytest.raises(InterruptionError):
        site.session(**ASKED, command="train", wait=True)
    assert ([entry.state for entry in queue.entries()], site.record["status"]) == (["RUNNING"], "RUNNING")
    assert len(site.agents["agent1"].parts) == 1


# ---- others


def test_a_session_that_fails_gives_its_room_to_one_that_waits(make_site: MakeSite, queue: QueueStore) -> None:
    waiting = requested(1, spec(name="waits", resources={"cpu": 1, "mem": "1g"}), priority=0)
    queue.save(waiting)
    site = make_site()
    site.fault = lambda asked: (
        fails("apply", "agent2")(asked) if asked.options.get("sessions", [{}])[0].get("id") != waiting.id else None
    )
    result = site.session(**ASKED, priority=100)
    assert result["failed"]
    assert {entry.name: entry.state for entry in queue.entries()} == {"train-llm": "TERMINATED", "waits": "RUNNING"}
    assert "Session waits is RUNNING." in site.shown


def test_the_manager_may_let_none_start_that_waits(make_site: MakeSite, queue: QueueStore) -> None:
    queue.save(requested(1, spec(name="waits"), priority=0))
    site = make_site()
    site.fault = fails("apply", "agent2")
    site.session(variables={"__session_starts_none": True}, **ASKED, priority=100)
    assert {entry.name: entry.state for entry in queue.entries()} == {"train-llm": "TERMINATED", "waits": "PENDING"}


def test_the_process_of_the_task_owns_what_it_starts(make_site: MakeSite, queue: QueueStore) -> None:
    owners: list[Any] = []

    def fault(asked: Asked) -> Answer | None:
        if of_step(asked, "claim"):
            owners.extend(entry.owner for entry in queue.entries())
        return None

    site = make_site()
    site.fault = fault
    site.session(**ASKED)
    assert owners == [current_owner()] * 2


def test_a_repair_takes_the_request_from_the_queue(make_site: MakeSite, queue: QueueStore) -> None:
    site = make_site()
    created = site.session(**ASKED)["session"]
    site.asked.clear()
    site.shown.clear()
    repaired = site.session(state="repaired", name="train-llm")
    assert (repaired["session"]["id"], repaired["session"]["status"]) == (created["id"], "RUNNING")
    assert ("apply", "agent1") in site.phases()
    assert [entry.state for entry in queue.entries()] == ["RUNNING"]


def test_a_repair_of_nothing_is_refused(make_site: MakeSite) -> None:
    result = make_site().session(state="repaired", id=SESSION_ID)
    assert (result["failed"], result["refused"]) == (True, True)
    assert "the queue of this control node has no request of" in result["msg"]


def test_an_interrupted_repair_leaves_what_ran_before(make_site: MakeSite, queue: QueueStore) -> None:
    def fault(asked: Asked) -> Answer | None:
        if of_step(asked, "apply"):
            raise InterruptionError("interrupted by SIGINT")
        return None

    site = make_site()
    site.session(**ASKED)
    site.fault = fault
    with pytest.raises(InterruptionError):
        site.session(state="repaired", name="train-llm")
    assert [entry.state for entry in queue.entries()] == ["RUNNING"]
    assert site.record["error"].startswith("the session 'train-llm' was not repaired, and what ran before still runs: ")


def test_a_state_that_is_none_is_refused(make_site: MakeSite) -> None:
    from ansible.errors import AnsibleActionFail

    with pytest.raises(AnsibleActionFail, match="state: 'there' must be one of present, repaired, absent"):
        make_site().session(**ASKED, state="there")


@pytest.mark.parametrize(
    ("act", "recorded"),
    [
        (lambda site: site.session(**ASKED), True),
        (lambda site: site.session(name="train-llm", state="absent"), False),
        (lambda site: site.queue(), False),
    ],
    ids=["create", "terminate", "queue"],
)
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (InterruptionError("interrupted by SIGINT"), "interrupted by SIGINT"),
        (OSError("a\nb."), "a b"),
        (KeyError("before"), "KeyError: 'before'"),
    ],
    ids=["SIGINT", "lines", "bug"],
)
def test_a_plan_that_is_interrupted_is_let_go(
    make_site: MakeSite,
    queue: QueueStore,
    act: Callable[[SessionSite], Any],
    recorded: bool,
    error: BaseException,
    reason: str,
) -> None:
    """A session that this process owns, and has not begun to start, ends with it."""
    site, made = make_site(), plan({"agent1": 1})

    def fault(asked: Asked) -> Answer | None:
        if asked.phase == "survey":
            own = {"state": "CREATING", "owner": current_owner(), "attended": True, "plan": made}
            queue.save(requested(1, spec(), id=made.id, **own))
            raise error
        return None

    site.fault = fault
    with pytest.raises(type(error)):
        act(site)
    (entry,) = queue.entries()
    assert (entry.state, entry.record["status"]) == ("TERMINATED", "ERROR")
    assert entry.record["error"].endswith(f" was not created: {reason}.")
    assert (site.record is not None) is recorded
    if recorded:
        assert (site.record["status"], site.record["error"]) == (
            "ERROR",
            f"the session 'train-llm' was not created: {reason}.",
        )


# ---- what cannot be written down


@pytest.mark.parametrize("times", [1, 2, 3, 1000])
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_queue_that_cannot_be_written_loses_no_session(
    make_site: MakeSite, queue: QueueStore, monkeypatch: pytest.MonkeyPatch, number: int, times: int
) -> None:
    """A session on agents has an entry, so that the next pass can end it or finds that it runs."""
    site, left, save = make_site(), [number], QueueStore.save

    def full(store: QueueStore, *entries: QueueEntry) -> None:
        left[0] -= 1
        if -times < left[0] <= 0:
            raise OSError("No space left on device")
        save(store, *entries)

    monkeypatch.setattr(QueueStore, "save", full)
    with contextlib.suppress(OSError):
        site.session(**ASKED)
    monkeypatch.setattr(QueueStore, "save", save)
    held = {session_id for agent in site.agents.values() for session_id in agent.parts}
    known = {entry.id for entry in queue.entries() if entry.state in ("CREATING", "RUNNING", "TERMINATING")}
    assert held <= known
    if left[0] <= 0 and site.record["status"] != "RUNNING":
        unknown = "finds out what has become of it." in site.record["error"]
        assert "No space left on device" in site.record["error"]
        assert unknown is bool(held)
