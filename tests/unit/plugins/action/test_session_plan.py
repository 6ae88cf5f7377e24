"""The action session_plan: a session is planned from the facts of agents."""

from __future__ import annotations

import dataclasses
import getpass
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.module_utils._model.images import ImageDisk
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import QueueEntry, mark_terminating
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.owner import current_owner
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.policy import count_skips
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.store import QueueStore
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.record import session_record
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.advice import NO_FOLDER, NO_GATEWAY
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.spec import spec_from_dict
from ansible_collections.backendai.cluster.plugins.plugin_utils._run.new_session import NotPlannedError
from tests.unit.builders import (
    GIB,
    IMAGE,
    NOW,
    POOLS,
    SESSION_ID,
    agent_data,
    held_session,
    plan,
    requested,
    spec,
)
from tests.unit.plugins.action.conftest import Run
from tests.unit.plugins.action.stages import Plan

ASKED: dict[str, Any] = {"cluster_size": 4, "cluster_mode": "multi-node", "env": {"TOKEN": "hunter2"}}


def arguments(**changes: Any) -> dict[str, Any]:
    request = dataclasses.asdict(spec(**{**ASKED, **changes}))
    return {
        "spec": request,
        "pools": dataclasses.asdict(POOLS),
        "agents": ["agent1", "agent2", "agent3"],
        "record_path": "",
    }


def answers(**results: dict[str, Any]) -> dict[str, Any]:
    """Return the variables of a run with these results of agents; others were not read."""
    names = ("agent1", "agent2", "agent3")
    return {"hostvars": {name: {"__session_agent": results[name]} if name in results else {} for name in names}}


def fit(name: str, cpu: int = 8, **changes: Any) -> dict[str, Any]:
    return {"agent": agent_data(name, cpu, **changes), "error": None}


def test_plan_is_returned_for_the_agents(run: Run) -> None:
    result = run(Plan, arguments(), answers(agent1=fit("agent1", 2), agent2=fit("agent2", 2, images={})))
    assert result["agents"] == ["agent1", "agent2"]
    assert result["missing_images"] == {"agent2": [IMAGE]}
    assert len(result["nonce"]) == 32
    assert result["pending"] is None
    assert result["plan"]["name"] == "train-llm"
    assert "hunter2" not in json.dumps(result)


@pytest.mark.parametrize("check_mode", [True, False])
def test_new_plan_is_described(run: Run, check_mode: bool) -> None:
    result = run(Plan, arguments(), answers(agent1=fit("agent1")), check_mode=check_mode)
    assert result["diff"]["after"].startswith("session train-llm: single-node, 4 containers of lab/python:1\n")


@pytest.mark.parametrize("check_mode", [True, False])
@pytest.mark.parametrize("cores", [8, 3], ids=["room", "no room"])
def test_what_a_new_session_takes_and_keeps_is_said(run: Run, cores: int, check_mode: bool) -> None:
    hostvars = answers(agent1=fit("agent1", cores))
    advice = ["Resources are of one container: 4 × (cpu 1, mem 1g) = cpu 4, mem 4g in all.", NO_FOLDER]
    advice += [NO_GATEWAY.format("the inventory")]
    if check_mode:
        short = "no room for 1 of 4 containers on one agent: short of cpu 1"
        advice += ["It would start now, on agent1." if cores == 8 else f"It would wait: {short}."]
    assert run(Plan, arguments(), hostvars, check_mode=check_mode)["notes"] == advice


@pytest.mark.parametrize("check_mode", [True, False])
def test_image_that_would_fill_a_disk_is_warned_of(run: Run, check_mode: bool) -> None:
    small = fit("agent1", 2, images={IMAGE: None}, image_disk=ImageDisk("/data", 3 * GIB, GIB, {}))
    large = fit("agent2", 2, image_disk=ImageDisk("/data", 9 * GIB, GIB, {IMAGE: 5 * GIB}))
    result = run(Plan, arguments(), answers(agent1=small, agent2=large), check_mode=check_mode)
    assert result["warnings"][-1].startswith("agent1: its disk may get full: the images (lab/python:1) take 5.4 GB, ")


