"""Actions on a long queue: what they write, and what they do while others wait for the lock."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.action import agent_info, session_info
from ansible_collections.backendai.cluster.plugins.module_utils._model.files import write_atomically
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue import store
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import QueueEntry
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.policy import count_skips
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.schedule import schedule
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.store import QueueStore
from ansible_collections.backendai.cluster.plugins.plugin_utils._run import reconciling, waiting_sessions
from ansible_collections.backendai.cluster.plugins.plugin_utils.agents_action import AgentsAction
from tests.unit.builders import POOLS, agent_facts, plan, requested, result, spec
from tests.unit.plugins.action.asked_hosts import Asked, AskedHosts, use_short_names
from tests.unit.plugins.action.conftest import Run
from tests.unit.plugins.action.session_site import SessionSite
from tests.unit.plugins.action.stages import Plan, Reconcile
from tests.unit.plugins.action.test_session_info import ActionModule as ListAction

COUNT = 60
PLAN: dict[str, Any] = {"agents": ["agent1"], "pools": dataclasses.asdict(POOLS), "policy": "fifo", "max_skips": 4}
PASS = {**PLAN, "queue": True}
CREATE = {**PLAN, "spec": dataclasses.asdict(spec(name="small", resources={"cpu": 1, "mem": "64m"}))}


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """Return the files that are written, and whether the lock is held meanwhile."""
    done: list[tuple[str, bool]] = []
    locked = [False]
    lock = QueueStore.lock

    @contextlib.contextmanager
    def noted_lock(queue: QueueStore) -> Iterator[None]:
        with lock(queue):
            locked[0] = True
            done.append(("lock", True))
            yield
            locked[0] = False

    def noted_write(path: Path, *arguments: Any, **options: Any) -> None:
        done.append((path.name, locked[0]))
        write_atomically(path, *arguments, **options)

    monkeypatch.setattr(QueueStore, "lock", noted_lock)
    monkeypatch.setattr(store, "write_atomically", noted_write)
    return done


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what happens: an entry is ``parsed``; tests add the rest."""
    happened: list[str] = []
    parse = QueueEntry.from_json

    def noted(content: bytes, path: str) -> QueueEntry:
        happened.append("parsed")
        return parse(content, path)

    monkeypatch.setattr(QueueEntry, "from_json", noted)
    return happened


def facts(cpu: int = 8, taken: int = 6) -> dict[str, Any]:
    """Return the variables of a run with one agent."""
    return {
        "hostvars": {
            "agent1": {"__session_agent": result(agent_facts("agent1", cpu, allocated={"cpu": taken}))},
            "localhost": {},
        }
    }


def waiting(number: int, cpu: int, **changes: Any) -> QueueEntry:
    """Return a session that waits since long ago."""
    request = spec(name=f"session-{number}", resources={"cpu": cpu, "mem": "64m"})
    return requested(number, request, enqueued_at=float(number), updated_at=float(number), **changes)


def most_writes_under_one_lock(done: list[tuple[str, bool]]) -> int:
    writes = [0]
    for what, locked in done:
        if what == "lock":
            writes.append(0)
        elif locked:
            writes[-1] += 1
    return max(writes)


