"""The queue's files beside the entries: skips, the last pass, and the index."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.module_utils._model.files import write_atomically
from ansible_collections.backendai.cluster.plugins.module_utils._model.state_format import StateFormat
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue import entry as entries
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue import store
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.answers import Lack, LastPass
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import HEAD, QueueEntry
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.owner import current_owner
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.policy import sort_pending
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.store import QueueStore
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.spec import SessionSpec, check_spec
from tests.unit.builders import IMAGE, NOW, plan, queued, requested, spec

LAST = LastPass(
    {"0": Lack("no room", {"cpu": 1})}, {"key": "0"}, {"key": True}, {queued(1).id: "0"}, {queued(1).id: NOW}
)


@pytest.fixture
def queue(tmp_path: Path) -> QueueStore:
    return QueueStore(str(tmp_path / "queue"))


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the files that are written."""
    names: list[str] = []

    def note(path: Path, *arguments: Any, **options: Any) -> None:
        names.append(path.name)
        write_atomically(path, *arguments, **options)

    monkeypatch.setattr(store, "write_atomically", note)
    return names


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the requests that are checked."""
    names: list[str] = []

    def note(request: SessionSpec) -> SessionSpec:
        names.append(request.name)
        return check_spec(request)

    monkeypatch.setattr(entries, "check_spec", note)
    return names


def skips(queue: QueueStore) -> list[int]:
    return [entry.skipped for entry in queue.entries()]


# ---- skips


def test_a_start_that_skips_many_writes_one_file(queue: QueueStore, written: list[str]) -> None:
    queue.save(*map(queued, range(1, 31)))
    written.clear()
    queue.add_skips({entry.id: 1 for entry in queue.entries()}, queue.entries())
    assert (written, set(skips(queue))) == ([".skips"], {1})
    assert queue.entry(queued(7).id) == queued(7, skipped=1)


def test_without_a_skip_nothing_is_written(queue: QueueStore, written: list[str]) -> None:
    queue.add_skips({queued(1).id: 0}, [queued(1)])
    assert written == []


def test_skips_add_up_with_those_of_the_entries_and_of_other_runs(queue: QueueStore) -> None:
    queue.save(queued(1, skipped=3), queued(2))
    before = queue.entries()
    queue.add_skips({queued(1).id: 2}, before)
    queue.add_skips({queued(1).id: 1, queued(2).id: 1}, before)
    assert skips(queue) == [6, 1]
    # A release that saves the count in the entry itself.
    queue.save(queued(1, skipped=9))
    assert skips(queue) == [9, 1]


def test_skips_of_what_does_not_wait_any_more_are_dropped(queue: QueueStore) -> None:
    for number in (1, 2, 3, 4):
        queue.save(queued(number))
    queue.add_skips({queued(number).id: 5 for number in (1, 2, 3, 4)}, queue.entries())
    known = [queued(1), queued(2, state="RUNNING")]
    queue.save(*known)
    queue.remove(queued(3).id)
    queue.add_skips({queued(1).id: 1}, known)
    # The fourth one came after this run has read the queue.
    assert skips(queue) == [6, 0, 5]
    queue.save(queued(2), queued(3))
    assert skips(queue) == [6, 0, 0, 5]


@pytest.mark.parametrize(
    "content",
    ["{", '{"version": 1, "skipped": {"id": "many"}}', '{"version": 1, "skipped": {"../x": 1}}', '{"version": 9}'],
)
def test_without_its_file_the_counts_of_the_entries_remain(queue: QueueStore, content: str) -> None:
    queue.save(queued(1, skipped=2))
    (queue.path / ".skips").write_text(content)
    assert skips(queue) == [2]
    queue.add_skips({queued(1).id: 1}, queue.entries())
    assert skips(queue) == [3]


def test_the_counts_are_parsed_again_only_if_they_changed(queue: QueueStore, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.save(*map(queued, (1, 2)))
    queue.add_skips({queued(1).id: 1}, queue.entries())
    assert skips(queue) == [1, 0]
    parsed: list[str] = []
    load = StateFormat.load

    def note(own: StateFormat[Any], text: bytes) -> Any:
        parsed.append(own.kind.__name__)
        return load(own, text)

    monkeypatch.setattr(StateFormat, "load", note)
    assert ([queue.entry(queued(number).id) for number in (1, 2)], parsed) == ([queued(1, skipped=1), queued(2)], [])
    QueueStore(str(queue.path)).add_skips({queued(2).id: 3}, map(queued, (1, 2)))
    parsed.clear()
    assert (skips(queue), parsed) == ([1, 3], ["_Skips"])
    (queue.path / ".skips").unlink()
    assert skips(queue) == [0, 0]


# ---- the last pass


def test_what_a_pass_leaves_is_read_by_the_next_one(queue: QueueStore) -> None:
    assert queue.last_pass() == LastPass()
    queue.save_last_pass(LAST)
    assert queue.last_pass() == LAST
    assert stat.S_IMODE((queue.path / ".pass").stat().st_mode) == 0o600


@pytest.mark.parametrize("content", ["", "[]", '{"version": 2}', '{"version": 1, "lacks": {"0": 1}}'])
def test_a_pass_that_cannot_be_read_leaves_nothing(queue: QueueStore, content: str) -> None:
    queue.save_last_pass(LAST)
    (queue.path / ".pass").write_text(content)
    assert queue.last_pass() == LastPass()


def test_what_a_pass_of_another_release_has_left_is_not_used(
    queue: QueueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.save_last_pass(LAST)
    monkeypatch.setattr(store, "release", lambda: "0.0.1")
    assert queue.last_pass() == LastPass()


# ---- the index


@pytest.mark.parametrize("change", [QueueStore.lock, lambda queue: contextlib.nullcontext(queue.save_last_pass(LAST))])
def test_the_index_is_saved_only_where_the_queue_is_changed(queue: QueueStore, written: list[str], change: Any) -> None:
    queue.save(*map(requested, range(1, store.MANY + 1)))
    written.clear()
    queue.entries()
    assert written == []
    for _time in range(2):
        with change(queue):
            queue.entries()
    assert written.count(".index") == 1


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the texts of entries that are parsed, in whole or in part."""
    texts: list[str] = []
    load_plain = StateFormat.load_plain

    def note(own: StateFormat[Any], text: bytes) -> Any:
        if own.kind is QueueEntry:
            texts.append(bytes(text).decode())
        return load_plain(own, text)

    monkeypatch.setattr(StateFormat, "load_plain", note)
    return texts