def test_plan_of_an_existing_session_is_not_described_again(run: Run, queue: QueueStore) -> None:
    queue.save(of_entry(id=SESSION_ID, state="RUNNING", plan=HELD))
    result = run(Plan, arguments(), holding(), check_mode=True)
    assert (result["plan"]["id"], result["diff"]) == (SESSION_ID, {"before": "", "after": ""})
    assert (result["existing"], sorted(result["public_keys"])) == (True, ["main1", "sub1", "sub2", "sub3"])


def test_missing_capacity_is_pending(run: Run) -> None:
    result = run(Plan, arguments(), answers(agent1=fit("agent1", 3)))
    assert (result["plan"], result["agents"]) == (None, [])
    assert result["pending"] == {
        "reason": "no room for 1 of 4 containers on one agent: short of cpu 1",
        "shortfall": {"cpu": 1},
        "outlook": "it does not fit even on an empty cluster",
    }
    assert result["no_room"] == {"unplaced": {"sub": 1}, "blocking_sessions": ()}
    assert result["starts"] == []


def test_start_is_returned_for_the_steps(run: Run) -> None:
    planned = run(Plan, arguments(), answers(agent1=fit("agent1")))
    (start,) = planned["starts"]
    assert {name: planned[name] for name in start} == start
    assert {"plan", "id", "agents", "nonce", "stale_sessions", "public_keys"} <= set(start)
    assert (planned["record"], start["id"]) == (None, planned["plan"]["id"])


def test_record_of_a_pending_session_is_returned(run: Run, queue: QueueStore) -> None:
    planned = run(Plan, arguments(), answers(agent1=fit("agent1", 3)))
    (entry,) = queue.entries()
    assert planned["record"] == {**entry.record, "queue_position": 1}
    record = {key: planned["record"][key] for key in ("id", "name", "status", "pending", "kernels")}
    assert record == {
        "id": planned["id"],
        "name": "train-llm",
        "status": "PENDING",
        "pending": planned["pending"],
        "kernels": [],
    }


def test_unusable_agent_is_skipped_with_a_warning(run: Run) -> None:
    down = {"agent": None, "error": "start docker on this host."}
    result = run(Plan, arguments(), answers(agent1=fit("agent1"), agent2=down))
    assert result["warnings"] == ["agent2 is left out: start docker on this host."]
    assert result["agents"] == ["agent1"]


def test_infeasible_request_is_refused_with_a_sentence(run: Run) -> None:
    down = answers(agent1={"agent": None, "error": "start docker."})
    with pytest.raises(AnsibleActionFail) as refused:
        run(Plan, arguments(), down)
    assert str(refused.value) == "no agent can be used: agent1: start docker."


def test_warnings_of_agents_come_with_a_failure(run: Run) -> None:
    silent = answers(agent1=fit("agent1", warnings=["baiwg0 is missing."]))
    with pytest.raises(AnsibleActionFail) as refused:
        run(Plan, arguments(resource_group="gpu"), silent)
    assert isinstance(refused.value.__cause__, NotPlannedError)
    assert refused.value.__cause__.warnings == ["agent1: baiwg0 is missing."]


# ---- the queue


ANOTHER = dataclasses.replace(current_owner(), started="0", host="manager2 boot")
ROOM = answers(agent1=fit("agent1"))
NO_ROOM = answers(agent1=fit("agent1", 3))


HELD = plan({"agent1": 4})


def of_entry(number: int = 1, **changes: Any) -> QueueEntry:
    """Return the queue's entry of the requested session."""
    return requested(number, spec(**ASKED), **changes)


def holding(**state: Any) -> dict[str, Any]:
    """Return the variables of a run in which an agent runs the session."""
    return answers(agent1=fit("agent1", sessions=[held_session(HELD, "agent1", **state)]))


@pytest.mark.parametrize("limits", [{}, {"max_sessions": 0, "max_waiting": 2}])
def test_sessions_of_users_of_a_manager_are_known_by_their_limits(
    run: Run, queue: QueueStore, limits: dict[str, int]
) -> None:
    run(Plan, {**arguments(), "limits": limits}, ROOM)
    assert [entry.limited for entry in queue.entries()] == [bool(limits)]


