"""What containers printed is kept on their agent when they are removed."""

from __future__ import annotations

import dataclasses
import json
import os
import stat
import time
from typing import Any

import pytest
from docker.errors import APIError

from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._session import end as ending
from ansible_collections.backendai.cluster.plugins.module_utils._session import kept_logs, output
from ansible_collections.backendai.cluster.plugins.module_utils._session.end import (
    SessionEnd,
    replace_containers,
    stop_sessions,
)
from ansible_collections.backendai.cluster.plugins.module_utils._session.output import find_kept, prune, read_kept
from ansible_collections.backendai.cluster.plugins.module_utils._session.reap import reap
from ansible_collections.backendai.cluster.plugins.module_utils._session.remove import remove_claimed
from ansible_collections.backendai.cluster.plugins.module_utils._session.reply_logs import ReplyLogs
from tests.unit.builders import SESSION_ID, held, plan
from tests.unit.plugins.module_utils._session.test_logs import APPS, TIME, add, by_hostname, write_app_logs

MADE = plan({"agent1": 2, "agent2": 1}, apps=APPS)
OTHER_ID = "00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
OTHER = dataclasses.replace(MADE, id=OTHER_ID, created_at=MADE.created_at - 1)


def end(engine: Any, store: Store, **how: Any) -> SessionEnd:
    how_it_ended = SessionEnd(**how)
    remove_claimed(engine, store, SESSION_ID, None, end=how_it_ended, check_mode=False)
    return how_it_ended


def read(store: Store, hostname: str = "", lines: int = 9) -> dict[str, Any]:
    kept = find_kept(store, SESSION_ID)
    assert kept
    return read_kept(store, kept, hostname, lines, ReplyLogs())


def logs(store: Store) -> dict[str, Any]:
    """Return the kept log of each container, and its apps' logs, without timestamps."""
    return {
        name: [
            [line.removeprefix(TIME.decode()) for line in json.loads(text)]
            for text in (log["log"], *log["apps"].values())
        ]
        for name, log in read(store)["logs"].items()
    }


def test_logs_outlive_the_containers(engine: Any, store: Store) -> None:
    store.save(held(MADE))
    write_app_logs(store, jupyter=b"served\n")
    add(engine, "main1", Log=[(TIME, b"one\n"), (TIME, b"two\n")])
    add(engine, "sub1", Log=[(TIME, b"three\n")])
    assert end(engine, store).to_dict() == {}
    assert (engine.made, store.sessions()) == ([], [])
    assert logs(store) == {"main1": [["one", "two"], ["served"]], "sub1": [["three"]]}
    part = read(store, "main1", 1)
    assert (part["id"], part["batch"]) == (MADE.id, bool(MADE.command))
    assert (list(part["logs"]), part["containers"]["main1"]["status"]) == (["main1"], "exited")
    assert json.loads(part["logs"]["main1"]["log"]) == [f"{TIME.decode()}two"]
    paths = [store.root / "output", *(store.root / "output").rglob("*")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths} == {0o600, 0o700}


def test_exceeded_grace_is_reported_and_force_has_none(engine: Any, store: Store) -> None:
    store.save(held(dataclasses.replace(MADE, stop_grace=1)))
    add(engine, "main1", Stubborn=True)
    assert end(engine, store).grace_exceeded
    store.save(held(MADE))
    add(engine, "main1", Stubborn=True)
    assert not end(engine, store, force=True).grace_exceeded


def test_session_that_was_asked_has_no_second_grace(engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, float]] = []

    def stop(_client: Any, graces: dict[str, float]) -> set[str]:
        given.append(graces)
        return {name for name, grace in graces.items() if grace}

    monkeypatch.setattr(ending, "stop_containers", stop)
    store.save(held(MADE))
    add(engine, "main1")
    both = SessionEnd()
    stop_sessions(engine, store, {SESSION_ID: both})
    remove_claimed(engine, store, SESSION_ID, None, end=both, check_mode=False)
    assert (given, both.grace_exceeded) == ([{"id-main1": MADE.stop_grace}, {"id-main1": 0}], True)


def test_claim_that_was_never_committed_is_neither_asked_nor_kept(engine: Any, store: Store) -> None:
    store.save(held(MADE, expires_at=9e12))
    add(engine, "main1", Stubborn=True)
    end(engine, store)
    assert "SIGPWR id-main1" not in engine.calls
    assert find_kept(store, SESSION_ID) is None