def indexed(queue: QueueStore, *others: QueueEntry) -> QueueStore:
    """Return a queue with an index of many sessions that wait, ``others`` and one that has ended."""
    queue.save(*map(requested, range(1, store.MANY + 1)), queued(99, state="TERMINATED", spec=None), *others)
    queue.entries()
    queue.save_last_pass(LAST)
    return QueueStore(str(queue.path))


def test_a_long_queue_is_ordered_without_a_look_into_its_entries(
    queue: QueueStore, checks: list[str], parsed: list[str]
) -> None:
    queue = indexed(queue)
    checks.clear()
    parsed.clear()
    entries_read = queue.entries()
    assert next(entry.id for entry in sort_pending(entries_read, "fifo", {})) == requested(1).id
    assert sum(entry.waits_for_start and entry.wanted_images == (IMAGE,) for entry in entries_read) == store.MANY
    assert {entry.request_key for entry in entries_read[: store.MANY]} == {requested(1).request_key}
    assert entries_read[0].with_skipped(7).skipped == 7
    assert (checks, parsed) == ([], [])


def test_entries_are_the_same_with_the_index_and_without_it(queue: QueueStore, parsed: list[str]) -> None:
    special = requested(
        60, spec(name="session-60", mounts=[{"source": "/a", "target": "/b"}], priority=7), user_uid=1001
    )
    read = indexed(queue, special).entries()
    parsed.clear()
    # What is left is parsed when it is asked for: once for each of them, and not checked again.
    assert read == queue.entries()
    assert len(parsed) == len(read)
    with_index, without = (next(entry for entry in listed if entry.id == special.id) for listed in (read, [special]))
    for name in HEAD:
        assert getattr(with_index, name) == getattr(without, name)
    assert with_index.wanted_paths == ("/a",)


