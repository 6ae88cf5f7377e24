"""Limits of the gateway for each source: the real HAProxy, with addresses of loopback as sources."""

from __future__ import annotations

import asyncio
import contextlib
import re
import struct
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from tests.unit.running_gateway import ADDRESS, Connection, RunningGateway, answer_http, answer_ssh

USERS, ATTACKER = "127.0.0.3", "127.0.0.2"
HELD_OPEN = 200
# The longest time of a connection that sends no request: of a TLS handshake, with HAProxy before 2.9.
SILENT_SECONDS = 30
SILENCE = re.compile(r"^( +timeout (?:client|client-hs|client-fin|http-request)) (\d+)s$", re.MULTILINE)
# HTTP/2: the connection preface, with empty settings.
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000")
Result = TypeVar("Result")
Start = Callable[..., RunningGateway]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a gateway with these options, without their prefix.

    It loses patience with silent clients ``speed`` times sooner.
    """
    with contextlib.ExitStack() as stack:

        def start_gateway(speed: int = 1, **options: int) -> RunningGateway:
            gateway = RunningGateway(tmp_path, **options)
            path = tmp_path / "haproxy.cfg"
            text, times = SILENCE.subn(lambda found: f"{found[1]} {int(found[2]) * 1000 // speed}ms", path.read_text())
            assert times == 4
            path.write_text(text)
            stack.enter_context(gateway.running())
            return gateway

        yield start_gateway


def run(gateway: RunningGateway, test: Callable[[RunningGateway], Awaitable[Result]]) -> Result:
    """Return the result of a test with the app and the sshd of the gateway's session."""

    async def with_session() -> Result:
        app = await asyncio.start_server(answer_http, ADDRESS, gateway.app_port, backlog=1000)
        sshd = await asyncio.start_server(answer_ssh, ADDRESS, gateway.sshd_port, backlog=1000)
        async with app, sshd:
            return await test(gateway)

    return asyncio.run(with_session())


@contextlib.asynccontextmanager
async def opened(connections: Iterable[Awaitable[Connection]]) -> AsyncIterator[list[Connection]]:
    """Open connections, and close them at the end of the context."""
    done = await asyncio.gather(*connections)
    try:
        yield done
    finally:
        for _reader, writer in done:
            writer.transport.abort()


@contextlib.asynccontextmanager
async def sending(connections: Iterable[Connection], text: bytes) -> AsyncIterator[None]:
    """Send a part of a request over connections, and then another byte every two seconds."""

    async def keep_sending() -> None:
        part = text
        while True:
            for _reader, writer in connections:
                writer.write(part)
            part = b"x"
            await asyncio.sleep(2)

    task = asyncio.create_task(keep_sending())
    try:
        yield
    finally:
        task.cancel()


async def count_open(connections: Iterable[Awaitable[Connection]]) -> int:
    """Open connections, and return how many of them are open when the others have been closed for some seconds."""

    async def stays_open(reader: asyncio.StreamReader) -> bool:
        with contextlib.suppress(ConnectionError):
            try:
                await asyncio.wait_for(reader.read(), 4)
            except TimeoutError:
                return True
        return False

    done = await asyncio.gather(*connections, return_exceptions=True)
    accepted = [connection for connection in done if not isinstance(connection, BaseException)]
    held = await asyncio.gather(*(stays_open(reader) for reader, _writer in accepted))
    for _reader, writer in accepted:
        writer.transport.abort()
    return sum(held)


async def read_banner(connecting: Awaitable[Connection]) -> bytes:
    """Open a connection, and return the first line; empty if it is closed."""
    with contextlib.suppress(ConnectionError):
        reader, _writer = await connecting
        return await asyncio.wait_for(reader.readline(), 60)
    return b""


async def until_closed(connection: Connection) -> float:
    """Return after how many seconds a connection is closed."""
    began = time.monotonic()
    with contextlib.suppress(ConnectionError):
        await asyncio.wait_for(connection[0].read(), 60)
    return time.monotonic() - began


async def count_answers(gateway: RunningGateway, requests: int, at_once: int) -> Counter[int | str]:
    """Send requests, each over a connection of its own; return the number of each status or error."""
    remaining = iter(range(requests))

    async def send() -> list[int | str]:
        found: list[int | str] = []
        for _request in remaining:
            try:
                found.append((await gateway.request(USERS))[0])
            except (OSError, ValueError) as error:
                found.append(repr(error))
        return found

    sent = await asyncio.gather(*(send() for _user in range(at_once)))
    return Counter(status for found in sent for status in found)


def test_no_request_of_fifty_users_behind_one_address_is_lost(start: Start, full: bool) -> None:
    requests = 10_000 if full else 300

    async def ask(gateway: RunningGateway) -> Counter[int | str]:
        plain = (gateway.connect(ATTACKER, tls=False) for _connection in range(HELD_OPEN))
        encrypted = (gateway.connect(ATTACKER) for _connection in range(HELD_OPEN))
        async with (
            opened(plain),
            opened(encrypted) as slow,
            sending(slow, b"GET /s/train-llm/web/ HTTP/1.1\r\nX-Slow: "),
        ):
            return await count_answers(gateway, requests, at_once=50)

    assert run(start(), ask) == {200: requests}


