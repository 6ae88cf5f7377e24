"""Probes from inside of containers, in the network namespace of this process."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker import labels
from ansible_collections.backendai.cluster.plugins.module_utils._exposure import inside
from ansible_collections.backendai.cluster.plugins.module_utils._exposure.inside import probe_from_containers
from ansible_collections.backendai.cluster.plugins.module_utils._exposure.model import InsideAnswer, InsideTarget
from tests.unit.running_gateway import unused_ports

ENDED = 2**22 + 1


class Engine:
    """An engine with containers: session, hostname, state and PID each."""

    def __init__(self, *containers: tuple[str, str, str, int]) -> None:
        self._containers = containers
        self.inspected: list[str] = []

    def containers(self, **_filters: object) -> list[dict[str, Any]]:
        return [
            {
                "Id": f"{session}-{hostname}",
                "State": state,
                "Names": [f"/{hostname}"],
                "Labels": {labels.SESSION_ID: session, labels.SESSION_NAME: session, labels.HOSTNAME: hostname},
            }
            for session, hostname, state, _pid in self._containers
        ]

    def inspect_container(self, container: str) -> dict[str, Any]:
        self.inspected.append(container)
        (pid,) = [pid for session, name, _state, pid in self._containers if f"{session}-{name}" == container]
        return {"State": {"Pid": pid}}


@pytest.fixture
def listener() -> Iterator[InsideTarget]:
    """Return a host that answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield InsideTarget("manager1", "127.0.0.1", server.getsockname()[1])


def sources(*containers: tuple[str, str, str, int]) -> list[tuple[str, str]]:
    """Return the containers that are probed from."""
    engine: Any = Engine(*containers)
    return [(probe.session, probe.container) for probe in probe_from_containers(engine, []).probes]


def test_a_container_of_each_session_is_probed_from() -> None:
    here = os.getpid()
    assert sources(
        ("train", "sub1", "running", here),
        ("train", "main1", "running", here),
        ("serve", "main1", "exited", 0),
        ("serve", "sub1", "running", here),
        ("ended", "main1", "exited", 0),
    ) == [("serve", "sub1"), ("train", "main1")]


def test_a_container_that_has_just_ended_is_replaced_by_the_next_one() -> None:
    assert sources(("train", "main1", "running", 0), ("train", "sub1", "running", os.getpid())) == [("train", "sub1")]


def test_what_answers_and_what_refuses_a_container_is_returned(listener: InsideTarget) -> None:
    (port,) = unused_ports(1)
    engine: Any = Engine(("train", "main1", "running", os.getpid()))
    (probe,) = probe_from_containers(engine, [listener, InsideTarget("agent1", "127.0.0.1", port)]).probes
    assert set(probe.answers) == {
        InsideAnswer("127.0.0.1", listener.port, "open"),
        InsideAnswer("127.0.0.1", port, "closed"),
    }
    assert (probe.session, probe.container, probe.failed) == ("train", "main1", "")


def test_a_network_that_cannot_be_entered_is_a_reason_and_the_others_are_probed(listener: InsideTarget) -> None:
    engine: Any = Engine(("serve", "main1", "running", ENDED), ("train", "main1", "running", os.getpid()))
    gone, fine = probe_from_containers(engine, [listener]).probes
    assert gone.answers == ()
    assert gone.failed.startswith("its network cannot be entered: [Errno 2] No such file or directory: ")
    assert len(fine.answers) == 1


def test_sessions_beyond_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inside, "MAX_SESSIONS", 2)
    engine: Any = Engine(*[(f"session{number}", "main1", "running", os.getpid()) for number in range(5)])
    reply = probe_from_containers(engine, [])
    assert ([probe.session for probe in reply.probes], reply.skipped) == (["session0", "session1"], 3)


def test_the_sockets_of_all_containers_together_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed: list[int] = []

    def scan(_targets: object, _hosts: object, at_once: int) -> SimpleNamespace:
        allowed.append(at_once)
        return SimpleNamespace(answers=[])

    monkeypatch.setattr(inside, "scan", scan)
    monkeypatch.setattr(inside, "max_open_sockets", lambda _limit: 160)
    engine: Any = Engine(("train", "main1", "running", os.getpid()))
    probe_from_containers(engine, [])
    assert allowed == [10]