def test_the_index_has_every_field_of_an_entry_that_may_differ() -> None:
    fields, head = {field.name for field in dataclasses.fields(QueueEntry)}, {*HEAD}
    details = {"spec", "record"}
    absent = {"owner", "plan", "agents", "images"}
    assert fields == head - {"request_key", "wanted_images", "wanted_paths"} | details | absent


@pytest.mark.parametrize(
    "change",
    [
        {"owner": current_owner(), "plan": plan({"agent1": 1}), "state": "CREATING"},
        {"plan": plan({"agent1": 1})},
        {"state": "RUNNING"},
        {"state": "TERMINATING", "spec": None, "agents": ("agent1",)},
    ],
    ids=["starts", "has a plan", "runs", "ends"],
)
def test_what_is_more_than_waiting_is_always_read_and_checked(
    queue: QueueStore, checks: list[str], change: dict[str, Any]
) -> None:
    other = requested(60, **change)
    again = indexed(queue, other)
    checks.clear()
    found = next(entry for entry in again.entries() if entry.id == other.id)
    assert found.to_json() == other.to_json()
    assert checks == (["session-60"] if other.spec else [])


def test_an_edited_entry_is_read_again_whatever_its_time(queue: QueueStore, parsed: list[str]) -> None:
    again = indexed(queue)
    path = queue.path / f"{queued(1).id}.json"
    before = path.stat()
    path.write_text(path.read_text().replace('"priority": 10', '"priority": 11'))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    parsed.clear()
    assert again.entries()[0].priority == 11
    assert len(parsed) == 1


def test_a_removed_entry_is_gone_and_a_copied_one_is_left_out(queue: QueueStore) -> None:
    again = indexed(queue)
    shutil.copy(queue.path / f"{queued(2).id}.json", queue.path / f"{queued(70).id}.json")
    (queue.path / f"{queued(1).id}.json").unlink()
    assert [entry.id for entry in again.entries()] == [queued(number).id for number in (*range(2, 51), 99)]


@pytest.mark.parametrize(
    "content", ["{", '{"release": "0.0.1", "heads": {}}', '{"release": 1}', '{"heads": {"a": {}}}']
)
def test_a_damaged_index_or_that_of_another_release_is_made_again(
    queue: QueueStore, checks: list[str], content: str
) -> None:
    again = indexed(queue)
    good = (queue.path / ".index").read_text()
    (queue.path / ".index").write_text(content)
    checks.clear()
    assert len(again.entries()) == store.MANY + 1
    assert len(checks) == store.MANY
    with again.lock():
        pass
    assert (queue.path / ".index").read_text() == good


def test_an_index_that_somebody_has_forged_is_named(queue: QueueStore) -> None:
    again = indexed(queue)
    path = queue.path / f"{queued(1).id}.json"
    known = hashlib.sha256(path.read_bytes()).hexdigest()
    path.write_text("{}")
    index = queue.path / ".index"
    index.write_text(index.read_text().replace(known, hashlib.sha256(b"{}").hexdigest()))
    first = again.entries()[0]
    with pytest.raises(AnsibleActionFail) as refused:
        _record = first.record
    assert str(refused.value) == f"session_queue_path: {index} does not belong to {path}: remove it."


def test_the_index_has_no_secrets_and_is_as_private_as_entries(queue: QueueStore) -> None:
    indexed(queue, requested(60, spec(name="session-60", env={"TOKEN": "hunter2"}, command="hunter3")))
    index = queue.path / ".index"
    assert "session-60" in index.read_text()
    assert "hunter" not in index.read_text()
    assert stat.S_IMODE(index.stat().st_mode) == 0o600


def test_a_queue_that_may_only_be_read_is_read(
    queue: QueueStore, monkeypatch: pytest.MonkeyPatch, written: list[str]
) -> None:
    queue.save(*map(requested, range(1, store.MANY + 1)))
    written.clear()

    def refuse(*_arguments: Any, **_options: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(store, "write_atomically", refuse)
    assert len(queue.entries()) == store.MANY
    with queue.lock():
        assert len(queue.entries()) == store.MANY


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
    QueueStore(str(queue.path)).save(queued(2, skipped=1))
    parsed.clear()
    with queue.lock():
        assert skips(queue) == [0, 1, 0]
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
