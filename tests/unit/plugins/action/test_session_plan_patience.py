"""The action session_plan keeps the bound of the queue's patience, whatever other runs do and whoever is held back."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.plugin_utils._queue import answers as answers_module
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import QueueEntry
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.owner import current_owner
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.schedule import schedule
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.store import QueueStore
from ansible_collections.backendai.cluster.plugins.plugin_utils._run import planning, waiting_sessions
from tests.unit.builders import GIB, POOLS, agent_facts, held_session, plan, requested, result, spec
from tests.unit.group_files import directory_in
from tests.unit.plugins.action.conftest import Run
from tests.unit.plugins.action.stages import Plan

PATIENCE = 3
ARGUMENTS: dict[str, Any] = {
    "agents": ["agent1"],
    "pools": dataclasses.asdict(POOLS),
    "policy": "fifo",
    "max_skips": PATIENCE,
    "record_path": "",
}
HOLDER = plan({"agent1": 6}, name="holder")
ALICE: dict[str, Any] = {"user": "alice", "user_uid": 1001, "limited": True}
ENDED: dict[str, Any] = {"spec": None, "plan": None}
ONE_EACH = {"max_sessions": 1}
BEHIND = "it waits behind session-1, which 3 later sessions have skipped"


def agent(**changes: Any) -> dict[str, Any]:
    """Return the variables of a run with an agent of eight cores, of which a session has six."""
    taken = {"allocated": {"cpu": 6, "mem": 6 * GIB}, "containers": 6, "sessions": [held_session(HOLDER, "agent1")]}
    facts = agent_facts("agent1", **{**taken, **changes})
    return {"hostvars": {"agent1": {"__session_agent": result(facts)}}}


def waits(number: int, cpu: int = 1, **changes: Any) -> QueueEntry:
    request = spec(name=f"session-{number}", resources={"cpu": cpu, "mem": "64m"})
    return requested(number, request, enqueued_at=float(number), updated_at=float(number), **changes)


def passed(*numbers: int, **changes: Any) -> list[QueueEntry]:
    """Return sessions that have begun to start."""
    return [waits(number, **{"state": "RUNNING", "has_started": True, **changes}) for number in numbers]


@pytest.fixture
def large(run: Run, queue: QueueStore) -> QueueEntry:
    """Return a session that waits for the one that runs, in its queue."""
    assert callable(run)
    entry = waits(1, 8)
    asked = spec(name="holder", cluster_size=6)
    queue.save(entry, requested(9, asked, id=HOLDER.id, state="RUNNING", plan=HOLDER, enqueued_at=0.5))
    return entry


def pass_over(run: Run, **args: Any) -> list[str]:
    """Return the names of the sessions that a pass over the queue starts."""
    return [start["plan"]["name"] for start in run(Plan, {**ARGUMENTS, "queue": True, **args}, agent())["starts"]]


def reason(queue: QueueStore, entry: QueueEntry) -> str:
    """Return why a session waits, as the queue has it."""
    kept = queue.entry(entry.id)
    return ((kept.record if kept else {}).get("pending") or {}).get("reason", "")


def create(run: Run, name: str = "new", **args: Any) -> str:
    """Create a session of one core, and return why it waits; empty if it starts."""
    asked = dataclasses.asdict(spec(name=name, resources={"cpu": 1, "mem": "64m"}))
    planned = run(Plan, {**ARGUMENTS, "spec": asked, **args}, agent())
    return planned["pending"]["reason"] if planned["pending"] else ""


# ---- who has passed counts, whether it may start now or not


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("how", ["limits", "held"])
def test_a_due_session_is_due_also_if_those_that_passed_it_are_held_back(run: Run, queue: QueueStore, how: str) -> None:
    # They have failed, and wait again.
    failed = passed(2, 3, 4, state="PENDING", **ALICE)
    (enough,) = passed(5, **ALICE)
    queue.save(*failed, dataclasses.replace(enough, enqueued_at=0.6), waits(6))
    args = {"limits": ONE_EACH} if how == "limits" else {"held": [entry.id for entry in failed]}
    assert pass_over(run, **args) == []
    assert reason(queue, waits(6)) == BEHIND
    assert create(run, **args) == BEHIND


@pytest.mark.parametrize("state", ["TERMINATING", "TERMINATED"])
def test_what_an_ended_session_had_will_be_free_also_while_agents_still_have_it(
    run: Run, queue: QueueStore, large: QueueEntry, state: str
) -> None:
    asked = spec(name="holder", cluster_size=6)
    queue.save(requested(9, asked, id=HOLDER.id, state=state, enqueued_at=0.5, has_started=True, **ENDED))
    queue.save(*passed(2, 3, 4), waits(6))
    assert large.state == "PENDING"
    assert pass_over(run) == []
    assert reason(queue, waits(6)) == create(run) == BEHIND


# ---- what others do while a pass decides


@pytest.mark.parametrize(("meanwhile", "started"), [(0, ["session-5"]), (1, ["session-5"]), (2, []), (3, [])])
def test_a_pass_leaves_out_what_would_pass_a_session_too_often_after_starts_of_another_run(
    run: Run, queue: QueueStore, large: QueueEntry, monkeypatch: pytest.MonkeyPatch, meanwhile: int, started: list[str]
) -> None:
    queue.save(*passed(2), waits(5))

    def decide(*arguments: Any) -> Any:
        others = [requested(20 + number, state="CREATING", owner=current_owner()) for number in range(meanwhile)]
        queue.save(*(dataclasses.replace(other, has_started=True, attended=True) for other in others))
        return schedule(*arguments)

    monkeypatch.setattr(waiting_sessions, "schedule", decide)
    assert pass_over(run) == started
    states = {entry.id: entry.state for entry in queue.entries()}
    assert (states[large.id], states[waits(5).id]) == ("PENDING", "CREATING" if started else "PENDING")


@pytest.mark.usefixtures("large")
def test_of_the_starts_of_a_pass_only_those_are_left_out_that_are_too_many(
    run: Run, queue: QueueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.save(waits(5), waits(6))

    def decide(*arguments: Any) -> Any:
        queue.save(*passed(7, 8))
        return schedule(*arguments)

    monkeypatch.setattr(waiting_sessions, "schedule", decide)
    assert pass_over(run) == ["session-5"]


# ---- a new session


@pytest.fixture
def locked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return whether the lock was held, for each judgement of what could start some time."""
    judged: list[bool] = []
    holding = [False]
    lock, judge = QueueStore.lock, answers_module.is_feasible

    @contextlib.contextmanager
    def noted_lock(queue: QueueStore) -> Iterator[None]:
        with lock(queue):
            holding[0] = True
            yield
            holding[0] = False

    def noted_judge(*arguments: Any) -> bool:
        judged.append(holding[0])
        return judge(*arguments)

    monkeypatch.setattr(QueueStore, "lock", noted_lock)
    monkeypatch.setattr(answers_module, "is_feasible", noted_judge)
    return judged


