"""Tests for reading the logs of containers."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docker.errors import APIError, NotFound

from ansible_collections.backendai.cluster.plugins.module_utils._docker import logs
from ansible_collections.backendai.cluster.plugins.module_utils._docker.client import DockerUnavailableError, connect
from ansible_collections.backendai.cluster.plugins.module_utils._docker.logs import (
    Allowance,
    LogLimitError,
    LogReadError,
    read_log,
    tail_of,
)
from tests.unit.engine_server import EngineServer, never_stops, says, says_and_hangs
from tests.unit.fake_docker import FakeDocker


def printed(*messages: bytes) -> Any:
    """Return an engine with one container, ``c``, that printed these messages at second 0, 1, 2 …"""
    engine = FakeDocker()
    timestamped = [
        (f"2026-03-01T02:59:{second:02}.000000000Z ".encode(), message) for second, message in enumerate(messages)
    ]
    engine.made.append({"Id": "c", "Labels": {}, "State": "exited", "Log": timestamped})
    return engine


def test_last_lines_keep_the_order_of_output() -> None:
    engine = printed(b"one\n", b"two\n", b"three\n")
    assert tail_of(engine, "c", 2) == ["two", "three"]
    assert tail_of(engine, "c", 9) == ["one", "two", "three"]


def test_timestamps_appear_only_at_the_beginning_of_lines() -> None:
    engine = printed(b"one\n", b"a long line ", b"goes ", b"on\n", b"half")
    assert tail_of(engine, "c", 9, timestamps=True) == [
        "2026-03-01T02:59:00.000000000Z one",
        "2026-03-01T02:59:01.000000000Z a long line goes on",
        "2026-03-01T02:59:04.000000000Z half",
    ]


def test_empty_log_has_no_lines_and_an_empty_line_is_one() -> None:
    assert tail_of(printed(), "c", 9) == []
    assert tail_of(printed(b"\n", b"one\n", b"\n"), "c", 9) == ["", "one", ""]


def test_only_newlines_end_lines_and_invalid_utf8_is_replaced() -> None:
    assert tail_of(printed(b"10%\r20%\x0c\xe2\x80\xa8\n", b"\xff\xc3(\n"), "c", 9) == [
        "10%\r20%\x0c\u2028",
        "\ufffd\ufffd(",
    ]


@pytest.mark.parametrize("pieces", [[b"x" * 10 + b"\n"] * 3, [(b"x" * 10 + b"\n") * 3]], ids=["many", "one"])
def test_long_log_is_truncated_to_its_end(pieces: list[bytes]) -> None:
    assert tail_of(printed(*pieces), "c", 9, size=15) == ["…xxx", "x" * 10]
    assert tail_of(printed(*pieces), "c", 1, size=15) == ["x" * 10]


@pytest.mark.parametrize("pieces", [[b"x" * 10 + b"\n"] * 3, [(b"x" * 10 + b"\n") * 3]], ids=["many", "one"])
def test_log_of_maximum_length_is_not_truncated(pieces: list[bytes]) -> None:
    assert tail_of(printed(*pieces), "c", 9, size=33) == ["x" * 10] * 3


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            APIError("501", None, "configured logging driver does not support reading."),
            "configured logging driver does not support reading",
        ),
        (NotFound("No such container: c"), "No such container: c"),
        (TimeoutError("timed out"), "timed out"),
        (DockerUnavailableError("the SDK does not work."), "the SDK does not work"),
    ],
    ids=["driver", "missing", "slow", "no SDK"],
)
def test_log_read_error_is_one_sentence(error: Exception, reason: str) -> None:
    engine = printed()
    engine.made[0]["Log"] = error
    with pytest.raises(LogReadError) as raised:
        tail_of(engine, "c", 9)
    assert str(raised.value) == f"its log cannot be read: {reason}"


# ---- whole logs


def whole(engine: Any, size: int = 1 << 20, seconds: float = 60.0, tail: Any = "all") -> bytes:
    """Return the log of an engine's container."""
    attempts: list[list[bytes]] = []

    def begin() -> Any:
        attempts.append([])
        return attempts[-1].append

    read_log(engine, "c", begin, Allowance(size, seconds), tail)
    return b"".join(attempts[-1])