def test_silent_and_slow_connections_end_after_seconds_and_slow_apps_are_waited_for(start: Start, full: bool) -> None:
    speed = 1 if full else 5

    async def ask(gateway: RunningGateway) -> tuple[list[float], int]:
        answer = asyncio.create_task(gateway.request(USERS, str((SILENT_SECONDS + 2) / speed)))
        ways = [
            gateway.connect(ATTACKER, tls=False),
            gateway.connect(ATTACKER, tls=False),
            gateway.connect(ATTACKER),
            gateway.connect(ATTACKER),
            gateway.connect(ATTACKER, alpn="h2"),
            gateway.connect(ATTACKER, alpn="h2"),
        ]
        async with opened(ways) as connections:
            _silent, half_hello, _silent_http, half_request, _silent_http2, http2 = connections
            http2[1].write(PREFACE)
            hello = bytes.fromhex("160301020001000001fc0303")
            async with sending([half_hello], hello), sending([half_request], b"GET / HTTP/1.1\r\nX-Slow: "):
                return await asyncio.gather(*map(until_closed, connections)), (await answer)[0]

    seconds, status = run(start(speed), ask)
    assert max(seconds) < (SILENT_SECONDS + 20) / speed
    # After the handshake.
    assert max(seconds[2:]) < (SILENT_SECONDS - 5) / speed
    # An app may take longer than that for its answer.
    assert status == 200


def test_one_source_cannot_take_all_connections(start: Start) -> None:
    async def ask(gateway: RunningGateway) -> tuple[int, Counter[int | str]]:
        # More than the gateway has.
        attempts = count_open(gateway.connect(ATTACKER, tls=False) for _connection in range(150))
        opened, answers = await asyncio.gather(attempts, count_answers(gateway, 50, at_once=10))
        return opened, answers

    # A quarter, and a quarter of that which is answered.
    assert run(start(max_connections=100, source_connections=100), ask) == (31, {200: 50})


def test_connections_beyond_the_limit_are_answered_with_429_and_then_closed(start: Start) -> None:
    async def ask(gateway: RunningGateway) -> None:
        async with opened(gateway.connect(USERS) for _connection in range(10)) as connections:
            status, answer = await gateway.request(USERS)
            assert status == 429
            assert b"There are too many connections or requests from your address, 127.0.0.3." in answer
            assert (await gateway.request(ATTACKER))[0] == 200
            reader, writer = connections[0]
            writer.write(gateway.request_text())
            assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
            async with opened(gateway.connect(USERS) for _connection in range(3)):
                with pytest.raises((OSError, ValueError)):
                    await gateway.request(USERS)
        # The gateway notices closed connections a moment later.
        async with asyncio.timeout(60):
            while await count_answers(gateway, 1, at_once=1) != {200: 1}:
                await asyncio.sleep(0.1)

    run(start(source_connections=10), ask)


def test_new_connections_beyond_the_rate_are_answered_with_429_and_then_closed(start: Start) -> None:
    async def ask(gateway: RunningGateway) -> list[int | str]:
        counted = [await count_answers(gateway, 1, at_once=1) for _request in range(13)]
        assert (await gateway.request(ATTACKER))[0] == 200
        return [status for one in counted for status in one]

    *answered, closed = run(start(source_rate=1), ask)
    assert answered == [200] * 10 + [429] * 2
    assert isinstance(closed, str)


def test_requests_of_one_http2_connection_count_one_by_one(start: Start) -> None:
    async def ask(gateway: RunningGateway) -> Counter[bytes]:
        async with opened([gateway.connect(USERS, alpn="h2")]) as [(reader, writer)]:
            writer.write(PREFACE)
            for stream in range(1, 40, 2):
                fields = gateway.request_fields("1")
                text = b"".join(b"\0" + _hpack_text(name) + _hpack_text(value) for name, value in fields)
                writer.write(struct.pack(">I", len(text))[1:] + bytes([1, 5]) + struct.pack(">I", stream) + text)
            statuses: list[bytes] = []
            while len(statuses) < 20:
                frame = await asyncio.wait_for(reader.readexactly(9), 60)
                content = await reader.readexactly(int.from_bytes(frame[:3], "big"))
                # The first field of an answer is the status; 200 is one byte.
                statuses += [b"200" if content[0] == 0x88 else content[2:5]] if frame[3] == 1 else []
            return Counter(statuses)

    assert run(start(source_connections=8), ask) == {b"200": 8, b"429": 12}


def _hpack_text(text: bytes) -> bytes:
    """Return a text as in a field of HTTP/2: its length, and the text as it is."""
    rest = len(text) - 127
    return (bytes([len(text)]) if rest < 0 else bytes([127, rest % 128 | 128, rest // 128])) + text


@pytest.mark.parametrize("limits", [{"source_ssh_connections": 10}, {"source_ssh_rate": 1}])
def test_ssh_connections_beyond_the_limits_are_closed(start: Start, limits: dict[str, int]) -> None:
    async def ask(gateway: RunningGateway) -> None:
        def connect(source: str) -> Awaitable[Connection]:
            return gateway.connect(source, tls=False, port=gateway.ssh_port)

        async with opened(connect(ATTACKER) for _connection in range(10)) as connections:
            banners = await asyncio.gather(*(reader.readline() for reader, _writer in connections))
            assert banners == [b"SSH-2.0-test\r\n"] * 10
            assert await read_banner(connect(ATTACKER)) == b""
            assert await read_banner(connect(USERS)) == b"SSH-2.0-test\r\n"

    run(start(**limits), ask)