def test_start_is_saved_before_the_claim_with_its_request(run: Run, queue: QueueStore) -> None:
    before = time.time()
    result = run(Plan, arguments(), ROOM)
    (entry,) = queue.entries()
    assert (entry.id, entry.name, entry.state, entry.owner) == (result["id"], "train-llm", "CREATING", current_owner())
    assert (spec_from_dict(entry.spec or {}), entry.attended) == (spec(**ASKED), True)
    assert (entry.record["id"], entry.record["status"], result["queued"]) == (result["id"], "CREATING", False)
    assert before <= entry.enqueued_at == entry.updated_at <= time.time()
    assert (entry.plan, entry.nonce) == (SessionPlan.from_dict(result["plan"]), result["nonce"])


def test_pending_session_is_saved_with_its_request(run: Run, queue: QueueStore) -> None:
    result = run(Plan, {**arguments(priority=7, pending_timeout=60), "user": "bob"}, NO_ROOM)
    (entry,) = queue.entries()
    assert (entry.id, entry.state, entry.owner) == (result["id"], "PENDING", None)
    assert spec_from_dict(entry.spec or {}) == spec(**ASKED, priority=7, pending_timeout=60)
    assert (entry.user, entry.priority, entry.pending_timeout, entry.resource_group) == ("bob", 7, 60, "default")
    assert (entry.record["status"], entry.record["pending"]) == ("PENDING", result["pending"])


@pytest.mark.parametrize("user", ["", None])
def test_user_defaults_to_the_one_that_runs_ansible(run: Run, user: str | None) -> None:
    assert run(Plan, {**arguments(), "user": user}, ROOM)["plan"]["user"] == getpass.getuser()


def test_user_is_as_agents_report_it(run: Run, queue: QueueStore) -> None:
    assert run(Plan, {**arguments(), "user": "bob\u200b\x1b"}, ROOM)["plan"]["user"] == "bob\\u200b\\x1b"
    assert [entry.user for entry in queue.entries()] == ["bob\\u200b\\x1b"]


def limited(**asked: Any) -> dict[str, Any]:
    """Return the arguments with a longest lifetime of an hour, which the operator has set."""
    made = arguments(**asked)
    return {**made, "pools": {**made["pools"], "max_lifetime": 3600}}


def test_new_session_wants_no_more_time_than_the_operator_gives(run: Run, queue: QueueStore) -> None:
    with pytest.raises(AnsibleActionFail) as refused:
        run(Plan, limited(max_lifetime=7200), answers(agent1=fit("agent1")))
    assert str(refused.value) == (
        "session_max_lifetime: 7200 exceeds session_max_lifetime_limit, 3600: request at most 3600 seconds."
    )
    assert queue.entries() == []


@pytest.mark.parametrize(("asked", "lifetime"), [({}, 3600), ({"max_lifetime": 600}, 600)])
def test_the_limit_is_the_time_of_a_session_that_names_none(run: Run, asked: dict[str, int], lifetime: int) -> None:
    assert run(Plan, limited(**asked), answers(agent1=fit("agent1")))["plan"]["max_lifetime"] == lifetime


def test_existing_and_queued_sessions_keep_the_time_that_they_got(run: Run, queue: QueueStore) -> None:
    full, asked = answers(agent1=fit("agent1", 3)), {"max_lifetime": 7200}
    run(Plan, arguments(**asked), full)
    assert run(Plan, limited(**asked), full)["pending"]["shortfall"] == {"cpu": 1}
    queue.remove(queue.entries()[0].id)
    made = plan({"agent1": 4}, max_lifetime=7200)
    held = held_session(made, "agent1")
    queue.save(requested(1, spec(**ASKED, **asked), id=SESSION_ID, state="RUNNING", plan=made))
    again = run(Plan, limited(**asked), answers(agent1=fit("agent1", sessions=[held])))
    assert (again["existing"], again["plan"]["max_lifetime"]) == (True, 7200)


