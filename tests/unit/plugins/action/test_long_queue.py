"""Actions on a long queue: what they write, and what they do while others wait for the lock."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible.plugins import action

from ansible_collections.backendai.cluster.plugins.action import session_plan, session_reconcile, session_report
from ansible_collections.backendai.cluster.plugins.module_utils._model.files import write_atomically
from ansible_collections.backendai.cluster.plugins.module_utils._model.state_format import StateFormat
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.decision import is_feasible
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue import answers as answers_module
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue import store
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import QueueEntry
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.store import QueueStore
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.spec import check_stored
from tests.unit.builders import POOLS, agent_facts, requested, result, spec
from tests.unit.plugins.action.conftest import Run

COUNT = 60
PLAN: dict[str, Any] = {"agents": ["agent1"], "pools": dataclasses.asdict(POOLS), "policy": "fifo", "max_skips": 4}
PASS = {**PLAN, "queue": True}
CREATE = {**PLAN, "spec": dataclasses.asdict(spec(name="small", resources={"cpu": 1, "mem": "64m"}))}


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """Return what is done, and whether the lock is held meanwhile: files written, and questions of feasibility."""
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

    def noted_question(*arguments: Any) -> bool:
        done.append(("feasible", locked[0]))
        return is_feasible(*arguments)

    monkeypatch.setattr(QueueStore, "lock", noted_lock)
    monkeypatch.setattr(store, "write_atomically", noted_write)
    monkeypatch.setattr(answers_module, "is_feasible", noted_question)
    return done


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Return how often entries are read, parsed and checked, files are loaded, and something is displayed."""
    count: Counter[str] = Counter()

    def counted(what: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*arguments: Any, **options: Any) -> Any:
            count[what] += 1
            return function(*arguments, **options)

        return counting

    def parse(own: StateFormat[Any], text: bytes) -> Any:
        count["parsed" if own.kind is QueueEntry else f"{own.kind.__name__} loaded"] += 1
        return load_plain(own, text)

    load_plain = StateFormat.load_plain
    monkeypatch.setattr(StateFormat, "load_plain", parse)
    monkeypatch.setattr(store, "_read_bytes", counted("read", store._read_bytes))
    monkeypatch.setattr(answers_module, "check_stored", counted("checked", check_stored))
    monkeypatch.setattr(action.display, "display", counted("displayed", lambda *_text, **_how: None))
    return count


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


