"""What the command of a session leaves is kept when it ends, whatever becomes of its container afterwards."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import time
from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker import labels
from ansible_collections.backendai.cluster.plugins.module_utils._host.command_ends import make_wake
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.held_session import ContainerState
from ansible_collections.backendai.cluster.plugins.module_utils._session import command, ended_commands, kept_logs
from ansible_collections.backendai.cluster.plugins.module_utils._session.command import start_command, wait_for_end
from ansible_collections.backendai.cluster.plugins.module_utils._session.container_states import (
    container_states,
    read_end,
)
from ansible_collections.backendai.cluster.plugins.module_utils._session.end import SessionEnd
from ansible_collections.backendai.cluster.plugins.module_utils._session.ended_commands import (
    NotKeptError,
    keep_ended,
    start_waiting,
)
from ansible_collections.backendai.cluster.plugins.module_utils._session.logs import read_logs
from ansible_collections.backendai.cluster.plugins.module_utils._session.output import find_kept, read_kept
from ansible_collections.backendai.cluster.plugins.module_utils._session.ownership import own_containers
from ansible_collections.backendai.cluster.plugins.module_utils._session.remove import remove_claimed
from ansible_collections.backendai.cluster.plugins.module_utils._session.reply_logs import ReplyLogs
from tests.unit.builders import SESSION_ID, held, plan
from tests.unit.plugins.module_utils._session.test_logs import APPS, TIME, add, write_app_logs

MADE = plan({"agent1": 3, "agent2": 1}, command="python train.py", apps=APPS)
ALL = dataclasses.replace(MADE, command_scope="all")
AWAIT_STOP = ended_commands._await_stop
ENDED = {"ExitCode": 137, "FinishedAt": "2026-03-01T03:00:00.5Z"}


@pytest.fixture(autouse=True)
def stopping(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers end when their first process sees that their output is kept."""

    def stop(client: Any, existing: Any) -> None:
        for container in existing:
            hostname = container["Labels"][labels.HOSTNAME]
            assert read_end(store, SESSION_ID, hostname)
            client.made[client.made.index(container)].update(State="exited", **{**ENDED, **container.get("Later", {})})

    monkeypatch.setattr(ended_commands, "_await_stop", stop)


def begin(store: Store, engine: Any, made: Any = MADE, **logs: bytes) -> None:
    """Let a session run its command, and its containers have logs by hostname."""
    store.save(held(made))
    for kernel in made.kernels_on("agent1"):
        store.kernel_folder(SESSION_ID, kernel.hostname).mkdir()
        store.homes.make(SESSION_ID, kernel.hostname, os.getuid(), os.getgid())
        make_wake(store.kernel_folder(SESSION_ID, kernel.hostname))
        add(engine, kernel.hostname, Log=[(TIME, logs.get(kernel.hostname, b"printed\n"))])
    start_command(store, SESSION_ID, "nonce-1", check_mode=False)


def say(store: Store, hostname: str, code: int) -> None:
    (store.homes.folder(SESSION_ID, hostname) / "own" / "exit-code").write_text(f"{code}\n")


def prune(engine: Any) -> None:
    """Remove what has stopped, as docker system prune does."""
    engine.made = [container for container in engine.made if container["State"] == "running"]


def states(engine: Any, store: Store) -> dict[str, tuple[str, int | None]]:
    found = container_states(engine, store, held(MADE), own_containers(engine, store, held(MADE)))
    return {name: (state.status, state.exit_code) for name, state in found.items()}


def end(engine: Any, store: Store, **how: Any) -> SessionEnd:
    ending = SessionEnd(**how)
    remove_claimed(engine, store, SESSION_ID, None, end=ending, check_mode=False)
    return ending


def lines(store: Store, hostname: str) -> list[str]:
    kept = find_kept(store, SESSION_ID)
    assert kept
    text = read_kept(store, kept, hostname, 9, ReplyLogs())["logs"][hostname]["log"]
    return [line.removeprefix(TIME.decode()) for line in json.loads(text)]