def test_a_pass_saves_reasons_in_parts_and_the_next_one_does_nothing(
    run: Run,
    queue: QueueStore,
    work: list[tuple[str, bool]],
    printed: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store, "BATCH", 10)
    queue.save(*(waiting(number, 3 + number % 3) for number in range(1, COUNT + 1)))
    work.clear()
    assert run(Plan, PASS, facts())["starts"] == []
    assert most_writes_under_one_lock(work) == 10
    assert len(work) == COUNT + COUNT // 10 + 1
    work.clear()
    monkeypatch.setattr(waiting_sessions, "schedule", None)
    assert run(Plan, PASS, facts())["starts"] == []
    assert work == []
    assert "sessions" in run(ListAction, {"agents": ["agent1"]}, facts())
    assert "sessions" not in run(ListAction, {"format": "table", "agents": ["agent1"]}, facts())
    reasons = [f"no room for 1 of 1 containers on one agent: short of cpu {cpu}" for cpu in (3, 4, 5)]
    assert [sum(reason in line for line in printed) for reason in reasons] == [COUNT // 3] * 3


def test_a_pass_saves_a_reason_only_where_it_has_changed(
    run: Run, queue: QueueStore, work: list[tuple[str, bool]]
) -> None:
    queue.save(waiting(1, 3), waiting(2, 4))
    run(Plan, PASS, facts())
    queue.save(waiting(3, 3))
    work.clear()
    run(Plan, PASS, facts())
    assert [name for name, locked in work if locked and name.endswith(".json")] == [f"{waiting(3, 3).id}.json"]


def test_a_session_that_changes_while_a_pass_decides_keeps_its_reason(
    run: Run, queue: QueueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.save(waiting(1, 8), waiting(2, 8))
    changed = waiting(2, 8, priority=77)

    def meanwhile(*arguments: Any) -> Any:
        queue.save(changed)
        queue.remove(waiting(1, 8).id)
        return schedule(*arguments)

    monkeypatch.setattr(waiting_sessions, "schedule", meanwhile)
    run(Plan, PASS, facts())
    assert [entry.to_json() for entry in queue.entries()] == [changed.to_json()]
    monkeypatch.setattr(waiting_sessions, "schedule", schedule)
    run(Plan, PASS, facts())
    assert queue.entries()[0].record["pending"]["shortfall"] == {"cpu": 8}


def test_a_pass_over_a_queue_where_nothing_waits_writes_nothing(run: Run, queue: QueueStore) -> None:
    run(Plan, PASS, facts())
    assert not queue.path.exists()
    queue.save(waiting(1, 1, state="RUNNING"))
    run(Plan, PASS, facts())
    assert [path.name for path in queue.path.iterdir()] == [f"{waiting(1, 1).id}.json"]


def test_a_pass_that_starts_something_is_followed_by_another(run: Run, queue: QueueStore) -> None:
    queue.save(waiting(1, 2), waiting(2, 2))
    assert len(run(Plan, PASS, facts())["starts"]) == 1
    # The start has failed.
    queue.save(waiting(1, 2, has_started=True))
    assert len(run(Plan, PASS, facts())["starts"]) == 1


def test_a_session_that_passes_all_others_writes_nothing_for_them(
    run: Run, queue: QueueStore, work: list[tuple[str, bool]]
) -> None:
    queue.save(*(waiting(number, 8) for number in range(1, COUNT + 1)))
    run(Plan, CREATE, facts())
    work.clear()
    second = {**CREATE, "spec": {**CREATE["spec"], "name": "second"}}
    assert run(Plan, second, facts())["pending"] is None
    assert most_writes_under_one_lock(work) == 1
    skips = count_skips(queue.entries())
    assert {skips[entry.id] for entry in queue.entries() if entry.state == "PENDING"} == {2}


def test_starts_are_saved_in_parts(
    run: Run, queue: QueueStore, work: list[tuple[str, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "BATCH", 10)
    queue.save(waiting(1, 99), *(waiting(number, 1) for number in range(2, COUNT + 1)))
    work.clear()
    started = run(Plan, {**PASS, "max_skips": 1000}, facts(cpu=98))["starts"]
    assert (len(started), most_writes_under_one_lock(work)) == (COUNT - 1, 10)
    assert count_skips(queue.entries())[waiting(1, 99).id] == COUNT - 1


@pytest.mark.usefixtures("printed")
def test_a_session_that_changes_while_others_time_out_is_left_alone(
    run: Run, queue: QueueStore, work: list[tuple[str, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (store, reconciling):
        monkeypatch.setattr(module, "BATCH", 10)
    tried = plan()
    queue.save(*(waiting(number, 8, pending_timeout=60, plan=tried) for number in range(1, COUNT + 1)))
    work.clear()
    batches = QueueStore.batches
    changed = waiting(COUNT, 8, priority=77)

    def meanwhile(own: QueueStore, changes: Any) -> Iterator[list[Any]]:
        QueueStore(str(queue.path)).save(changed)
        return batches(own, changes)

    monkeypatch.setattr(QueueStore, "batches", meanwhile)
    asked = run(Reconcile, {"agents": ["agent1"]}, facts())["end"]["agent1"]
    states = {entry.id: entry.state for entry in queue.entries()}
    assert states.pop(changed.id) == "PENDING"
    assert set(states.values()) == {"TERMINATING"}
    # Nor is its agent asked to end it: nothing would start it any more.
    assert {*asked} == {*states}
    assert most_writes_under_one_lock(work) == 10


@pytest.mark.usefixtures("printed")
def test_a_long_history_is_removed(run: Run, queue: QueueStore) -> None:
    ended: dict[str, Any] = {"state": "TERMINATED", "spec": None}
    queue.save(*(waiting(number, 8, **ended) for number in range(1, COUNT + 1)))
    run(Reconcile, {"agents": ["agent1"]}, facts())
    assert queue.entries() == []


@pytest.mark.parametrize("action", [session_info.ActionModule, agent_info.ActionModule])
def test_a_list_parses_the_queue_while_agents_work(
    run: Run, queue: QueueStore, order: list[str], monkeypatch: pytest.MonkeyPatch, action: type[AgentsAction]
) -> None:
    def answer(asked: Asked) -> dict[str, Any]:
        order.append("answered")
        return result(agent_facts(asked.host))

    @contextlib.contextmanager
    def calls(_action: object, _variables: object) -> Iterator[AskedHosts]:
        yield AskedHosts({"agent1": {}}, answer)

    monkeypatch.setattr(action, "calls", calls)
    monkeypatch.setattr(action, "within_limit", lambda _action, names, _variables: names)
    queue.save(waiting(1, 3), waiting(2, 3))
    order.clear()
    run(action, {"agents": ["agent1"]}, {"hostvars": {"agent1": {}}})
    assert order == ["parsed", "parsed", "answered"]


@pytest.mark.usefixtures("printed")
@pytest.mark.parametrize("create", [True, False])
def test_a_run_parses_the_queue_once(
    run: Run, queue: QueueStore, order: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, create: bool
) -> None:
    use_short_names(monkeypatch)
    site = SessionSite(run, tmp_path)
    site.fault = lambda asked: order.append(asked.phase)
    queue.save(waiting(1, 99), waiting(2, 99))
    order.clear()
    if create:
        site.session(name="small", image="python:3.12", resources={"cpu": 1, "mem": "64m"})
    else:
        site.queue()
    assert order[:4] == ["parsed", "parsed", "survey", "survey"]
    # Its own entry, each time that the run has changed it.
    assert order.count("parsed") == (4 if create else 2)
