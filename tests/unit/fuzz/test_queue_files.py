"""Whatever the files of a queue contain, runs use the others, and say in one sentence which ones they leave out."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible.utils.display import Display
from hypothesis import HealthCheck, given, settings

from ansible_collections.backendai.cluster.plugins.module_utils._model.images import ImageIdentity
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.cluster_state import ClusterState
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import (
    QueueEntry,
    mark_running,
    mark_terminated,
    mark_terminating,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.owner import current_owner
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.store import QueueStore
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.record import ended_record, session_record
from tests.unit.builders import NOW, agent_facts, holders, plan, queued, requested, spec
from tests.unit.fuzz.mutations import assert_sentence, damaged_text, fuzz
from tests.unit.fuzz.reading import use

PLAN = plan({"agent1": 1, "agent2": 1}, apps=[{"name": "web", "port": 80}], mounts=[{"source": "/a", "target": "/b"}])
ASKED = spec(
    name="session-1",
    cluster_size=3,
    roles={"main": {}, "worker": {"replicas": 2, "env": {"A": "b"}}},
    env={"TOKEN": "x"},
    mounts=[{"source": "/srv", "target": "/data"}],
    apps=[{"name": "web", "port": 80}],
)
PENDING = requested(1, ASKED)
CREATING = dataclasses.replace(PENDING, state="CREATING", owner=current_owner(), plan=PLAN)
ENDED = ended_record(session_record(PLAN, "TERMINATED"), "TERMINATED", "it was ended", 0, NOW, NOW)
TERMINATING = mark_terminating(PENDING, ENDED, ["agent1", "agent2"], NOW)
TERMINATED = mark_terminated(PENDING, ENDED, NOW)
RUNNING = mark_running(
    dataclasses.replace(CREATING, id=PLAN.id), NOW, PENDING.record, {"lab/python:1": ImageIdentity("sha256:1", "a")}
)
OTHER = queued(2)
CLUSTER = ClusterState({**holders(PLAN), "agent3": agent_facts("agent3")}, {"agent4": "it is off"})


@pytest.fixture
def warned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the warnings of the queue."""
    sentences: list[str] = []
    monkeypatch.setattr(Display, "warning", lambda _self, text: sentences.append(text))
    return sentences


@pytest.fixture
def check(tmp_path: Path, warned: list[str]) -> Callable[[str, bytes], None]:
    """Return a function that lets runs read a queue with a file of a session with that content, and another one."""
    queue = QueueStore(str(tmp_path / "queue"))
    queue.save(OTHER)

    def check_content(session_id: str, content: bytes) -> None:
        path = queue.path / f"{session_id}.json"
        path.write_bytes(content)
        warned.clear()
        entries = queue.entries()
        assert OTHER in entries
        assert len(entries) + len(warned) == 2
        for sentence in warned:
            assert_sentence(sentence)
            assert str(path) in sentence
            assert "hunter2" not in sentence
        assert path.read_bytes() == content
        use(entries, CLUSTER)

    return check_content


@pytest.mark.parametrize("entry", [PENDING, CREATING, RUNNING, TERMINATING, TERMINATED], ids=lambda entry: entry.state)
def test_any_file_is_an_entry_or_left_out(check: Callable[[str, bytes], None], entry: QueueEntry) -> None:
    text = entry.to_json()
    check(entry.id, text.encode())

    @settings(fuzz, suppress_health_check=list(HealthCheck))
    @given(damaged_text(json.loads(text)))
    def try_all(content: bytes) -> None:
        check(entry.id, content)

    try_all()