def test_a_command_begins_with_the_unit_that_waits_for_its_end(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    monkeypatch.setattr(command, "start_units", started.extend)
    begin(store, engine)
    assert started == [f"backendai-output@{SESSION_ID}.service"]
    start_command(store, SESSION_ID, "nonce-1", check_mode=False)
    assert len(started) == 1


def test_an_end_that_is_said_counts_before_anything_is_kept(engine: Any, store: Store) -> None:
    begin(store, engine)
    assert states(engine, store)["main1"] == ("running", None)
    say(store, "main1", 7)
    say(store, "sub1", 3)
    assert states(engine, store) == {"main1": ("exited", 7), "sub1": ("running", None), "sub2": ("running", None)}
    assert wait_for_end(engine, store, SESSION_ID, 0) == (True, 7)


def test_exit_code_and_output_outlive_a_container_that_is_pruned(engine: Any, store: Store) -> None:
    begin(store, engine, main1=b"the result\n")
    write_app_logs(store, jupyter=b"served\n")
    say(store, "main1", 7)
    prune(engine)
    keep_ended(engine, store, SESSION_ID, ["main1"])
    prune(engine)
    assert [each["Id"] for each in engine.made] == ["id-sub1", "id-sub2"]
    assert states(engine, store)["main1"] == ("exited", 7)
    assert wait_for_end(engine, store, SESSION_ID, 0) == (True, 7)
    held_logs = read_logs(engine, store, held(MADE), "", 9, ReplyLogs())
    assert held_logs["logs"]["main1"]["log"] == json.dumps([f"{TIME.decode()}the result"])
    assert held_logs["logs"]["main1"]["apps"] == {"jupyter": '["served"]'}
    assert read_logs(engine, store, held(MADE), "sub1", 9, ReplyLogs())["logs"].keys() == {"sub1"}
    assert end(engine, store, days=1).to_dict() == {}
    kept = find_kept(store, SESSION_ID)
    assert kept
    assert kept.containers["main1"] == ContainerState("exited", "sha256:1", 7)
    assert kept.expires_at - time.time() == pytest.approx(86400, abs=60)
    assert (lines(store, "main1"), lines(store, "sub1")) == (["the result"], ["printed"])


def test_output_that_was_kept_is_not_read_again_at_the_end_and_its_losses_are_said(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(store, engine)
    say(store, "main1", 0)
    with monkeypatch.context() as little:
        little.setattr(kept_logs, "READ_BYTES", 0)
        keep_ended(engine, store, SESSION_ID, ["main1"])
    (lost,) = end(engine, store).to_dict()["lost_output"]
    assert lost.startswith("main1: ")


def test_lines_that_arrive_at_the_engine_late_are_kept(engine: Any, store: Store) -> None:
    begin(store, engine)
    say(store, "main1", 0)
    engine.made[0]["Later"] = {"Log": [(TIME, b"printed\n"), (TIME, b"last words\n")]}
    keep_ended(engine, store, SESSION_ID, ["main1"])
    assert lines(store, "main1") == ["printed", "last words"]


def test_a_container_that_was_killed_has_the_exit_code_of_the_engine_and_its_output_is_kept(
    engine: Any, store: Store
) -> None:
    begin(store, engine)
    engine.made[0].update(State="exited", **ENDED)
    keep_ended(engine, store, SESSION_ID, ["main1"])
    prune(engine)
    assert (states(engine, store)["main1"], lines(store, "main1")) == (("exited", 137), ["printed"])


def test_a_container_that_is_killed_while_it_waits_has_the_exit_code_of_its_command(engine: Any, store: Store) -> None:
    begin(store, engine)
    say(store, "main1", 7)
    engine.made[0].update(State="exited", **ENDED)
    assert states(engine, store)["main1"] == ("exited", 7)
    keep_ended(engine, store, SESSION_ID, ["main1"])
    assert states(engine, store)["main1"] == ("exited", 7)


def test_a_container_that_was_removed_before_leaves_nothing_and_is_not_waited_for(engine: Any, store: Store) -> None:
    begin(store, engine)
    del engine.made[0]
    keep_ended(engine, store, SESSION_ID, ["main1"])
    assert ("main1" in states(engine, store), find_kept(store, SESSION_ID)) == (False, None)
    assert wait_for_end(engine, store, SESSION_ID, 0) == (True, None)
    assert (store.kernel_folder(SESSION_ID, "main1") / "kept").exists()


def test_a_container_that_runs_on_is_left_alone(engine: Any, store: Store) -> None:
    begin(store, engine)
    keep_ended(engine, store, SESSION_ID, ["main1"])
    assert (states(engine, store)["main1"], read_end(store, SESSION_ID, "main1")) == (("running", None), None)


@pytest.mark.parametrize(
    "how", [lambda store: store.remove(SESSION_ID), lambda store: shutil.rmtree(store.folder(SESSION_ID))]
)
def test_a_session_that_is_gone_has_nothing_to_keep(engine: Any, store: Store, how: Callable[[Store], object]) -> None:
    begin(store, engine)
    how(store)
    keep_ended(engine, store, SESSION_ID, ["main1"])
    assert find_kept(store, SESSION_ID) is None


def test_a_container_goes_on_while_nothing_can_be_written(engine: Any, store: Store) -> None:
    begin(store, engine)
    say(store, "main1", 7)
    (store.root / "output").touch()
    with pytest.raises(NotKeptError, match=r"cannot be written \(File exists\)"):
        keep_ended(engine, store, SESSION_ID, ["main1"])
    assert read_end(store, SESSION_ID, "main1") is None
    (store.root / "output").unlink()
    keep_ended(engine, store, SESSION_ID, ["main1"])
    assert lines(store, "main1") == ["printed"]


def test_commands_of_other_containers_are_kept_as_they_end(engine: Any, store: Store) -> None:
    begin(store, engine, ALL, sub1=b"first\n", main1=b"last\n")
    say(store, "sub1", 3)
    keep_ended(engine, store, SESSION_ID, ["sub1"])
    prune(engine)
    assert states(engine, store) == {"main1": ("running", None), "sub1": ("exited", 3), "sub2": ("running", None)}
    say(store, "main1", 0)
    keep_ended(engine, store, SESSION_ID, ["main1", "sub2"])
    assert end(engine, store).to_dict() == {}
    assert [lines(store, name) for name in ("main1", "sub1", "sub2")] == [["last"], ["first"], ["printed"]]


def test_an_early_end_leaves_the_others_their_share(engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_logs, "LOG_BYTES", 8 << 10)
    monkeypatch.setattr(kept_logs, "KEPT_BYTES", 24 << 10)
    noise = {name: os.urandom(1 << 15) for name in ("main1", "sub1", "sub2")}
    begin(store, engine, ALL, **noise)
    for hostname in ("sub1", "sub2", "main1"):
        say(store, hostname, 0)
        keep_ended(engine, store, SESSION_ID, [hostname])
    sizes = {path.name.split("@")[0]: path.stat().st_size for path in (store.root / "output" / SESSION_ID).glob("*.gz")}
    assert sizes.keys() == {"main1", "sub1", "sub2"}
    assert sum(sizes.values()) <= 24 << 10
    assert min(sizes.values()) > 2 << 10


@pytest.mark.parametrize("content", ["", "{", '{"version": 3, "container": 7, "state": []}', "link", "folder"])
def test_a_damaged_note_of_what_was_kept_is_none(engine: Any, store: Store, content: str) -> None:
    begin(store, engine)
    note = store.kernel_folder(SESSION_ID, "main1") / "kept"
    if content == "link":
        note.symlink_to("/nowhere")
    elif content == "folder":
        note.mkdir()
    else:
        note.write_text(content)
    assert states(engine, store)["main1"] == ("running", None)


def test_units_are_started_for_sessions_with_commands_that_wait(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    monkeypatch.setattr(ended_commands, "start_units", started.extend)
    begin(store, engine)
    claimed = held(dataclasses.replace(MADE, id=SESSION_ID), expires_at=9e12)
    start_waiting(store, [claimed, held(dataclasses.replace(MADE, command=""))])
    assert started == []
    start_waiting(store, store.sessions())
    assert started == [f"backendai-output@{SESSION_ID}.service"]
    say(store, "main1", 0)
    keep_ended(engine, store, SESSION_ID, ["main1"])
    start_waiting(store, store.sessions())
    assert len(started) == 1


def test_a_stop_is_awaited_for_a_while(engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ended_commands, "_await_stop", AWAIT_STOP)
    monkeypatch.setattr(ended_commands, "STOP_SECONDS", 0.3)
    begin(store, engine)
    say(store, "main1", 0)
    began = time.monotonic()
    keep_ended(engine, store, SESSION_ID, ["main1"])
    assert 0.3 <= time.monotonic() - began < 1
    assert lines(store, "main1") == ["printed"]
