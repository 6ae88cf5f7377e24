"""Probes from inside of containers, in the network namespace of this process."""

from __future__ import annotations

import dataclasses
import os
import socket
import uuid
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._exposure import inside
from ansible_collections.backendai.cluster.plugins.module_utils._exposure.inside import probe_from_containers
from ansible_collections.backendai.cluster.plugins.module_utils._exposure.model import (
    InsideAnswer,
    InsideReply,
    InsideTarget,
)
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from tests.unit.agent import store
from tests.unit.builders import held, own_labels, plan
from tests.unit.running_gateway import unused_ports

ENDED = 2**22 + 1

__all__ = ["store"]


class Engine:
    """An engine with containers of sessions: session, hostname, state and PID each."""

    def __init__(self, *containers: tuple[str, str, str, int]) -> None:
        self._containers = containers

    def containers(self, **_filters: object) -> list[dict[str, Any]]:
        return [
            {
                "Id": f"{session}-{hostname}",
                "State": state,
                "Names": [f"/{hostname}"],
                "Labels": own_labels(hostname, id_of(session)),
            }
            for session, hostname, state, _pid in self._containers
        ]

    def inspect_container(self, container: str) -> dict[str, Any]:
        (pid,) = [pid for session, name, _state, pid in self._containers if f"{session}-{name}" == container]
        return {"State": {"Pid": pid}}


def id_of(session: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, session))


def probe(store: Store, engine: Any, targets: Sequence[InsideTarget] = ()) -> InsideReply:
    """Probe from the containers of an engine, whose ids the agent has recorded."""
    for entry in engine.containers():
        session, _dash, hostname = entry["Id"].partition("-")
        store.save(held(dataclasses.replace(plan({"agent1": 2}, name=session), id=id_of(session))))
        store.container_ids(id_of(session)).record(hostname, entry["Id"])
    return probe_from_containers(engine, store, targets)


@pytest.fixture
def listener() -> Iterator[InsideTarget]:
    """Return a host that answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield InsideTarget("manager1", "127.0.0.1", server.getsockname()[1])


def sources(store: Store, *containers: tuple[str, str, str, int]) -> list[tuple[str, str]]:
    """Return the containers that are probed from."""
    engine: Any = Engine(*containers)
    return [(each.session, each.container) for each in probe(store, engine, []).probes]


def test_a_container_of_each_session_is_probed_from(store: Store) -> None:
    here = os.getpid()
    assert sources(
        store,
        ("train", "sub1", "running", here),
        ("train", "main1", "running", here),
        ("serve", "main1", "exited", 0),
        ("serve", "sub1", "running", here),
        ("ended", "main1", "exited", 0),
    ) == [("serve", "sub1"), ("train", "main1")]


def test_a_container_that_has_just_ended_is_replaced_by_the_next_one(store: Store) -> None:
    assert sources(store, ("train", "main1", "running", 0), ("train", "sub1", "running", os.getpid())) == [
        ("train", "sub1")
    ]


def test_what_answers_and_what_refuses_a_container_is_returned(store: Store, listener: InsideTarget) -> None:
    (port,) = unused_ports(1)
    engine: Any = Engine(("train", "main1", "running", os.getpid()))
    (probed,) = probe(store, engine, [listener, InsideTarget("agent1", "127.0.0.1", port)]).probes
    assert set(probed.answers) == {
        InsideAnswer("127.0.0.1", listener.port, "open"),
        InsideAnswer("127.0.0.1", port, "closed"),
    }
    assert (probed.session, probed.container, probed.failed) == ("train", "main1", "")


def test_a_network_that_cannot_be_entered_is_a_reason_and_the_others_are_probed(
    store: Store, listener: InsideTarget
) -> None:
    engine: Any = Engine(("serve", "main1", "running", ENDED), ("train", "main1", "running", os.getpid()))
    gone, fine = probe(store, engine, [listener]).probes
    assert gone.answers == ()
    assert gone.failed.startswith("its network cannot be entered: [Errno 2] No such file or directory: ")
    assert len(fine.answers) == 1


def test_sessions_beyond_the_limit_are_counted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inside, "MAX_SESSIONS", 2)
    engine: Any = Engine(*[(f"session{number}", "main1", "running", os.getpid()) for number in range(5)])
    reply = probe(store, engine, [])
    assert ([each.session for each in reply.probes], reply.skipped) == (["session0", "session1"], 3)


def test_the_sockets_of_all_containers_together_are_limited(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed: list[int] = []

    def scan(_targets: object, _hosts: object, at_once: int) -> SimpleNamespace:
        allowed.append(at_once)
        return SimpleNamespace(answers=[])

    monkeypatch.setattr(inside, "scan", scan)
    monkeypatch.setattr(inside, "max_open_sockets", lambda _limit: 160)
    engine: Any = Engine(("train", "main1", "running", os.getpid()))
    probe(store, engine, [])
    assert allowed == [10]


def test_what_only_has_the_labels_of_a_session_is_not_probed_from(store: Store) -> None:
    engine: Any = Engine(("train", "main1", "running", os.getpid()))
    store.save(held(dataclasses.replace(plan({"agent1": 2}, name="train"), id=id_of("train"))))
    store.container_ids(id_of("train")).record("main1", "another")
    assert probe_from_containers(engine, store, []) == InsideReply((), 0)