@pytest.mark.parametrize("hostvars", [ROOM, NO_ROOM], ids=["room", "no room"])
def test_repeated_request_keeps_its_place_in_the_queue(run: Run, queue: QueueStore, hostvars: dict[str, Any]) -> None:
    waits = of_entry(has_started=True, attempts=1)
    queue.save(waits)
    result = run(Plan, {**arguments(), "user": "bob"}, hostvars)
    (entry,) = queue.entries()
    assert result["id"] == entry.id == waits.id
    kept = [entry.enqueued_at, entry.has_started, entry.attempts, entry.user]
    assert kept == [waits.enqueued_at, waits.has_started, waits.attempts, waits.user]
    assert entry.state == ("CREATING" if hostvars is ROOM else "PENDING")
    assert entry.spec == json.loads(json.dumps(waits.spec))


def test_changed_request_of_a_pending_session_is_rejected(run: Run, queue: QueueStore) -> None:
    queue.save(of_entry())
    with pytest.raises(AnsibleActionFail) as refused:
        run(Plan, arguments(priority=5), ROOM)
    assert str(refused.value) == (
        "session_name: 'train-llm' is taken by a session (PENDING) that differs in session_priority (is 10, requested"
        " 5); choose another name, or end that session first."
    )
    assert [entry.state for entry in queue.entries()] == ["PENDING"]


def test_session_started_by_another_run_is_rejected(run: Run, queue: QueueStore) -> None:
    starts = of_entry(id=SESSION_ID, state="CREATING", spec=None, owner=ANOTHER, updated_at=time.time())
    queue.save(starts)
    with pytest.raises(AnsibleActionFail) as refused:
        run(Plan, arguments(), ROOM)
    assert str(refused.value) == (
        f"session_name: 'train-llm' is being started by another run, process {ANOTHER.pid}; wait for it."
    )
    assert queue.entries() == [starts]


@pytest.mark.parametrize(
    "owner", [ANOTHER, dataclasses.replace(current_owner(), started="0")], ids=["at work", "killed"]
)
@pytest.mark.parametrize("state", [{}, {"committed": False}], ids=["committed", "claimed"])
def test_claimed_session_of_another_run_is_taken_over(
    run: Run, queue: QueueStore, owner: Any, state: dict[str, Any]
) -> None:
    queue.save(of_entry(id=SESSION_ID, state="CREATING", plan=HELD, owner=owner, updated_at=time.time()))
    result = run(Plan, arguments(), holding(**state))
    assert (result["id"], result["existing"], result["never_completed"]) == (SESSION_ID, True, True)
    assert [(entry.id, entry.owner) for entry in queue.entries()] == [(SESSION_ID, current_owner())]


def test_entry_of_a_running_session_stays_as_it_is(run: Run, queue: QueueStore) -> None:
    before = of_entry(id=SESSION_ID, state="RUNNING", plan=HELD)
    queue.save(before)
    result = run(Plan, arguments(), holding())
    assert (result["existing"], result["never_completed"]) == (True, False)
    assert [(entry.state, entry.updated_at) for entry in queue.entries()] == [("RUNNING", before.updated_at)]


def test_stale_sessions_are_removed_by_the_claim(run: Run, queue: QueueStore) -> None:
    running = of_entry(id=SESSION_ID, state="RUNNING", plan=HELD)
    queue.save(mark_terminating(running, session_record(HELD, "TERMINATED"), HELD.agents, NOW))
    result = run(Plan, arguments(), holding())
    assert (result["existing"], result["stale_sessions"]) == (False, [SESSION_ID])
    assert sorted(entry.state for entry in queue.entries()) == ["CREATING", "TERMINATING"]


def test_skips_are_counted_once(run: Run, queue: QueueStore) -> None:
    for number, changes in ((1, {}), (2, {"priority": 90}), (3, {"resource_group": "gpu"}), (4, {"priority": 5})):
        queue.save(requested(number, spec(name=f"session-{number}", cluster_size=9), enqueued_at=1.0, **changes))
    for attempt in (1, 2):
        run(Plan, {**arguments(), "attempt": attempt}, ROOM)
        skips = count_skips(queue.entries())
        assert [skips[entry.id] for entry in queue.entries() if entry.name != "train-llm"] == [1, 1, 0, 0]


