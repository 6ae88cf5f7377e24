"""What one session may take of time, bytes to read and bytes to keep when it ends: its attacks, in small."""

from __future__ import annotations

import gzip
import os
import random
import threading
import time
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any

import pytest
from docker.errors import APIError

from ansible_collections.backendai.cluster.plugins.module_utils._docker.client import connect
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._host.time_limit import limited_to
from ansible_collections.backendai.cluster.plugins.module_utils._model.session import App
from ansible_collections.backendai.cluster.plugins.module_utils._session import app_logs, kept_logs, output
from ansible_collections.backendai.cluster.plugins.module_utils._session.app_logs import AppLogs
from ansible_collections.backendai.cluster.plugins.module_utils._session.end import SessionEnd
from ansible_collections.backendai.cluster.plugins.module_utils._session.kept_logs import keep_logs
from ansible_collections.backendai.cluster.plugins.module_utils._session.reap import reap
from tests.unit.builders import SESSION_ID, held, plan
from tests.unit.engine_server import EngineServer, Printer, never_stops, says_and_hangs
from tests.unit.plugins.module_utils._session.test_logs import TIME, add, by_hostname, write_app_logs

MIB = 1 << 20


def noise(size: int, seed: int = 1) -> list[tuple[bytes, bytes]]:
    """Return a log that cannot be compressed, of about that size."""
    numbers = random.Random(seed)
    return [(TIME, numbers.randbytes(8000).replace(b"\n", b"x") + b"\n") for _message in range(size // 8000)]


def sizes(folder: Path) -> dict[str, int]:
    """Return the sizes of the kept logs by hostname and app."""
    return {
        path.name.partition("@")[0] + path.name.rpartition("@")[2][:-3]: path.stat().st_size
        for path in folder.iterdir()
    }


def keep(engine: Any, store: Store, apps: int = 0, seconds: float = 60) -> dict[str, str]:
    """Keep the logs of all containers in the folder that :func:`kept` returns."""
    named = [App(f"a{number}", 9000 + number) for number in range(apps)]
    kept(store).mkdir()
    return keep_logs(engine, kept(store), AppLogs(store, SESSION_ID), named, by_hostname(engine), seconds)


def kept(store: Store) -> Path:
    return store.root / "kept"


def write_logs(store: Store, *contents: bytes) -> Path:
    """Write the logs of the apps ``a0``, ``a1`` …, and return their folder."""
    return write_app_logs(store, **{f"a{number}": content for number, content in enumerate(contents)})


def test_all_logs_of_a_session_share_what_is_kept_and_main1_comes_first(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_logs, "KEPT_BYTES", 800_000)
    monkeypatch.setattr(kept_logs, "LOG_BYTES", 400_000)
    write_logs(store, *(bytes(noise(200_000)[0][1]) * 25 for _app in range(4)))
    add(engine, "main1", Log=noise(600_000))
    for number in range(1, 5):
        add(engine, f"sub{number}", Log=noise(600_000, number))
    assert keep(engine, store, 4) == {}
    found = sizes(kept(store))
    assert 200_000 < found["main1"] <= 400_000
    of_subs = [found[f"sub{number}"] for number in range(1, 5)]
    assert min(of_subs) > 0.4 * max(of_subs)
    assert sum(found.values()) <= 800_000
    for path in kept(store).glob("sub1@*"):
        assert noise(600_000, 1)[-1][1] in gzip.decompress(path.read_bytes())


def test_what_others_leave_is_for_those_after_them(engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_logs, "KEPT_BYTES", 800_000)
    add(engine, "main1", Log=[(TIME, b"one\n")])
    for number in range(1, 8):
        add(engine, f"sub{number}", Log=[(TIME, b"two\n")])
    add(engine, "sub8", Log=noise(1_500_000))
    assert keep(engine, store) == {}
    # An equal share is 100 kB; the one that is read beside it may still have half of what is left.
    assert sizes(kept(store))["sub8"] > 190_000


def test_a_log_for_which_nothing_is_left_is_lost_and_that_is_said(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_logs, "KEPT_BYTES", 2 * MIB)
    monkeypatch.setattr(kept_logs, "_LEAST_BYTES", 2 * MIB)
    add(engine, "main1", Log=[(TIME, b"one\n")])
    assert keep(engine, store) == {"main1": "the logs before it have taken the 2 MiB of the session"}


def test_sparse_logs_of_apps_take_neither_the_time_of_the_end_nor_the_logs_of_others(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Finding 6: 12 logs of 255 MiB took 0.7 to 6 s each; here, reading one would take 30 s.
    def read(file: FileIO, size: int) -> Iterator[bytes]:
        while size > 0 and (chunk := file.read(min(1 << 16, size))):
            if not chunk.strip(b"\0"):
                time.sleep(0.1)
            size -= len(chunk)
            yield chunk

    monkeypatch.setattr(app_logs, "_chunks", read)
    folder = write_logs(store, *[b""] * 11, b"served\n")
    for number in range(11):
        os.truncate(folder / f"a{number}.log", 255 * MIB if number else 1 << 42)
    add(engine, "main1", Log=[(TIME, b"one\n")])
    add(engine, "sub1", Log=[(TIME, b"two\n")])
    began = time.monotonic()
    lost = keep(engine, store, 12, seconds=2)
    assert time.monotonic() - began < 6
    assert {"main1", "sub1", "main1a11"} <= {*sizes(kept(store))}
    assert [*lost] == ["main1"]
    assert "a0: " in lost["main1"]
    assert "a11" not in lost["main1"]


def test_a_log_that_is_larger_than_its_share_is_kept_if_the_others_leave_enough(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_logs, "READ_BYTES", MIB)
    content = b"step\n" * 100_000
    add(engine, "main1", Log=[(TIME, b"one\n")])
    write_logs(store, b"x" * 2 * MIB, content, b"served\n")
    lost = keep(engine, store, 3)
    assert lost["main1"].startswith("a0: /var/log/backendai/a0.log has 2097152 bytes, more than the limit of ")
    assert "a1: " not in lost["main1"]
    assert sizes(kept(store)).keys() == {"main1", "main1a1", "main1a2"}
    (path,) = kept(store).glob("*@a1.gz")
    assert gzip.decompress(path.read_bytes()) == content


def test_no_more_is_read_than_a_session_may_have_read(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_logs, "READ_BYTES", 2 * MIB)
    read = [0]
    whole = engine.logs

    def count(container: str, **options: Any) -> Iterator[bytes]:
        for frame in whole(container, **options):
            read[0] += len(frame)
            yield frame

    monkeypatch.setattr(engine, "logs", count)
    add(engine, "main1", Log=noise(4 * MIB))
    for number in range(1, 9):
        add(engine, f"sub{number}", Log=noise(4 * MIB, number))
    lost = keep(engine, store)
    assert read[0] < 2 * MIB + 40 * 8100
    assert lost.keys() == {"main1", *(f"sub{number}" for number in range(1, 9))}
    assert lost["main1"].startswith("only the last 22 lines of its log were kept: ")
    assert sizes(kept(store)).keys() >= {"main1", "sub1"}


def test_log_that_has_no_readable_end_is_said(engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_logs, "READ_BYTES", 6000)
    add(engine, "main1", Log=noise(MIB))
    assert keep(engine, store) == {"main1": "its log cannot be read: it has more than 2250 bytes"}


def test_replaced_containers_do_not_add_up(engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_logs, "KEPT_BYTES", 300_000)
    monkeypatch.setattr(output, "KEPT_BYTES", 300_000)
    made = plan({"agent1": 1})
    for number in range(4):
        engine.made = []
        add(engine, "main1", Id=f"{number:012}", Log=noise(250_000, number), state="exited")
        output.keep_output(engine, store, held(made), by_hostname(engine))
    files = [path.name for path in (store.root / "output" / SESSION_ID).glob("*.gz")]
    assert "main1@000000000003@.gz" in files
    assert sum(path.stat().st_size for path in (store.root / "output" / SESSION_ID).glob("*.gz")) <= 300_000


# ---- several sessions


def test_a_session_that_cannot_be_removed_does_not_keep_those_after_it_from_ending(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [f"{number:08x}-3c0e-4f5e-9d0a-0f3c1d2e4b6a" for number in range(1, 4)]
    hangs, whole = threading.Event(), engine.remove_container

    def hang(container: str, **how: Any) -> None:
        if container == f"id-{ids[0]}":
            hangs.wait(30)
        whole(container, **how)

    monkeypatch.setattr(engine, "remove_container", hang)
    for session_id in ids:
        made = plan({"agent1": 1})
        store.save(held(made.__class__(**{**vars(made), "id": session_id, "name": f"s-{session_id[:8]}"})))
        add(engine, "main1", Id=f"id-{session_id}")
        bears = engine.made[-1]["Labels"]
        bears.update({name: session_id for name, value in bears.items() if value == SESSION_ID})
    with limited_to(6):
        result = reap(engine, store, {each: SessionEnd() for each in ids}, [], expired=True, check_mode=False)
    hangs.set()
    assert store.held_ids() == [ids[0]]
    (failure,) = result.failures.values()
    assert failure.startswith("it took more than ")
    assert failure.endswith(" seconds, its part of the time, and goes on with the next run")


def test_an_end_that_has_little_time_reads_logs_for_half_of_it() -> None:
    end = SessionEnd()
    end.limit_to(None)
    assert end.seconds == kept_logs.SECONDS
    end.limit_to(10)
    assert end.seconds == 5


def test_log_of_an_engine_error_is_lost_and_no_other(engine: Any, store: Store) -> None:
    add(engine, "main1", Log=APIError("500", None, "no space left"))
    add(engine, "sub1", Log=[(TIME, b"two\n")])
    assert keep(engine, store) == {"main1": "its log cannot be read: no space left"}
    assert sizes(kept(store)).keys() == {"sub1"}


@pytest.mark.parametrize(
    "printer", [says_and_hangs(b"2026-03-01T02:59:57Z one\n"), never_stops], ids=["silent", "endless"]
)
def test_log_that_never_ends_does_not_keep_a_session_from_ending(
    tmp_path: Path, store: Store, printer: Printer
) -> None:
    with EngineServer(tmp_path / "docker.sock").serving() as server:
        server.prints = printer
        containers = {name: {"Id": "c"} for name in ("main1", "sub1")}
        began = time.monotonic()
        lost = keep_logs(connect(server.url), tmp_path, AppLogs(store, SESSION_ID), (), containers, 2)
    assert time.monotonic() - began < 15
    assert lost.keys() == {"main1", "sub1"}
