"""The queue on the control node: file permissions, leftovers of killed runs, and owners."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import itertools
import multiprocessing
import os
import random
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.utils.display import Display

from ansible_collections.backendai.cluster.plugins.plugin_utils._queue import store
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import Owner, QueueEntry, mark_creating
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.owner import current_owner, owner_is_alive
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.store import QueueStore, default_path
from tests.unit.builders import NOW, queued, record

PROCESSES = multiprocessing.get_context("fork")


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=["umask 000", "umask 022", "umask 077"])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """Run a test under a permissive, the usual and a strict umask."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.fixture
def queue(tmp_path: Path) -> QueueStore:
    """Return an unused queue."""
    return QueueStore(str(tmp_path / "queue"))


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def refusal(of: Any) -> str:
    with pytest.raises(AnsibleActionFail) as refused:
        of()
    return str(refused.value)


def lock(queue: QueueStore) -> None:
    with queue.lock():
        pass


# ---- storage


def test_sessions_come_back_as_they_were_saved(queue: QueueStore) -> None:
    entries = [queued(1, owner=Owner("here", 1, "2"), agents=("agent1",)), queued(2, state="TERMINATED", spec=None)]
    for entry in reversed(entries):
        queue.save(entry)
    assert queue.entries() == entries
    assert [queue.entry(entry.id) for entry in entries] == entries


def test_of_running_sessions_alone_no_other_file_is_checked(queue: QueueStore, monkeypatch: pytest.MonkeyPatch) -> None:
    assert queue.running() == []
    of_states = [queued(number, state=state) for number, state in enumerate(("RUNNING", "PENDING", "CREATING"), 1)]
    ended = [queued(number, state=state, spec=None) for number, state in ((4, "TERMINATING"), (5, "TERMINATED"))]
    queue.save(*of_states, *ended)
    damaged = queued(6).id
    (queue.path / f"{damaged}.json").write_text('{"state": 5')
    (queue.path / f"{queued(7).id}.json").write_text("[]")
    (queue.path / "RUNNING.json").write_text('{"state": "RUNNING"}')
    checked: list[str] = []
    read = QueueEntry.from_json

    def noted(content: bytes, path: str) -> QueueEntry:
        checked.append(Path(path).stem)
        return read(content, path)

    warned: list[str] = []
    monkeypatch.setattr(Display, "warning", lambda _self, text: warned.append(text))
    monkeypatch.setattr(QueueEntry, "from_json", noted)
    assert QueueStore(str(queue.path)).running() == of_states[:1]
    assert checked == [of_states[0].id, damaged, queued(7).id]
    assert len(warned) == 2


def test_saving_again_replaces_what_was_there(queue: QueueStore) -> None:
    queue.save(queued(1, attempts=1))
    queue.save(queued(1, attempts=2))
    assert [entry.attempts for entry in queue.entries()] == [2]


def test_removing_a_removed_entry_is_no_error(queue: QueueStore) -> None:
    queue.save(queued(1))
    for _time in range(2):
        queue.remove(queued(1).id)
        assert queue.entry(queued(1).id) is None
    assert queue.entries() == []


def test_reading_an_unused_queue_creates_nothing(queue: QueueStore, tmp_path: Path) -> None:
    assert (queue.entries(), queue.entry(queued(1).id)) == ([], None)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("no_id", ["", "x", "../queue/00000001-3c0e-4f5e-9d0a-0f3c1d2e4b6a", "0" * 36])
def test_what_is_no_id_names_no_file(queue: QueueStore, no_id: str) -> None:
    queue.save(queued(1))
    assert queue.entry(no_id) is None
    for of in (lambda: queue.remove(no_id), lambda: queue.save(queued(1, id=no_id))):
        with pytest.raises(ValueError, match=r" is not the id of a session$"):
            of()


def test_other_files_are_passed_over(queue: QueueStore) -> None:
    lock(queue)
    for name in ("notes.txt", "x.json", f".{queued(1).id}.abc.new", f"{queued(1).id}.json.bak", "README.json"):
        (queue.path / name).write_text("not an entry")
    assert queue.entries() == []


