"""Latency, measured on this host's loopback address."""

from __future__ import annotations

import os
import socket

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._network import latency
from ansible_collections.backendai.cluster.plugins.module_utils._network.latency import latencies
from ansible_collections.backendai.cluster.plugins.module_utils._network.reachability import PeerTarget, ProbeSource

HERE = ProbeSource("main1", os.getpid())
LOOPBACK = PeerTarget("sub1", "127.0.0.1")


def test_latency_is_the_best_of_a_few_echoes_in_milliseconds() -> None:
    taken = latencies([(HERE, LOOPBACK)])
    assert list(taken) == [("main1", "sub1")]
    assert 0 < taken["main1", "sub1"] < latency.ECHO_TIMEOUT * 1000


def test_a_peer_that_does_not_answer_has_no_latency(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "ECHO_TIMEOUT", 0.05)
    monkeypatch.setattr(latency, "echo_request", lambda _size, _sequence: b"\x0d\0" + bytes(18))
    assert latencies([(HERE, LOOPBACK)]) == {}


def test_dead_container_hides_no_other() -> None:
    dead = ProbeSource("sub2", 2**22 + 1)
    assert list(latencies([(dead, LOOPBACK), (HERE, LOOPBACK)])) == [("main1", "sub1")]


def test_lost_echo_ends_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []

    def answered(_opened: socket.socket, sequence: int, _until: float) -> bool:
        sent.append(sequence)
        return sequence < 4

    monkeypatch.setattr(latency, "_answered", answered)
    assert list(latencies([(HERE, LOOPBACK)])) == [("main1", "sub1")]
    assert sent == [2, 3, 4]
