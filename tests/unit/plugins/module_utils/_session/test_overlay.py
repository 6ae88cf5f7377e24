"""The overlay of a session: created by the swarm manager, and removed with its slice."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker.overlay import OverlayInUseError
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change
from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.module_utils._network.container import SessionInterface
from ansible_collections.backendai.cluster.plugins.module_utils._session import remove
from ansible_collections.backendai.cluster.plugins.module_utils._session.apply import ApplyRequest, apply_claimed
from ansible_collections.backendai.cluster.plugins.module_utils._session.claim_guard import ClaimLostError
from ansible_collections.backendai.cluster.plugins.module_utils._session.contents import RenderedFiles
from ansible_collections.backendai.cluster.plugins.module_utils._session.end import SessionEnd
from ansible_collections.backendai.cluster.plugins.module_utils._session.overlay import make_overlay, overlay_drift
from ansible_collections.backendai.cluster.plugins.module_utils._session.remove import remove_claimed
from tests.unit.builders import SESSION_ID, agent_facts, held, plan, public_keys
from tests.unit.fake_docker import FakeDocker
from tests.unit.fake_network import FakeNetwork

NODES = ["node-1", "node-2", "node-3"]


def node(number: int) -> AgentFacts:
    place = {"node": f"node-{number}", "nodes": NODES if number == 1 else [], "port": 0}
    return agent_facts(f"agent{number}", swarm=place)


MADE = plan({"agent2": 1, "agent3": 1}, [node(1), node(2), node(3)], network_driver="swarm")
NAME = "backendai-train-llm"
MISSING = [Change(f"overlay {NAME}", None, f"{MADE.network and MADE.network.subnet}, mtu 1450")]
REMOVED = Change(f"overlay {NAME}", f"id-{NAME}"[:12], None)


@pytest.fixture
def engine() -> FakeDocker:
    """Return the engine of the manager."""
    engine = FakeDocker()
    engine.swarm = {"LocalNodeState": "active", "ControlAvailable": True}
    return engine


def make(engine: Any, store: Store, nonce: str = "nonce-1", *, check_mode: bool = False) -> list[Change]:
    return make_overlay(engine, store, MADE, nonce, check_mode=check_mode)


def test_manager_creates_the_overlay_once(engine: FakeDocker, store: Store) -> None:
    store.save(held(MADE, expires_at=9e12))
    assert make(engine, store) == MISSING
    assert make(engine, store) == []
    assert engine.calls == [f"create network {NAME}"]


def test_only_the_manager_reports_overlay_drift(engine: Any, store: Store) -> None:
    drifts = [overlay_drift(engine, held(MADE, agent)) for agent in ("agent1", "agent2")]
    assert drifts == [MISSING, []]
    assert overlay_drift(engine, held(plan())) == []
    store.save(held(MADE))
    make(engine, store)
    assert overlay_drift(engine, held(MADE)) == []


def test_check_mode_returns_the_change(engine: FakeDocker, store: Store) -> None:
    assert make(engine, store, check_mode=True) == MISSING
    assert engine.calls == []


@pytest.mark.parametrize("claimed", [True, False], ids=["by another run", "not at all"])
def test_without_a_claim_nothing_is_created(engine: FakeDocker, store: Store, claimed: bool) -> None:
    if claimed:
        store.save(held(MADE, expires_at=9e12))
    with pytest.raises(ClaimLostError):
        make(engine, store, "nonce-2")
    assert engine.calls == []


def test_changed_overlay_is_recreated(engine: FakeDocker, store: Store) -> None:
    store.save(held(MADE))
    make(engine, store)
    engine.joined[0]["Labels"]["ai.backend.digest"] = "another"
    assert [change.before for change in make(engine, store)] == [NAME]
    assert engine.calls[1:] == [f"remove network id-{NAME}-0123456789", f"create network {NAME}"]


def test_session_without_an_overlay_creates_none(engine: Any, store: Store) -> None:
    other = plan()
    store.save(held(other))
    assert make_overlay(engine, store, other, "nonce-1", check_mode=False) == []
    assert engine.calls == []


def applied(engine: Any, store: Store, agent: str) -> list[str]:
    """Apply an agent's slice and return the changes, without files."""
    hostnames = [kernel.hostname for kernel in MADE.kernels_on(agent)]
    environments = {hostname: {"BACKENDAI_CLUSTER_SIZE": "1"} for hostname in hostnames}
    contents = RenderedFiles("hosts\n", "Host *\n", environments, public_keys(MADE), ())
    changes, _ready, _lost = apply_claimed(
        engine, store, ApplyRequest(MADE, agent, "nonce-1", contents, "backendai-default"), check_mode=False
    )
    return [change.subject for change in changes if not change.subject.startswith("file ")]