def test_new_session_waits_behind_a_starving_one(run: Run, queue: QueueStore) -> None:
    queue.save(requested(1, spec(name="session-1", cluster_size=8), enqueued_at=1.0))
    queue.save(*(requested(number, state="TERMINATED", spec=None, has_started=True) for number in (2, 3)))
    running = plan({"agent1": 1}, name="runs")
    asked = spec(name="runs")
    queue.save(requested(9, asked, id=SESSION_ID, state="RUNNING", plan=running, enqueued_at=0.5))
    held = held_session(running, "agent1")
    hostvars = answers(agent1=fit("agent1", allocated={"cpu": 1}, sessions=[held]))
    result = run(Plan, {**arguments(), "policy": "fifo", "max_skips": 2}, hostvars)
    assert result["pending"] == {
        "reason": "it waits behind session-1, which 2 later sessions have skipped",
        "shortfall": {},
    }
    assert run(Plan, {**arguments(), "max_skips": 3}, hostvars)["pending"] is None


@pytest.mark.parametrize("state", [{}, {"state": "CREATING", "attended": True}], ids=["queued", "killed run"])
def test_session_does_not_start_elsewhere_while_an_agent_of_its_last_start_is_away(
    run: Run, queue: QueueStore, state: dict[str, Any]
) -> None:
    entry = of_entry(plan=plan({"agent2": 4}, command="python train.py"), id=SESSION_ID, **state)
    queue.save(entry)
    result = run(Plan, arguments(), answers(agent1=fit("agent1"), agent2={"error": "no route to host"}))
    assert result["pending"]["reason"].startswith(
        "agent2 may have begun its command, and cannot be used (agent2: no route to host): "
    )
    assert [(kept.id, kept.state, kept.plan) for kept in queue.entries()] == [(SESSION_ID, "PENDING", entry.plan)]
    assert run(Plan, arguments(), answers(agent1=fit("agent1"), agent2=fit("agent2")))["pending"] is None


@pytest.mark.parametrize(("attempt", "waits"), [(5, False), (6, True)])
def test_session_is_pending_after_too_many_lost_claims(run: Run, queue: QueueStore, attempt: int, waits: bool) -> None:
    results = {"refused": ["agent1 is full", "agent2 is full"]}
    result = run(Plan, {**arguments(), "attempt": attempt, "attempts": 5, **results}, ROOM)
    reason = "other runs claimed the resources first, 5 times in a row; last error: agent1 is full; agent2 is full"
    assert result["pending"] == ({"reason": reason, "shortfall": {}} if waits else None)
    assert [entry.state for entry in queue.entries()] == ["PENDING" if waits else "CREATING"]


AWAY: dict[str, Any] = {"unreachable": True, "msg": "Failed to connect: no route to host"}


def test_a_request_that_only_an_agent_that_is_away_could_serve_waits(
    run: Run, queue: QueueStore, tmp_path: Path
) -> None:
    asked = answers(agent1=fit("agent1"), agent2=AWAY)
    asked["hostvars"]["agent2"]["agent_resource_group"] = "gpu"
    path = tmp_path / "record.json"
    result = run(Plan, {**arguments(resource_group="gpu"), "record_path": str(path)}, asked)
    assert result["pending"] == {
        "reason": (
            "no room for 4 of 4 containers: no agent that may hold them is schedulable; agent2 does not answer (Failed"
            " to connect: no route to host)"
        ),
        "shortfall": {},
    }
    assert result["record"]["status"] == "PENDING"
    assert [entry.state for entry in queue.entries()] == ["PENDING"]


def test_a_session_that_runs_on_an_agent_that_is_away_does_not_wait_under_its_name_once_more(
    run: Run, queue: QueueStore
) -> None:
    queue.save(of_entry(1, id=SESSION_ID, name="train-llm", state="RUNNING", plan=plan({"agent2": 4})))
    asked = answers(agent1=fit("agent1"), agent2=AWAY)
    with pytest.raises(AnsibleActionFail) as refused:
        run(Plan, arguments(designated_agents=["agent2"]), asked)
    assert str(refused.value) == (
        "the session 'train-llm' has containers on agents that cannot be used: agent2: Failed to connect: no route to"
        " host."
    )
    assert [entry.state for entry in queue.entries()] == ["RUNNING"]