def test_no_due_session_is_judged_under_the_lock(run: Run, queue: QueueStore, locked: list[bool]) -> None:
    queue.save(*(waits(number, 8 + number) for number in range(1, 6)), *passed(*range(11, 11 + PATIENCE)))
    assert create(run) == ""
    assert locked == [False] * 5


@pytest.mark.usefixtures("large")
def test_a_new_session_waits_for_what_becomes_due_before_it_has_the_lock(
    run: Run, queue: QueueStore, locked: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.save(*passed(2, 3))
    lock = QueueStore.lock

    def late(own: QueueStore) -> Any:
        QueueStore(str(queue.path)).save(*passed(4))
        return lock(own)

    monkeypatch.setattr(QueueStore, "lock", late)
    assert create(run) == BEHIND
    assert locked == []


@pytest.mark.parametrize("earlier", [1, 2])
def test_a_session_that_has_started_before_counts_once_when_it_is_created_again(
    run: Run, queue: QueueStore, large: QueueEntry, earlier: int
) -> None:
    queue.save(*passed(*range(2, 2 + earlier)), waits(5, has_started=True, user="alice"))
    assert large.state == "PENDING"
    assert create(run, "session-5") == ("" if earlier == 1 else BEHIND)


# ---- a due session that may not start


@pytest.mark.parametrize("how", ["limits", "held", "groups", "none"])
def test_what_may_not_start_keeps_no_other_waiting(
    run: Run, queue: QueueStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    # There is room for both, but the first one's user has enough, or no account.
    monkeypatch.setattr(planning, "Directory", lambda: directory_in(tmp_path))
    due = waits(1, **{**ALICE, "user": "nobody" if how == "groups" else "alice"})
    queue.save(due, *passed(2, **ALICE), *passed(3, 4), waits(5))
    values: dict[str, Any] = {"limits": ONE_EACH, "held": [due.id], "groups": {"allowed": "own"}}
    args = {how: values[how]} if how in values else {}
    expected = BEHIND if how == "none" else ""
    assert create(run, user="bob", user_uid=1002, **args) == expected
    assert pass_over(run, **args) == (["session-1", "session-5"] if how == "none" else ["session-5"])


def test_a_users_new_session_does_not_pass_the_own_one_that_waits_for_room(
    run: Run, queue: QueueStore, large: QueueEntry
) -> None:
    queue.save(dataclasses.replace(large, **ALICE), *passed(2, 3, 4))
    assert create(run, user="alice", user_uid=1001, limits=ONE_EACH) == BEHIND
