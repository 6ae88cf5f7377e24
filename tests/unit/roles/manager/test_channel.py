"""The pipe between the two parts: a request in time, and an end that cancels."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator

import pytest

from backendai_manager import service
from backendai_manager.errors import CancelledError, RefusedError
from backendai_manager.manager import channel as module
from backendai_manager.manager.channel import Channel
from backendai_manager.protocol import MAX_REQUEST, UNREAD, Request, Result

Ends = tuple[Channel, int, int]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """A channel, and the user's ends of its pipes."""
    source, request = os.pipe()
    answers, target = os.pipe()
    yield Channel(source, target), request, answers
    for handle in (source, target):
        os.close(handle)


def test_a_request_arrives_in_parts(ends: Ends) -> None:
    channel, request, _answers = ends
    os.write(request, b'{"verb": ')
    os.write(request, b'"agents"}\n')
    assert channel.read_request() == Request("agents", {})


@pytest.mark.parametrize(
    ("sent", "sentence"),
    [
        (b'{"verb": "agents"}', "no request arrived within 0.2 seconds."),
        (b'{"verb": "agents"}\n{"verb": "agents"}\n', "the request has more than one line."),
    ],
)
def test_a_request_that_is_late_or_not_alone_is_refused(ends: Ends, sent: bytes, sentence: str) -> None:
    channel, request, _answers = ends
    os.write(request, sent)
    with pytest.raises(RefusedError) as refusal:
        channel.read_request(seconds=0.2)
    assert str(refusal.value) == sentence


def test_a_request_that_ends_early_is_refused(ends: Ends) -> None:
    channel, request, _answers = ends
    os.write(request, b'{"verb"')
    os.close(request)
    with pytest.raises(RefusedError, match="the request ended before its line did"):
        channel.read_request()


def test_a_request_without_an_end_is_refused_at_its_limit() -> None:
    source = os.open("/dev/zero", os.O_RDONLY)
    answers, target = os.pipe()
    with pytest.raises(RefusedError, match=f"larger than {MAX_REQUEST} bytes"):
        Channel(source, target).read_request()
    for handle in (source, answers, target):
        os.close(handle)


@pytest.mark.usefixtures("host")
def test_the_end_of_the_users_part_cancels(ends: Ends) -> None:
    channel, request, _answers = ends
    channel.watch()
    channel.wait(0.01)
    assert not channel.cancelled
    os.close(request)
    with pytest.raises(CancelledError):
        channel.wait(10)


@pytest.mark.usefixtures("host")
def test_what_follows_the_request_is_dropped(ends: Ends) -> None:
    channel, request, _answers = ends
    channel.watch()
    os.write(request, b"{{ lookup('pipe', 'id') }}\n" * 1000)
    channel.wait(0.2)
    assert not channel.cancelled


def test_a_reader_that_is_gone_cancels(ends: Ends) -> None:
    channel, _request, answers = ends
    os.close(answers)
    channel.event("line", text="x")
    assert channel.cancelled


def test_a_reader_that_stops_reading_cancels(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "READER_SECONDS", 0.1)
    channel, _request, answers = ends
    began = time.monotonic()
    channel.event("line", text="x" * (1 << 20))
    assert channel.cancelled
    assert channel.unread
    # Nothing is appended to what was sent of that line, even if there is room again.
    for _line in range(100):
        channel.event("line", text="y")
    os.read(answers, 1 << 20)
    channel.result(Result("done"))
    os.set_blocking(answers, False)
    with pytest.raises(BlockingIOError):
        os.read(answers, 1)
    assert time.monotonic() - began < 15
    os.close(answers)


def test_a_service_that_nobody_reads_says_so_by_its_exit_code(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    channel, _request, answers = ends
    monkeypatch.setattr(service, "Channel", lambda _source, _target: channel)
    monkeypatch.setattr(service, "clean_environment", lambda _home: None)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(service, "serve", lambda *_arguments: Result("refused"))
    assert service.main() == 2
    channel.unread = True
    assert service.main() == UNREAD
    os.close(answers)