def test_damaged_session_is_asked_and_its_loss_is_said(engine: Any, store: Store) -> None:
    store.folder(SESSION_ID).mkdir()
    (store.folder(SESSION_ID) / "session.json").write_text("{")
    store.container_ids(SESSION_ID).record("main1", "id-main1")
    add(engine, "main1")
    assert end(engine, store).to_dict() == {"lost_output": ["main1: its plan is damaged, so its output has no place"]}
    assert "SIGPWR id-main1" in engine.calls


def test_session_ends_although_nothing_can_be_written(engine: Any, store: Store) -> None:
    store.save(held(MADE))
    (store.root / "output").touch()
    add(engine, "main1")
    assert end(engine, store).to_dict() == {
        "lost_output": [f"main1: {store.root}/output/{SESSION_ID} cannot be written (File exists)"]
    }
    assert engine.made == []


def test_log_that_cannot_be_read_is_said_and_the_others_are_kept(engine: Any, store: Store) -> None:
    store.save(held(MADE))
    write_app_logs(store, jupyter=b"served\n")
    add(engine, "main1", Log=APIError("500", None, "no space left"))
    add(engine, "sub1", Log=[(TIME, b"three\n")])
    lost = "its log cannot be read: no space left"
    assert end(engine, store).to_dict() == {"lost_output": [f"main1: {lost}"]}
    assert read(store)["logs"]["main1"]["error"] == lost
    assert logs(store) == {"main1": [[], ["served"]], "sub1": [["three"]]}


def test_end_of_a_log_that_cannot_be_read_whole_is_kept(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_logs, "READ_BYTES", 1000)
    monkeypatch.setattr(kept_logs, "END_LINES", 2)
    store.save(held(MADE))
    add(engine, "main1", Log=[(TIME, b"%d\n" % number) for number in range(50)])
    why = "its log cannot be read: it has more than 375 bytes"
    assert end(engine, store).to_dict() == {
        "lost_output": [f"main1: only the last 2 lines of its log were kept: {why}"]
    }
    assert logs(store)["main1"] == [["48", "49"]]


def test_session_ends_although_its_agent_has_no_folder_of_homes(engine: Any, store: Store) -> None:
    store.save(held(MADE))
    store.homes_link.unlink()
    add(engine, "main1", Log=[(TIME, b"one\n")])
    (lost,) = end(engine, store).to_dict()["lost_output"]
    assert lost.startswith(
        f"main1: jupyter: /var/log/backendai/jupyter.log cannot be read: {store.homes_link} is missing: run "
    )
    assert (engine.made, logs(store)) == ([], {"main1": [["one"]]})


def test_pipes_and_links_in_place_of_logs_of_apps_do_not_keep_a_session_from_ending(engine: Any, store: Store) -> None:
    store.save(held(MADE))
    folder = write_app_logs(store)
    os.mkfifo(folder / "jupyter.log")
    (folder / "tensorboard.log").symlink_to("/etc/passwd")
    add(engine, "main1", Log=[(TIME, b"one\n")])
    began = time.monotonic()
    (lost,) = end(engine, store).to_dict()["lost_output"]
    paths = [f"{app}: /var/log/backendai/{app}.log is not a regular file" for app in ("jupyter", "tensorboard")]
    assert lost == f"main1: {'; '.join(paths)}"
    assert time.monotonic() - began < 10
    assert logs(store) == {"main1": [["one"]]}


