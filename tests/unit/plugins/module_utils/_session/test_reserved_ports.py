"""Ports of ended sessions stay reserved until all gateways have removed the routes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host import port_reservations
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.held_session import PublicKeys
from ansible_collections.backendai.cluster.plugins.module_utils._model.network import Underlay
from ansible_collections.backendai.cluster.plugins.module_utils._model.session import PublishedPort
from ansible_collections.backendai.cluster.plugins.module_utils._session import claim as claiming
from ansible_collections.backendai.cluster.plugins.module_utils._session.claim import ClaimRequest, claim
from ansible_collections.backendai.cluster.plugins.module_utils._session.end import SessionEnd
from ansible_collections.backendai.cluster.plugins.module_utils._session.facts import (
    AgentSettings,
    FactsQuery,
    collect_facts,
)
from ansible_collections.backendai.cluster.plugins.module_utils._session.reap import reap
from ansible_collections.backendai.cluster.plugins.module_utils._session.remove import remove_claimed
from tests.unit.builders import SESSION_ID, agent_facts, held, plan

OTHER_ID = "00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
PUBLISHED = (PublishedPort("ssh", "tcp", 22, "192.0.2.1", 30001), PublishedPort("web", "http", 80, "192.0.2.1", 30002))
MADE = dataclasses.replace(plan({"agent1": 1}), published=PUBLISHED)
SETTINGS = AgentSettings("default", True, (), {}, 1, 0, "", False)


class Clock:
    """An uptime that tests set."""

    now = 1_000.0

    def read(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(port_reservations, "read_uptime", clock.read)
    return clock


@pytest.fixture(autouse=True)
def claimed(engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim the session, and commit it."""
    monkeypatch.setattr(claiming, "collect_facts", lambda *_reading: agent_facts("agent1"))
    monkeypatch.setattr(claiming, "ensure_keys", lambda _folder, _kit: PublicKeys("USER", "HOST"))
    request = ClaimRequest(MADE, "agent1", "nonce-1", 600)
    claim(engine, store, SETTINGS, request, check_mode=False)
    store.save(held(MADE))


def reserved(engine: Any, store: Store) -> tuple[list[int], dict[str, tuple[int, ...]]]:
    """Return which ports of the session are in use according to the facts, and the reserved ones."""
    facts = collect_facts(engine, store, SETTINGS, FactsQuery())
    return sorted(facts.tcp_ports & {30001, 30002}), facts.reserved_ports


def end(engine: Any, store: Store, **how: Any) -> None:
    remove_claimed(engine, store, SESSION_ID, None, **{"check_mode": False, **how})


def test_ports_of_a_session_are_in_use_as_long_as_it_lives(engine: Any, store: Store) -> None:
    assert reserved(engine, store) == ([30001, 30002], {})


def test_a_session_that_cannot_be_read_has_not_ended(engine: Any, store: Store) -> None:
    (store.folder(SESSION_ID) / "session.json").write_text("{")
    assert reserved(engine, store) == ([30001, 30002], {})
    reap(engine, store, {}, [], expired=True, unrouted=[SESSION_ID], check_mode=False)
    assert reserved(engine, store) == ([30001, 30002], {})


def test_ports_stay_reserved_after_the_end(engine: Any, store: Store) -> None:
    end(engine, store)
    assert reserved(engine, store) == ([30001, 30002], {SESSION_ID: (30001, 30002)})


def test_confirmed_ports_are_free_when_no_request_can_be_on_its_way(engine: Any, store: Store, clock: Clock) -> None:
    end(engine, store, unrouted=True)
    assert reserved(engine, store) == ([30001, 30002], {})
    clock.now += port_reservations.DRAIN_SECONDS + 1
    assert reserved(engine, store) == ([], {})


def test_check_mode_frees_no_port(engine: Any, store: Store) -> None:
    end(engine, store)
    reap(engine, store, {}, [], expired=True, unrouted=[SESSION_ID], check_mode=True)
    assert reserved(engine, store)[1] == {SESSION_ID: (30001, 30002)}


def test_a_later_confirmation_frees_the_ports(engine: Any, store: Store, clock: Clock) -> None:
    end(engine, store)
    reap(engine, store, {}, [], expired=True, unrouted=[OTHER_ID], check_mode=False)
    assert reserved(engine, store)[1] == {SESSION_ID: (30001, 30002)}
    reap(engine, store, {}, [], expired=True, unrouted=[SESSION_ID], check_mode=False)
    clock.now += port_reservations.DRAIN_SECONDS + 1
    assert reserved(engine, store) == ([], {})


def test_reaped_sessions_are_freed_if_confirmed(engine: Any, store: Store) -> None:
    reap(engine, store, {SESSION_ID: SessionEnd()}, [], expired=True, unrouted=[SESSION_ID], check_mode=False)
    assert (store.session(SESSION_ID), reserved(engine, store)[1]) == (None, {})


def test_a_confirmation_does_not_free_the_ports_of_a_session_that_is_held(
    engine: Any, store: Store, clock: Clock
) -> None:
    reap(engine, store, {}, [], expired=True, unrouted=[SESSION_ID], check_mode=False)
    clock.now += port_reservations.DRAIN_SECONDS + 1
    end(engine, store)
    assert reserved(engine, store)[1] == {SESSION_ID: (30001, 30002)}


def test_ports_of_a_claim_are_free_at_once(engine: Any, store: Store, tmp_path: Path) -> None:
    store.save(held(MADE, expires_at=9e12))
    end(engine, store)
    assert reserved(engine, store) == ([], {})
    assert not (tmp_path / "ports").exists()


def test_ports_on_the_agents_own_network_are_free_when_confirmed(engine: Any, store: Store) -> None:
    network = plan().network
    assert network
    network = dataclasses.replace(network, driver="host", subnet=None)
    underlays = {"agent1": Underlay("192.0.2.1", "eth0", 1500)}
    store.save(held(dataclasses.replace(MADE, network=network, underlays=underlays)))
    end(engine, store, unrouted=True)
    assert reserved(engine, store) == ([], {})


@pytest.mark.parametrize("unrouted", [True, False])
def test_an_end_needs_no_space_on_the_disk(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch, unrouted: bool
) -> None:
    def refuse(*_how: Any, **_more: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "touch", refuse)
    monkeypatch.setattr(Path, "mkdir", refuse)
    end(engine, store, unrouted=unrouted)
    assert store.session(SESSION_ID) is None
    assert reserved(engine, store)[1] == {SESSION_ID: (30001, 30002)}


def test_a_rollback_frees_the_ports(engine: Any, store: Store) -> None:
    store.save(held(MADE, nonce="nonce-1"))
    remove_claimed(engine, store, SESSION_ID, "nonce-1", check_mode=False)
    assert reserved(engine, store)[1] == {}


def test_nothing_is_left_after_the_last_session(engine: Any, store: Store, tmp_path: Path) -> None:
    end(engine, store, unrouted=True)
    assert not (tmp_path / "ports").exists()


def test_other_files_are_ignored(store: Store, tmp_path: Path) -> None:
    (tmp_path / "ports" / "x@y").touch()
    store.ports.release(SESSION_ID, drain=False)
    assert (store.ports.in_use(), store.ports.by_session()) == (set(), {})
    assert [path.name for path in (tmp_path / "ports").iterdir()] == ["x@y"]


def test_an_agent_that_never_published_a_port_has_none(tmp_path: Path) -> None:
    ports = Store(str(tmp_path / "new")).ports
    ports.reserve(SESSION_ID, [])
    assert (ports.in_use(), ports.by_session(), (tmp_path / "new").exists()) == (set(), {}, False)