def test_infeasible_later_attempt_is_pending(run: Run, queue: QueueStore) -> None:
    result = run(Plan, {**arguments(), "attempt": 2}, answers(agent1={"error": "start docker."}))
    assert result["pending"] == {"reason": "no agent can be used: agent1: start docker", "shortfall": {}}
    assert [entry.state for entry in queue.entries()] == ["PENDING"]


def test_a_running_session_on_a_returning_agent_is_meant_and_not_one_that_waits(run: Run, queue: QueueStore) -> None:
    queue.save(of_entry(1), of_entry(2, id=SESSION_ID, state="RUNNING", plan=HELD))
    result = run(Plan, arguments(), holding())
    assert (result["id"], result["existing"]) == (SESSION_ID, True)
    assert sorted(entry.state for entry in queue.entries()) == ["PENDING", "RUNNING"]


def test_next_attempt_reuses_the_entry(run: Run, queue: QueueStore) -> None:
    first = run(Plan, arguments(), ROOM)
    second = run(Plan, {**arguments(), "attempt": 2}, ROOM)
    assert second["id"] == first["id"]
    assert [entry.id for entry in queue.entries()] == [first["id"]]
    assert (first["never_completed"], second["never_completed"]) == (False, True)


@pytest.mark.parametrize("hostvars", [ROOM, NO_ROOM, holding(committed=False)], ids=["room", "no room", "claimed"])
def test_check_mode_saves_nothing(run: Run, queue: QueueStore, hostvars: dict[str, Any]) -> None:
    queue.save(requested(1, spec(name="session-1", cluster_size=9)))
    if hostvars not in (ROOM, NO_ROOM):
        queue.save(of_entry(2, id=SESSION_ID, state="CREATING", plan=HELD))
    before = queue.entries()
    run(Plan, arguments(), hostvars, check_mode=True)
    assert queue.entries() == before


# ---- whether room may come while nobody looks


CLAIM = held_session(plan({"agent1": 1}, name="other"), "agent1", committed=False)


@pytest.mark.parametrize(
    ("hostvars", "entry", "freed"),
    [
        (NO_ROOM, None, False),
        (answers(agent1=fit("agent1", 3, sessions=[CLAIM])), None, True),
        (NO_ROOM, requested(2, state="TERMINATING", spec=None), True),
        (NO_ROOM, requested(2, state="TERMINATED", spec=None, updated_at=NOW), True),
        (NO_ROOM, requested(2, state="TERMINATED", spec=None, updated_at=NOW - 1), False),
        (NO_ROOM, requested(2, spec(name="session-2", cluster_size=9)), False),
    ],
    ids=["nothing happens", "a run is at work", "one ends", "one has ended since", "one had ended", "one waits"],
)
def test_pending_session_knows_whether_capacity_was_released(
    run: Run, queue: QueueStore, hostvars: dict[str, Any], entry: QueueEntry | None, freed: bool
) -> None:
    if entry:
        queue.save(entry)
    result = run(Plan, {**arguments(), "started_at": NOW}, hostvars)
    assert (result["plan"], result["capacity_released"]) == (None, freed)


def test_the_owner_is_in_the_plan_the_queue_and_the_record(run: Run, queue: QueueStore) -> None:
    owner = {"user": "bob", "user_uid": 1002}
    plan_of_it = run(Plan, {**arguments(), **owner}, ROOM)["plan"]
    assert (plan_of_it["user"], plan_of_it["user_uid"]) == ("bob", 1002)
    waits = run(Plan, {**arguments(name="waits"), **owner}, NO_ROOM)
    entries = {entry.name: entry for entry in queue.entries()}
    assert {(entry.user, entry.user_uid, entry.record["uid"]) for entry in entries.values()} == {("bob", 1002, 1002)}
    assert (waits["record"]["user"], waits["record"]["uid"]) == ("bob", 1002)


