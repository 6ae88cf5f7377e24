"""The queue's files beside the entries: skips, the last pass, and the index."""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.plugin_utils._queue import store
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import QueueEntry
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.store import QueueStore
from tests.unit.builders import queued


@pytest.fixture
def queue(tmp_path: Path) -> QueueStore:
    return QueueStore(str(tmp_path / "queue"))


# ---- what the last pass has seen


def test_what_a_pass_has_seen_is_known_to_the_next_one(queue: QueueStore) -> None:
    assert not queue.has_seen("digest")
    queue.save_seen("digest")
    again = QueueStore(str(queue.path))
    assert (again.has_seen("digest"), again.has_seen("other"), again.has_seen("")) == (True, False, False)
    assert stat.S_IMODE((queue.path / ".seen").stat().st_mode) == 0o600
    assert queue.entries() == []


@pytest.mark.parametrize("content", [b"", b"\xff", b"{", b"dig"])
def test_a_damaged_file_of_what_was_seen_is_as_good_as_none(queue: QueueStore, content: bytes) -> None:
    queue.save_seen("digest")
    (queue.path / ".seen").write_bytes(content)
    assert not queue.has_seen("digest")


# ---- under the lock


def test_what_one_store_has_read_is_parsed_again_only_if_it_changed(
    queue: QueueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.save(*map(queued, (1, 2, 3)))
    queue.entries()
    parsed: list[str] = []
    parse = QueueEntry.from_json

    def note(content: bytes, path: str) -> Any:
        parsed.append(Path(path).stem)
        return parse(content, path)

    monkeypatch.setattr(QueueEntry, "from_json", note)
    QueueStore(str(queue.path)).save(queued(2, attempts=1))
    parsed.clear()
    with queue.lock():
        assert [entry.attempts for entry in queue.entries()] == [0, 1, 0]
    assert parsed == [queued(2).id]


def test_the_lock_is_released_between_batches(queue: QueueStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "BATCH", 2)
    events: list[Any] = []
    lock = QueueStore.lock

    @contextlib.contextmanager
    def noted(own: QueueStore) -> Iterator[None]:
        with lock(own):
            events.append("lock")
            yield
        events.append("unlock")

    monkeypatch.setattr(QueueStore, "lock", noted)
    batches = queue.batches(range(5))
    assert (next(batches), events) == ([0, 1], ["lock"])
    assert (list(batches), events) == ([[2, 3], [4]], ["lock", "unlock"] * 3)