def test_a_pass_that_starts_nothing_writes_no_entry_and_the_next_one_nothing(
    run: Run, queue: QueueStore, work: list[tuple[str, bool]], printed: list[str]
) -> None:
    queue.save(*(waiting(number, 3 + number % 3) for number in range(1, COUNT + 1)))
    work.clear()
    assert run(session_plan.ActionModule, PASS, facts())["starts"] == []
    assert {what for what, _locked in work} == {".index", ".pass"}
    work.clear()
    run(session_plan.ActionModule, PASS, facts())
    assert work == []
    assert "sessions" not in run(session_report.ActionModule, {"kind": "sessions", "agents": ["agent1"]}, facts())
    reasons = [f"no room for 1 of 1 containers on one agent: short of cpu {cpu}" for cpu in (3, 4, 5)]
    assert [sum(reason in line for line in printed) for reason in reasons] == [COUNT // 3] * 3


@pytest.mark.parametrize("slots", [{}, {"tpu": 1}], ids=["no room", "no agent"])
def test_what_has_not_changed_is_read_once_by_an_action_and_hardly_parsed(
    run: Run, queue: QueueStore, looks: Counter[str], slots: dict[str, int]
) -> None:
    requests = [spec(name=f"session-{n}", resources={"cpu": n, "mem": "64m", **slots}) for n in range(9, COUNT + 9)]
    queue.save(*(requested(number, request) for number, request in enumerate(requests, 1)))
    run(session_plan.ActionModule, PASS, facts())
    assert looks["checked"] == COUNT
    looks.clear()
    run(session_plan.ActionModule, PASS, facts())
    assert looks == {"read": COUNT, "_Index loaded": 1, "_Pass loaded": 1}
    looks.clear()
    run(session_reconcile.ActionModule, {"agents": ["agent1"], "all_routes": True}, facts())
    # Before the lock, and under it.
    assert looks == {"read": 2 * COUNT, "_Index loaded": 1}
    looks.clear()
    run(session_report.ActionModule, {"kind": "sessions", "agents": ["agent1"]}, facts())
    assert looks == {"read": COUNT, "parsed": COUNT, "_Index loaded": 1, "_Pass loaded": 1, "displayed": 1}


def test_no_action_on_the_queue_looks_for_garbage(run: Run, queue: QueueStore, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.save(waiting(1, 8))
    enabled: list[bool] = []
    entries = QueueStore.entries

    def note(own: QueueStore) -> list[QueueEntry]:
        enabled.append(gc.isenabled())
        return entries(own)

    monkeypatch.setattr(QueueStore, "entries", note)
    run(session_plan.ActionModule, PASS, facts())
    run(session_reconcile.ActionModule, {"agents": ["agent1"]}, facts())
    run(session_report.ActionModule, {"kind": "sessions", "agents": ["agent1"], "format": "none"}, facts())
    assert (set(enabled), gc.isenabled()) == ({False}, True)


def test_a_session_that_passes_all_others_costs_one_file_for_them(
    run: Run, queue: QueueStore, work: list[tuple[str, bool]]
) -> None:
    queue.save(*(waiting(number, 8) for number in range(1, COUNT + 1)))
    run(session_plan.ActionModule, CREATE, facts())
    work.clear()
    second = {**CREATE, "spec": {**CREATE["spec"], "name": "second"}}
    assert run(session_plan.ActionModule, second, facts())["pending"] is None
    assert (".skips", True) in work
    assert most_writes_under_one_lock(work) == 2
    assert {entry.skipped for entry in queue.entries() if entry.state == "PENDING"} == {2}


def test_starts_are_saved_in_parts(
    run: Run, queue: QueueStore, work: list[tuple[str, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "BATCH", 10)
    queue.save(waiting(1, 99), *(waiting(number, 1) for number in range(2, COUNT + 1)))
    work.clear()
    started = run(session_plan.ActionModule, {**PASS, "max_skips": 1000}, facts(cpu=98))["starts"]
    # Beside them, the first part has the skips.
    assert (len(started), most_writes_under_one_lock(work)) == (COUNT - 1, 11)
    assert queue.entries()[0].skipped == COUNT - 1


def test_what_could_never_start_is_judged_before_the_lock_is_taken(
    run: Run, queue: QueueStore, work: list[tuple[str, bool]]
) -> None:
    queue.save(*(waiting(number, 8 + number, skipped=4) for number in range(1, COUNT + 1)))
    work.clear()
    assert run(session_plan.ActionModule, CREATE, facts())["pending"] is None
    assert [locked for what, locked in work if what == "feasible"] == [False] * COUNT


@pytest.mark.usefixtures("printed")
def test_a_session_that_changes_while_others_time_out_is_left_alone(
    run: Run, queue: QueueStore, work: list[tuple[str, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (store, session_reconcile):
        monkeypatch.setattr(module, "BATCH", 10)
    queue.save(*(waiting(number, 8, pending_timeout=60) for number in range(1, COUNT + 1)))
    work.clear()
    batches = QueueStore.batches
    changed = waiting(COUNT, 8, priority=77)

    def meanwhile(own: QueueStore, changes: Any) -> Iterator[list[Any]]:
        QueueStore(str(queue.path)).save(changed)
        return batches(own, changes)

    monkeypatch.setattr(QueueStore, "batches", meanwhile)
    run(session_reconcile.ActionModule, {"agents": ["agent1"]}, facts())
    states = {entry.id: entry.state for entry in queue.entries()}
    assert states.pop(changed.id) == "PENDING"
    assert set(states.values()) == {"TERMINATED"}
    assert most_writes_under_one_lock(work) == 10


@pytest.mark.usefixtures("printed")
def test_a_long_history_is_removed(run: Run, queue: QueueStore) -> None:
    ended: dict[str, Any] = {"state": "TERMINATED", "spec": None}
    queue.save(*(waiting(number, 8, **ended) for number in range(1, COUNT + 1)))
    run(session_reconcile.ActionModule, {"agents": ["agent1"]}, facts())
    assert queue.entries() == []