def test_end_that_was_killed_after_it_saved_can_be_repeated(engine: Any, store: Store) -> None:
    store.save(held(MADE))
    add(engine, "main1", Log=[(TIME, b"one\n")])
    add(engine, "sub1", Log=[(TIME, b"three\n")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "remove_container", lambda *_args, **_options: exec("raise SystemExit"))
        with pytest.raises(SystemExit):
            end(engine, store)
    # The engine has removed one of them all the same.
    engine.made = [container for container in engine.made if container["Id"] == "id-sub1"]
    end(engine, store)
    assert logs(store) == {"main1": [["one"]], "sub1": [["three"]]}


def test_output_of_a_replaced_container_is_part_of_that_of_the_session(engine: Any, store: Store) -> None:
    store.save(held(MADE))
    add(engine, "main1", Log=[(TIME, b"one\n")])
    assert replace_containers(engine, store, held(MADE), ["id-main1"]) == {}
    engine.remove_container("id-main1", force=True, v=True)
    add(engine, "main1", Id="id-again", Log=[(TIME, b"two\n")])
    end(engine, store)
    assert logs(store)["main1"] == [["one", "two"]]


def test_nothing_of_a_claim_is_kept_when_its_container_is_replaced(engine: Any, store: Store) -> None:
    add(engine, "main1")
    assert replace_containers(engine, store, held(MADE, expires_at=9e12), ["id-main1"]) == {}
    assert (engine.calls, find_kept(store, SESSION_ID)) == ([], None)


def test_unknown_session_has_nothing_to_stop(engine: Any, store: Store) -> None:
    stop_sessions(engine, store, {"": SessionEnd()})
    assert engine.calls == []


def keep(engine: Any, store: Store, of: Any, days: float) -> None:
    """Keep the output of a session with one container."""
    output.keep_output(engine, store, held(of), by_hostname(engine), days)


def test_expired_output_is_removed_except_of_sessions_that_are_held(engine: Any, store: Store) -> None:
    add(engine, "main1", state="exited")
    keep(engine, store, OTHER, -1)
    keep(engine, store, MADE, 1)
    assert find_kept(store, OTHER_ID) is None
    keep(engine, store, OTHER, -1)
    store.save(held(OTHER))
    prune(store)
    assert find_kept(store, OTHER_ID)
    store.remove(OTHER_ID)
    prune(store)
    assert (find_kept(store, OTHER_ID), find_kept(store, SESSION_ID) is None) == (None, False)


def test_when_there_is_too_much_the_oldest_of_the_user_who_has_most_is_removed(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(engine, "main1", state="exited", Log=[(TIME, b"one\n")])
    ids = [f"{number:08x}-3c0e-4f5e-9d0a-0f3c1d2e4b6a" for number in range(5)]
    for number, (session_id, user) in enumerate(zip(ids, ["bob", "alice", "alice", "alice", "carol"], strict=True)):
        monkeypatch.setattr(output.time, "time", lambda number=number: float(number))
        keep(engine, store, dataclasses.replace(MADE, id=session_id, user=user), 1e6)
    size = sum(path.stat().st_size for path in (store.root / "output" / ids[1]).iterdir())
    monkeypatch.setattr(output, "MAX_BYTES", 4 * size + size // 2)
    prune(store, ids[4])
    assert [bool(find_kept(store, session_id)) for session_id in ids] == [True, False, True, True, True]
    monkeypatch.setattr(output, "MAX_BYTES", 1)
    prune(store, ids[4])
    assert [bool(find_kept(store, session_id)) for session_id in ids] == [False, False, False, False, True]


def test_expired_output_is_removed_when_no_session_ends(engine: Any, store: Store) -> None:
    add(engine, "main1", state="exited")
    keep(engine, store, OTHER, -1)
    reap(engine, store, {}, [], expired=True, check_mode=True)
    assert find_kept(store, OTHER_ID)
    reap(engine, store, {}, [], expired=True, check_mode=False)
    assert find_kept(store, OTHER_ID) is None


def test_expired_output_that_cannot_be_removed_is_no_loss(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_path: Any) -> None:
        raise PermissionError("no")

    add(engine, "main1", state="exited", Log=[(TIME, b"one\n")])
    keep(engine, store, OTHER, -1)
    monkeypatch.setattr(output.shutil, "rmtree", fail)
    assert output.keep_output(engine, store, held(MADE), by_hostname(engine)) == {}
    assert reap(engine, store, {}, [], expired=True, check_mode=False).failures == {}
    assert find_kept(store, OTHER_ID)


def test_loss_of_a_first_attempt_is_forgotten_after_a_good_one(engine: Any, store: Store) -> None:
    add(engine, "main1", state="exited", Log=APIError("500", None, "no space left"))
    keep(engine, store, MADE, 1)
    assert read(store)["logs"]["main1"]["error"]
    engine.made[0]["Log"] = [(TIME, b"one\n")]
    keep(engine, store, MADE, 1)
    assert (read(store)["logs"]["main1"]["error"], logs(store)["main1"][0]) == (None, ["one"])


def test_damaged_output_is_an_error_of_its_container(engine: Any, store: Store) -> None:
    add(engine, "main1", state="exited", Log=[(TIME, b"one\n")])
    keep(engine, store, MADE, 1)
    (path,) = (store.root / "output" / SESSION_ID).glob("main1@*@.gz")
    path.write_bytes(path.read_bytes()[:-9])
    assert f"{path} cannot be read" in read(store)["logs"]["main1"]["error"]
    (store.root / "output" / SESSION_ID / "session.json").write_text("{")
    assert find_kept(store, SESSION_ID) is None
    prune(store)
    assert not (store.root / "output" / SESSION_ID).exists()


@pytest.mark.parametrize("session_id", ["", OTHER_ID, "../sessions"])
def test_unknown_output_is_not_found(store: Store, session_id: str) -> None:
    assert find_kept(store, session_id) is None
