"""Real scans of this host over its loopback interface."""

from __future__ import annotations

import errno
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from ipaddress import ip_address
from typing import cast

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._exposure import port_scan as scanner
from ansible_collections.backendai.cluster.plugins.module_utils._exposure.port_scan import (
    Answer,
    ScanTarget,
    max_open_sockets,
    scan,
)

SECONDS = 0.5
HERE = {"127.0.0.1", "::1"}
LOOPBACKS = [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)]


def listening(family: socket.AddressFamily, address: str) -> socket.socket:
    return socket.create_server((address, 0), family=family)


@pytest.fixture
def unused() -> Iterator[int]:
    """Return a port without a listener: it is bound, so that no other process takes it."""
    with ExitStack() as stack:
        holder = stack.enter_context(socket.socket(socket.AF_INET6))
        holder.bind(("::", 0))
        port = int(holder.getsockname()[1])
        taken = stack.enter_context(socket.socket(socket.AF_INET6, socket.SOCK_DGRAM))
        taken.bind(("::", 0))
        yield port


@pytest.mark.parametrize(("address", "family"), LOOPBACKS)
def test_a_listening_port_is_open_and_another_is_closed(
    address: str, family: socket.AddressFamily, unused: int
) -> None:
    with listening(family, address) as server:
        port = server.getsockname()[1]
        result = scan([ScanTarget("tcp", address, port), ScanTarget("tcp", address, unused)], HERE, 10, SECONDS)
    assert sorted(result.answers) == sorted(
        [Answer(ScanTarget("tcp", address, port), "open"), Answer(ScanTarget("tcp", address, unused), "closed")]
    )
    assert result.refused == {}


def test_more_targets_than_a_batch_are_scanned(unused: int) -> None:
    with ExitStack() as stack:
        servers = [stack.enter_context(listening(socket.AF_INET, "127.0.0.1")) for _number in range(7)]
        ports = [server.getsockname()[1] for server in servers]
        targets = [ScanTarget("tcp", "127.0.0.1", port) for port in [*ports, unused]]
        result = scan(iter(targets), HERE, 3, SECONDS)
    assert {answer.target.port for answer in result.answers if answer.state == "open"} == set(ports)
    assert {answer.target.port for answer in result.answers if answer.state == "closed"} == {unused}


def test_a_silent_target_is_not_among_the_answers() -> None:
    """A full accept queue drops SYNs silently."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        port = server.getsockname()[1]
        for _number in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            assert waiting.connect_ex(("127.0.0.1", port)) == errno.EINPROGRESS
        result = scan([ScanTarget("tcp", "127.0.0.1", port)], HERE, 10, SECONDS)
    assert result == ([], {})


@pytest.mark.parametrize(("address", "family"), LOOPBACKS)
def test_udp_ports_are_closed_open_or_silent(address: str, family: socket.AddressFamily, unused: int) -> None:
    with socket.socket(family, socket.SOCK_DGRAM) as silent:
        silent.bind((address, 0))
        port = silent.getsockname()[1]
        result = scan([ScanTarget("udp", address, port), ScanTarget("udp", address, unused)], HERE, 10, SECONDS)
    assert result.answers == [Answer(ScanTarget("udp", address, unused), "closed")]


def test_a_udp_service_that_answers_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as service:
        service.bind(("127.0.0.1", 0))
        sent = scanner._start_probe

        def answered(sock: socket.socket, target: ScanTarget) -> int:
            code = sent(sock, target)
            data, client = service.recvfrom(64)
            service.sendto(data, client)
            return code

        monkeypatch.setattr(scanner, "_start_probe", answered)
        target = ScanTarget("udp", "127.0.0.1", service.getsockname()[1])
        assert scan([target], HERE, 10, SECONDS).answers == [Answer(target, "open")]


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_host_that_answers_pings_is_open(address: str) -> None:
    target = ScanTarget("icmp", address, 0)
    assert scan([target], HERE, 10, SECONDS).answers == [Answer(target, "open")]


def test_an_unreachable_address_is_reported_once() -> None:
    targets = [ScanTarget("tcp", "255.255.255.255", 22), ScanTarget("tcp", "255.255.255.255", 23)]
    result = scan(targets, HERE, 1, SECONDS)
    assert result.answers == []
    assert result.refused == {"255.255.255.255": os.strerror(errno.ENETUNREACH)}


def test_an_echo_request_that_cannot_be_sent_is_reported() -> None:
    result = scan([ScanTarget("icmp", "255.255.255.255", 0)], HERE, 1, SECONDS)
    assert list(result.refused) == ["255.255.255.255"]


class Answering:
    """A socket with a pending error from ``sender``."""

    def __init__(self, code: int, sender: bytes | None, level: int = socket.IPPROTO_IP, kind: int = 11) -> None:
        self._code, self._sender, self._note = code, sender, (level, kind)

    def getsockopt(self, _level: int, _name: int) -> int:
        return self._code

    def recvmsg(self, _size: int, _notes: int, _flags: int) -> tuple[bytes, list[tuple[int, int, bytes]], int, None]:
        if self._sender is None:
            raise BlockingIOError
        return b"", [(0, 8, b""), (*self._note, bytes(16) + self._sender)], 0, None


SIX = bytes(8) + socket.inet_pton(socket.AF_INET6, "::1")
FOUR = bytes(4) + socket.inet_aton("127.0.0.1")
OTHER = bytes(4) + socket.inet_aton("192.0.2.7")


@pytest.mark.parametrize(
    ("heard", "state"),
    [
        (Answering(errno.ECONNREFUSED, None), "closed"),
        (Answering(errno.EHOSTUNREACH, FOUR), "answered"),
        (Answering(errno.EHOSTUNREACH, SIX, socket.IPPROTO_IPV6, 25), "answered"),
        (Answering(errno.EHOSTUNREACH, OTHER), ""),
        (Answering(errno.EHOSTUNREACH, None), ""),
    ],
    ids=["refused", "by the host", "by the host over IPv6", "by a router", "by an unknown sender"],
)
def test_an_icmp_error_from_the_target_is_an_answer(heard: Answering, state: str) -> None:
    hosts = {ip_address(address) for address in HERE}
    assert scanner._read_state(cast("socket.socket", heard), ScanTarget("tcp", "127.0.0.1", 22), hosts) == state


def test_a_link_local_destination_has_its_interface_index() -> None:
    assert scanner._destination(ScanTarget("tcp", "fe80::1%lo", 22)) == ("fe80::1", 22, 0, socket.if_nametoindex("lo"))
    assert scanner._destination(ScanTarget("tcp", "::1", 22)) == ("::1", 22, 0, 0)


@pytest.mark.parametrize(
    ("limits", "limit", "allowed", "raised"),
    [
        ((1024, 20000), 16000, 16000, (16200, 20000)),
        ((1024, 20000), 60000, 19800, (20000, 20000)),
        ((1024, 100), 16000, 1, None),
        ((1024, resource.RLIM_INFINITY), 16000, 16000, (16200, resource.RLIM_INFINITY)),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), 16000, 16000, None),
        ((524288, 524288), 16000, 16000, None),
    ],
)
def test_the_file_limit_limits_concurrent_probes(
    limits: tuple[int, int],
    limit: int,
    allowed: int,
    raised: tuple[int, int] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changed: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _what: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _what, new: changed.append(new))
    assert max_open_sockets(limit) == allowed
    assert changed == ([raised] if raised else [])