def test_a_file_that_vanishes_while_the_folder_is_read_is_passed_over(
    queue: QueueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.save(queued(1))
    names = [*os.listdir(queue.path), f"{queued(2).id}.json"]
    monkeypatch.setattr(os, "listdir", lambda _path: names)
    assert queue.entries() == [queued(1)]


@pytest.mark.parametrize("written", ["~/q", "q", "/q"])
def test_a_path_may_begin_at_home_or_here(written: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, current = tmp_path / "home", tmp_path / "here"
    current.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(current)
    assert QueueStore(written).path == {"~/q": home / "q", "q": current / "q", "/q": Path("/q")}[written]


# ---- permissions


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("first", [lambda queue: queue.save(queued(1)), lock], ids=["saving", "locking"])
def test_a_queue_is_for_its_owner_alone(first: Any, tmp_path: Path) -> None:
    queue = QueueStore(str(tmp_path / "a" / "b" / "queue"))
    first(queue)
    assert mode_of(queue.path) == 0o700
    assert {mode_of(path) for path in queue.path.iterdir()} == {0o600}


@pytest.mark.usefixtures("umask")
def test_files_in_a_group_readable_folder_are_private(queue: QueueStore) -> None:
    queue.path.mkdir()
    queue.path.chmod(0o755)
    queue.save(queued(1))
    lock(queue)
    assert mode_of(queue.path) == 0o755
    assert {mode_of(path) for path in queue.path.iterdir()} == {0o600}


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("mode", [0o2770, 0o770], ids=["setgid", "without setgid"])
def test_what_is_in_a_groups_folder_is_the_groups(queue: QueueStore, mode: int) -> None:
    group = 12345 if os.geteuid() == 0 else (os.getgroups() or [os.getegid()])[-1]
    queue.path.mkdir()
    os.chown(queue.path, -1, group)
    queue.path.chmod(mode)
    queue.save(queued(1))
    lock(queue)
    assert mode_of(queue.path) == mode
    files = [path.stat() for path in queue.path.iterdir()]
    assert [(stat.S_IMODE(file.st_mode), file.st_gid) for file in files] == [(0o660, group)] * 2


def test_the_lock_file_of_another_operator_is_left_as_it_is(queue: QueueStore, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.path.mkdir(mode=0o770)
    queue.path.chmod(0o770)

    def refused(*_args: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "chmod", refused)
    lock(queue)
    assert os.listdir(queue.path) == [".lock"]


# ---- errors


@pytest.mark.parametrize(
    ("attempt", "operation"),
    [
        (QueueStore.entries, "read"),
        (lambda queue: queue.entry(queued(1).id), "read"),
        (lambda queue: queue.save(queued(1)), "written"),
        (lambda queue: queue.remove(queued(1).id), "written"),
        (lock, "written"),
    ],
    ids=["entries", "entry", "save", "remove", "lock"],
)
def test_an_unusable_folder_is_reported_in_one_sentence(attempt: Any, operation: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    queue = QueueStore(str(tmp_path / "file" / "queue"))
    assert refusal(lambda: attempt(queue)) == (
        f"session_queue_path: '{tmp_path}/file/queue' cannot be {operation}: Not a directory."
    )


def test_a_save_that_fails_leaves_the_old_session_and_nothing_else(
    queue: QueueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.save(queued(1, attempts=1))

    def full(_handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert refusal(lambda: queue.save(queued(1, attempts=2))) == (
        f"session_queue_path: '{queue.path}' cannot be written: No space left on device."
    )
    assert queue.entries() == [queued(1, attempts=1)]
    assert len(os.listdir(queue.path)) == 1


def test_what_fails_under_the_lock_is_not_taken_for_the_queues_fault(queue: QueueStore) -> None:
    with pytest.raises(FileNotFoundError, match="elsewhere"), queue.lock():
        raise FileNotFoundError("elsewhere")
    lock(queue)


@pytest.fixture
def warned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the warnings that the queue gives."""
    sentences: list[str] = []
    monkeypatch.setattr(Display, "warning", lambda _self, text: sentences.append(text))
    return sentences


def test_a_damaged_file_is_named_and_hides_no_other(queue: QueueStore, warned: list[str]) -> None:
    queue.save(queued(1))
    queue.save(queued(2))
    path = queue.path / f"{queued(1).id}.json"
    path.write_text('{"spec": {"env": {"TOKEN": "hunter2"}')
    assert (queue.entries(), queue.entry(queued(1).id)) == ([queued(2)], None)
    first, second = warned
    assert first == second
    assert first.startswith(f"session_queue_path: {path} is corrupt (")
    assert first.endswith("): move it to another folder, then create or end its session.")
    assert "hunter2" not in first


def test_a_file_that_was_copied_to_another_name_is_left_out(queue: QueueStore, warned: list[str]) -> None:
    queue.save(queued(1))
    copy = queue.path / f"{queued(2).id}.json"
    shutil.copy(queue.path / f"{queued(1).id}.json", copy)
    assert queue.entries() == [queued(1)]
    assert warned == [f"session_queue_path: {copy} contains another session: move it to another folder."]


def test_what_cannot_be_read_is_left_out(queue: QueueStore, warned: list[str]) -> None:
    queue.save(queued(1))
    (queue.path / f"{queued(2).id}.json").mkdir()
    assert queue.entries() == [queued(1)]
    path = queue.path / f"{queued(2).id}.json"
    assert warned == [f"session_queue_path: {path} cannot be read (Is a directory), so its session is left out."]


@pytest.mark.usefixtures("warned")
def test_a_damaged_file_is_never_deleted(queue: QueueStore) -> None:
    queue.save(queued(1))
    path = queue.path / f"{queued(1).id}.json"
    path.write_text("{")
    queue.entries()
    assert path.read_text() == "{"
    queue.save(queued(1, attempts=1))
    assert queue.entries() == [queued(1, attempts=1)]
    assert path.with_name(f"{path.name}.corrupt").read_text() == "{"


# ---- concurrency


def _hold(path: str, inside: Event, leave: Event) -> None:
    with QueueStore(path).lock():
        inside.set()
        leave.wait(60)


def _pass_through(path: str, inside: Event) -> None:
    with QueueStore(path).lock():
        inside.set()


def _raise(path: str, times: int) -> None:
    queue = QueueStore(path)
    for _time in range(times):
        with queue.lock():
            (entry,) = queue.entries()
            queue.save(dataclasses.replace(entry, attempts=entry.attempts + 1))


@contextlib.contextmanager
def running(target: Any, *args: Any) -> Iterator[Any]:
    """Run a process for the duration of a block."""
    process = PROCESSES.Process(target=target, args=args)
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join(60)


def test_the_lock_is_exclusive_until_its_holder_ends(queue: QueueStore) -> None:
    inside, leave, second = PROCESSES.Event(), PROCESSES.Event(), PROCESSES.Event()
    with running(_hold, str(queue.path), inside, leave) as holder:
        assert inside.wait(60)
        with running(_pass_through, str(queue.path), second):
            assert not second.wait(0.2)
            holder.kill()
            assert second.wait(60)


def test_a_lock_that_is_never_released_is_an_error(queue: QueueStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "LOCK_TIMEOUT", 0.05)
    inside, leave = PROCESSES.Event(), PROCESSES.Event()
    with running(_hold, str(queue.path), inside, leave) as holder:
        assert inside.wait(60)
        name = Path(f"/proc/{holder.pid}/comm").read_text().strip()
        assert refusal(lambda: lock(queue)) == (
            f"session_queue_path: process {holder.pid} ({name}) has held the lock {queue.path}/.lock for more than 0.05"
            " seconds; end it first."
        )
        queue.save(queued(1))
        assert queue.entries() == [queued(1)]


def test_nothing_is_lost_when_several_change_one_session_at_once(queue: QueueStore) -> None:
    queue.save(queued(1))
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(running(_raise, str(queue.path), 10)) for _process in range(4)]
        for process in processes:
            process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0, 0]
    assert [entry.attempts for entry in queue.entries()] == [40]


def _save_for_ever(path: str, entries: list[QueueEntry], began: Event) -> None:
    queue = QueueStore(path)
    for entry in itertools.cycle(entries):
        queue.save(entry)
        began.set()


def test_a_writer_that_is_killed_leaves_the_old_or_the_new_session(queue: QueueStore) -> None:
    versions = [queued(1, attempts=number, record=record(error=str(number) * 200_000)) for number in range(2)]
    chance = random.Random(1)
    for _kill in range(25):
        began = PROCESSES.Event()
        with running(_save_for_ever, str(queue.path), versions, began):
            assert began.wait(60)
            deadline = time.monotonic() + chance.uniform(0, 0.02)
            while time.monotonic() < deadline:
                assert queue.entries()[0] in versions
        assert queue.entries()[0] in versions


def test_what_killed_writers_left_is_removed_after_a_minute(queue: QueueStore) -> None:
    queue.save(queued(1))
    lock(queue)
    old, young = (queue.path / f".{queued(1).id}.{name}.new" for name in ("old", "young"))
    for path, age in ((old, 61), (young, 50)):
        path.touch()
        os.utime(path, (time.time() - age,) * 2)
    queue.save(queued(1))
    assert old.exists()
    lock(queue)
    assert sorted(os.listdir(queue.path)) == sorted([".lock", young.name, f"{queued(1).id}.json"])


# ---- owners


def _say_me(answers: Any) -> None:
    answers.put(current_owner())


def started_by(owner: Owner | None, **changes: Any) -> QueueEntry:
    return dataclasses.replace(queued(1, updated_at=time.time(), state="CREATING"), owner=owner, **changes)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """Return a process that does nothing."""
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def test_a_worker_owns_what_it_starts_itself() -> None:
    answers = PROCESSES.Queue()
    with running(_say_me, answers) as worker:
        owner = answers.get(timeout=60)
        assert owner.pid == worker.pid != os.getpid()
    assert current_owner() == current_owner(os.getpid())


def test_a_run_is_alive_as_long_as_its_process(sleeper: subprocess.Popen[bytes], queue: QueueStore) -> None:
    queue.save(mark_creating(queued(1), current_owner(sleeper.pid), NOW))
    (entry,) = queue.entries()
    assert owner_is_alive(entry, 0)
    sleeper.kill()
    # A zombie: its number is still in the process table.
    deadline = time.monotonic() + 60
    while owner_is_alive(entry, 1e9) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert Path(f"/proc/{sleeper.pid}").exists()
    assert not owner_is_alive(entry, 1e9)
    assert refusal(lambda: current_owner(sleeper.pid)) == (
        f"the run cannot be found in /proc (process {sleeper.pid}): No such process."
    )
    sleeper.wait()
    assert not owner_is_alive(entry, 1e9)
    assert refusal(lambda: current_owner(sleeper.pid)).startswith("the run cannot be found in /proc (process ")


def test_a_later_process_with_the_same_number_is_another(sleeper: subprocess.Popen[bytes]) -> None:
    owner = current_owner(sleeper.pid)
    before = dataclasses.replace(owner, started=str(int(owner.started) - 1))
    assert not owner_is_alive(started_by(before), 1e9)


def test_runs_before_the_last_boot_are_dead() -> None:
    node, machine, boot, names = current_owner().host.split()
    before_the_boot = dataclasses.replace(current_owner(), host=f"{node} {machine} {boot[::-1]} {names}")
    elsewhere = dataclasses.replace(current_owner(), host=f"other{node} {machine} {boot[::-1]} {names}")
    assert not owner_is_alive(started_by(before_the_boot), 1e12)
    assert owner_is_alive(started_by(elsewhere), 1e12)


def test_the_name_of_a_program_does_not_confuse(tmp_path: Path) -> None:
    program = tmp_path / "x) Z 1 (y"
    shutil.copy(shutil.which("sleep") or "", program)
    with subprocess.Popen([program, "60"]) as process:
        try:
            owner = current_owner(process.pid)
            assert int(owner.started) >= int(current_owner().started)
            assert owner_is_alive(started_by(owner), 0)
        finally:
            process.kill()


def test_an_entry_without_an_owner_is_not_alive() -> None:
    assert not owner_is_alive(started_by(None), 1e9)


@pytest.mark.parametrize("pid", [1, 2**22 + 1], ids=["a number that is in use here", "one that is not"])
def test_a_run_on_another_machine_is_alive_as_long_as_it_says_something(pid: int) -> None:
    elsewhere = Owner("manager2", pid, "1")
    assert owner_is_alive(started_by(elsewhere, updated_at=time.time() - 50), 60)
    assert not owner_is_alive(started_by(elsewhere, updated_at=time.time() - 70), 60)


def test_a_hidden_process_is_alive_while_its_entry_is_recent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def not_yours(_pid: int, _signal: int) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    hidden = dataclasses.replace(current_owner(), pid=2**22 + 1)
    assert not owner_is_alive(started_by(hidden), 1e9)
    monkeypatch.setattr(os, "kill", not_yours)
    assert owner_is_alive(started_by(hidden, updated_at=time.time() - 50), 60)
    assert not owner_is_alive(started_by(hidden, updated_at=time.time() - 70), 60)


# ---- the timer


@pytest.fixture
def timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> QueueStore:
    """Return a queue with a timer of this host, whose unit is ``unit`` beside it."""
    (tmp_path / "unit").touch()
    monkeypatch.setattr(store, "TIMER_UNIT", tmp_path / "unit")
    queue = QueueStore(str(tmp_path / "queue"))
    queue.save_timer(60.0)
    return queue


def test_a_pass_of_the_timer_is_known_and_the_next_one_late_after_five_minutes_or_three_intervals(
    timed: QueueStore,
) -> None:
    before = timed.timer()
    assert before["host"] == os.uname().nodename
    assert abs(before["ran_at"] - time.time()) < 60
    assert before["late_at"] == before["ran_at"] + 300
    timed.save_timer(600.0)
    after = timed.timer()
    assert after["late_at"] == after["ran_at"] + 1800
    assert timed.entries() == []


@pytest.mark.parametrize("content", [b"", b"manager1", b"manager1 soon", b"a b c", b"\xff\xfe 60", None])
def test_a_timer_of_which_nothing_is_known_is_none(timed: QueueStore, content: bytes | None) -> None:
    path = timed.path / store.TIMER_FILE
    path.unlink() if content is None else path.write_bytes(content)
    assert timed.timer() == {}


def test_a_timer_that_was_removed_is_none(timed: QueueStore) -> None:
    store.TIMER_UNIT.unlink()
    assert timed.timer() == {}
    # Whether that of another host was, this one cannot know.
    note = timed.path / store.TIMER_FILE
    note.write_text("manager1 60.0")
    for days, host in ((29, "manager1"), (31, None)):
        os.utime(note, (time.time() - days * 86400,) * 2)
        assert timed.timer().get("host") == host


def test_a_timer_of_this_host_that_is_there_is_known_however_long_ago_it_ran(timed: QueueStore) -> None:
    os.utime(timed.path / store.TIMER_FILE, (1.0, 1.0))
    assert timed.timer()["ran_at"] == 1.0


# ---- the default path


def test_an_inventory_given_as_a_file_or_as_its_folder_is_one_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, folder, pipe = tmp_path / "hosts.yml", tmp_path / "inventory", tmp_path / "inventory" / "pipe"
    file.touch()
    folder.mkdir()
    (folder / "hosts.yml").touch()
    os.mkfifo(pipe)
    monkeypatch.chdir(tmp_path)
    current, inside = str(tmp_path / ".queue"), str(folder / ".queue")
    hosts = ",".join(f"agent{number}" for number in range(1000))
    assert default_path([str(file)]) == default_path(["hosts.yml"]) == current
    assert (
        default_path([str(folder)]) == default_path(["inventory/"]) == default_path(["inventory/hosts.yml"]) == inside
    )
    assert default_path([]) == default_path(["host1,"]) == default_path([hosts]) == current
    monkeypatch.chdir(folder)
    assert default_path(["host1,", str(tmp_path / "absent"), str(pipe), str(file), str(folder)]) == current


def test_ansible_does_not_take_the_queue_for_a_part_of_the_inventory(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text("agents: {hosts: {agent1: {}}}")
    QueueStore(default_path([str(tmp_path)])).save(queued(1))
    for source in (str(tmp_path), str(tmp_path / "hosts.yml")):
        groups = sorted(InventoryManager(DataLoader(), sources=[source]).groups)
        assert groups == ["agents", "all", "ungrouped"]