def test_slice_attaches_containers_and_creates_no_network(
    engine: FakeDocker, store: Store, kernel: FakeNetwork
) -> None:
    store.save(held(MADE, "agent2"))
    assert applied(engine, store, "agent2") == ["firewall table inet backendai", f"container {NAME}-main1"]
    (call,) = engine.asked
    assert call["host_config"]["network_mode"] == "backendai-default"
    assert (call["networking_config"], call["mac_address"]) == (None, None)
    assert f"connect id-{NAME}-main1 to {NAME} as {MADE.kernels[0].address}" in engine.calls
    assert kernel.links == set()
    assert [container.session for container in kernel.plugged] == [
        SessionInterface("", f"{MADE.kernels[0].address}/29")
    ]
    assert applied(engine, store, "agent2") == []


def test_manager_without_containers_has_an_empty_slice(engine: FakeDocker, store: Store) -> None:
    store.save(held(MADE, "agent1"))
    assert applied(engine, store, "agent1") == ["firewall table inet backendai"]
    assert engine.made == []


def test_overlay_is_removed_with_the_slice_of_the_manager(engine: Any, store: Store) -> None:
    store.save(held(MADE, "agent1"))
    make(engine, store)
    ended = Change("session train-llm", "held", None)
    changes = [Change(f"network {NAME}", f"id-{NAME}"[:12], None), ended]
    assert remove_claimed(engine, store, SESSION_ID, None, check_mode=True) == changes
    assert remove_claimed(engine, store, SESSION_ID, None, check_mode=False) == [REMOVED, ended]
    assert (engine.joined, store.sessions()) == ([], [])


def test_slice_stays_stored_while_its_overlay_is_in_use(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def remove_overlays(_client: Any, _session_id: str) -> None:
        raise OverlayInUseError("the overlay is still used")

    store.save(held(MADE, "agent1"))
    make(engine, store)
    monkeypatch.setattr(remove.overlay, "remove_overlays", remove_overlays)
    with pytest.raises(OverlayInUseError):
        remove_claimed(engine, store, SESSION_ID, None, check_mode=False)
    assert [session.plan for session in store.sessions()] == [dataclasses.replace(MADE)]


def test_end_waits_for_the_grace_of_other_agents_before_the_lock(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[tuple[float, bool]] = []
    removed = remove.overlay.remove_overlays

    def remove_overlays(client: Any, session_id: str, timeout: float = 30) -> list[Change]:
        waits.append((timeout, store.is_busy(SESSION_ID)))
        if len(waits) == 1:
            raise OverlayInUseError("the overlay is still used")
        return removed(client, session_id, timeout)

    store.save(held(dataclasses.replace(MADE, stop_grace=120), "agent1"))
    make(engine, store)
    monkeypatch.setattr(remove.overlay, "remove_overlays", remove_overlays)
    assert REMOVED in remove_claimed(engine, store, SESSION_ID, None, end=SessionEnd(), check_mode=False)
    assert waits == [(120, False), (30, True)]