def test_log_is_read_whole_without_the_timestamps_inside_lines() -> None:
    assert whole(printed(b"one\n", b"a long line ", b"goes on\n")) == (
        b"2026-03-01T02:59:00.000000000Z one\n2026-03-01T02:59:01.000000000Z a long line goes on\n"
    )


def test_log_of_which_the_engine_sends_a_part_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = printed(b"one\n", b"two\n")
    all_of_it, sent = engine.logs, [1]

    def send(container: str, **options: Any) -> Any:
        frames = all_of_it(container, **options)
        yield from itertools.islice(frames, sent.pop() if options["tail"] == "all" and sent else None)

    monkeypatch.setattr(engine, "logs", send)
    assert whole(engine).endswith(b"Z two\n")
    sent += [1] * logs.READ_ATTEMPTS
    with pytest.raises(LogReadError, match=r"^its log cannot be read: the engine did not send all of it$"):
        whole(engine)


def test_log_above_what_may_be_read_is_read_from_a_later_message() -> None:
    engine = printed(*[b"x" * 100 + b"\n"] * 9)
    with pytest.raises(LogLimitError, match=r"^its log cannot be read: it has more than 500 bytes$"):
        whole(engine, 500)
    assert len(whole(engine, 500, tail=2)) == 2 * 132
    with pytest.raises(LogLimitError, match=r"^its log cannot be read: not all of it was read within 0 sec"):
        whole(engine, seconds=0)


def test_what_is_read_again_counts_again() -> None:
    engine, allowance = printed(b"one\n"), Allowance(1000, 60)
    for _time in range(2):
        read_log(engine, "c", lambda: bytearray().extend, allowance)
    assert allowance.read == 4 * len(b"2026-03-01T02:59:00.000000000Z one\n")


@pytest.mark.parametrize("error", [APIError("501", None, "no"), DockerUnavailableError("no")], ids=["driver", "no SDK"])
def test_unreadable_log_is_not_read(error: Exception) -> None:
    engine = printed()
    engine.made[0]["Log"] = error
    with pytest.raises(LogReadError, match=r"^its log cannot be read: no$"):
        whole(engine)


# ---- with an engine on a real socket


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EngineServer]:
    with EngineServer(tmp_path / "docker.sock").serving() as serving:
        yield serving


def test_log_of_an_engine_is_read(server: EngineServer) -> None:
    server.prints = says(b"one\ntwo\n")
    assert tail_of(connect(server.url), "c", 1) == ["two"]


@pytest.mark.parametrize("printer", [says_and_hangs(b"one\n"), never_stops], ids=["silent", "endless"])
def test_log_that_never_ends_is_read_for_a_limited_time(
    server: EngineServer, monkeypatch: pytest.MonkeyPatch, printer: Any
) -> None:
    monkeypatch.setattr(logs, "READ_SECONDS", 1)
    server.prints = printer
    with pytest.raises(LogReadError, match=r"^its log cannot be read: not all of it was read within 1 seco"):
        tail_of(connect(server.url), "c", 9)


class SlowlyStarted(threading.Timer):
    """A timer of a busy machine, on which other threads run after its start."""

    def start(self) -> None:
        super().start()
        time.sleep(0.3)


def test_log_that_stalls_is_never_complete(server: EngineServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "READ_SECONDS", 1)
    monkeypatch.setattr(threading, "Timer", SlowlyStarted)
    server.prints = says_and_hangs(b"one\n")
    with pytest.raises(LogReadError, match=r"^its log cannot be read: not all of it was read within 1 seco"):
        tail_of(connect(server.url), "c", 9)


def test_log_of_endless_size_is_not_read_to_its_end(server: EngineServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "READ_BYTES", 200_000)
    server.prints = never_stops
    with pytest.raises(LogReadError, match=r"^its log cannot be read: it has more than 200000 bytes$"):
        tail_of(connect(server.url), "c", 9)