@pytest.mark.parametrize(("user", "uid"), [("", os.getuid()), ("bob", None)])
def test_without_a_uid_it_is_that_of_the_user_who_runs_ansible(run: Run, user: str, uid: int | None) -> None:
    assert run(Plan, {**arguments(), "user": user, "user_uid": -1}, ROOM)["plan"]["user_uid"] == uid
    assert run(Plan, {**arguments(name="other"), "user": user}, ROOM)["plan"]["user_uid"] == uid


TAKEN = "session_name: 'train-llm' is taken by another user's session; choose another name."


@pytest.mark.parametrize("state", ["PENDING", "RUNNING"])
@pytest.mark.parametrize(("user", "uid"), [("bob", 1001), ("alice", 1002), ("alice", None)])
def test_a_name_belongs_to_its_owner_and_nothing_is_said_of_the_session(
    run: Run, queue: QueueStore, state: str, user: str, uid: int | None
) -> None:
    queue.save(requested(1, spec(**ASKED), user=user, user_uid=uid, state=state))
    with pytest.raises(AnsibleActionFail) as refused:
        run(Plan, {**arguments(env={"OTHER": "x"}), "user": "alice", "user_uid": 1001}, ROOM)
    assert str(refused.value) == TAKEN


def test_the_name_of_a_session_that_only_agents_know_belongs_to_nobody(run: Run, queue: QueueStore) -> None:
    owned = {**arguments(), "user": "alice", "user_uid": 1001}
    start = run(Plan, owned, {"hostvars": {**holding()["hostvars"], "agent2": {"__session_agent": fit("agent2")}}})
    assert (start["existing"], start["agents"]) == (False, ["agent2"])
    assert [entry.user for entry in queue.entries()] == ["alice"]


# ---- what one user may have


ALICES: dict[str, Any] = {"user": "alice", "user_uid": 1001}


def of_alice(run: Run, number: int, *, full: bool = False, check_mode: bool = False, **limits: int) -> dict[str, Any]:
    """Plan the ``number``-th session of alice, of one container."""
    args = {**arguments(cluster_size=1, name=f"session-{number}"), **ALICES, "limits": limits}
    used = {"cpu": 8} if full else {}
    return run(Plan, args, answers(agent1=fit("agent1", allocated=used)), check_mode=check_mode)


def test_one_user_fills_neither_the_agents_nor_the_queue(run: Run, queue: QueueStore) -> None:
    # Finding 9: thousands of requests of one user waited.
    limits: dict[str, Any] = {"max_sessions": 2, "max_waiting": 3}
    for number in range(2):
        assert of_alice(run, number, **limits)["starts"]
    for check_mode in (True, False):
        with pytest.raises(AnsibleActionFail, match=r"^max_sessions: alice has 2 of 2 sessions; end one\.$"):
            of_alice(run, 9, check_mode=check_mode, **limits)
    for number in range(2, 5):
        assert of_alice(run, number, full=True, max_waiting=3)["pending"]
    with pytest.raises(AnsibleActionFail, match=r"^max_waiting: alice has 3 of 3 sessions that wait; end one, or"):
        of_alice(run, 9, full=True, max_waiting=3)
    with pytest.raises(AnsibleActionFail, match=r"^the queue is full: 3 sessions of all users wait"):
        of_alice(run, 9, full=True, max_waiting_in_all=3)
    with pytest.raises(AnsibleActionFail, match=r"^max_containers: 1 containers are requested, and alice has 5 of 5;"):
        of_alice(run, 9, full=True, max_containers=5)
    assert sorted(entry.name for entry in queue.entries()) == [f"session-{number}" for number in range(5)]
    # Others have their own.
    bob = {**arguments(cluster_size=1), "user": "bob", "user_uid": 1002, "limits": limits}
    assert run(Plan, bob, answers(agent1=fit("agent1")))["starts"]


def test_a_session_that_exists_is_repaired_whatever_its_user_has(run: Run) -> None:
    assert of_alice(run, 1, max_sessions=1)["starts"]
    assert of_alice(run, 1, max_sessions=1)["starts"]
