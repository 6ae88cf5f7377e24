"""The encrypted underlay of an agent: peers are those of its sessions, and it is never the plain one."""

from __future__ import annotations

import dataclasses
from typing import Any, NoReturn

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker.client import DockerUnavailableError
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change
from ansible_collections.backendai.cluster.plugins.module_utils._model.network import Underlay
from ansible_collections.backendai.cluster.plugins.module_utils._session.reconcile import restore
from ansible_collections.backendai.cluster.plugins.module_utils._session.remove import remove_claimed
from ansible_collections.backendai.cluster.plugins.module_utils._wireguard import device as wireguard
from ansible_collections.backendai.cluster.plugins.module_utils._wireguard.device import (
    DeviceStep,
    WireGuardDevice,
    WireGuardError,
)
from ansible_collections.backendai.cluster.plugins.module_utils._wireguard.mesh import (
    WireGuardConfig,
    wireguard_underlay,
)
from ansible_collections.backendai.cluster.plugins.module_utils._wireguard.peers import (
    sync_wireguard_peers,
    underlay_in_use,
)
from tests.unit.builders import agent_facts, held, plan
from tests.unit.fake_network import FakeNetwork

KEYS = {1: "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=", 2: "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI="}
PLAIN = {number: Underlay(f"192.0.2.{number}", "eth0", 1500, f"02:00:00:00:00:0{number}") for number in KEYS}
SECRET = {number: wireguard_underlay(plain, KEYS[number], 51820) for number, plain in PLAIN.items()}
AGENTS = [agent_facts(f"agent{number}", underlay=dataclasses.asdict(underlay)) for number, underlay in SECRET.items()]
MADE = plan({"agent1": 1, "agent2": 1}, AGENTS)
STEP = DeviceStep(Change("peer KEY2 on baiwg0", None, "present"), ("peer", "KEY2"))
DEVICE = WireGuardDevice(True, (SECRET[1].address,), 1440, KEYS[1], 51820)


class Adapter:
    """Records the planned and applied steps."""

    def __init__(self) -> None:
        self.wanted: list[WireGuardConfig | None] = []
        self.taken: list[DeviceStep] = []

    def plan_mesh(self, config: WireGuardConfig | None) -> list[DeviceStep]:
        self.wanted.append(config)
        return [STEP]


@pytest.fixture
def adapter(monkeypatch: pytest.MonkeyPatch) -> Adapter:
    """Return an adapter that always plans one step."""
    adapter = Adapter()
    monkeypatch.setattr(wireguard, "plan_device", adapter.plan_mesh)
    monkeypatch.setattr(wireguard, "apply_device", adapter.taken.extend)
    return adapter


def give_key(store: Store) -> None:
    store.wireguard_folder.mkdir()
    (store.wireguard_folder / "public").write_text(f"{KEYS[1]}\n")


def test_while_a_session_cannot_be_read_no_peer_is_removed(
    store: Store, adapter: Adapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_key(store)
    store.save(held(MADE))
    removal = DeviceStep(Change("peer KEY3 on baiwg0", "present", None), ("peer", "KEY3", "remove"))
    monkeypatch.setattr(wireguard, "plan_device", lambda _wanted: [STEP, removal])
    assert sync_wireguard_peers(store, check_mode=True) == [STEP.change, removal.change]
    other = store.folder("00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a")
    other.mkdir()
    (other / "session.json").write_text("{")
    assert sync_wireguard_peers(store, check_mode=False) == [STEP.change]
    assert adapter.taken == [STEP]


def test_agent_without_a_key_has_no_peers(store: Store, adapter: Adapter) -> None:
    store.save(held(MADE))
    assert sync_wireguard_peers(store, check_mode=False) == []
    assert adapter.wanted == []


def test_mesh_includes_all_sessions_and_claims(store: Store, adapter: Adapter) -> None:
    give_key(store)
    store.save(held(MADE, expires_at=0.0))
    assert sync_wireguard_peers(store, check_mode=False) == [STEP.change]
    assert (adapter.wanted, adapter.taken) == ([WireGuardConfig(SECRET[1], (SECRET[2],))], [STEP])


def test_without_sessions_there_are_no_peers(store: Store, adapter: Adapter) -> None:
    give_key(store)
    sync_wireguard_peers(store, check_mode=False)
    assert adapter.wanted == [None]


def test_dry_run_only_returns_changes(store: Store, adapter: Adapter) -> None:
    give_key(store)
    assert sync_wireguard_peers(store, check_mode=True) == [STEP.change]
    assert adapter.taken == []


def test_unreadable_session_does_not_affect_others(store: Store, adapter: Adapter) -> None:
    give_key(store)
    other = dataclasses.replace(MADE, id="00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a")
    store.save(held(MADE))
    store.save(held(other))
    (store.folder(other.id) / "session.json").write_text("{")
    sync_wireguard_peers(store, check_mode=False)
    assert adapter.wanted == [WireGuardConfig(SECRET[1], (SECRET[2],))]


@pytest.mark.parametrize("plain", [PLAIN[1], None])
def test_without_encryption_the_underlay_is_the_plain_one(store: Store, plain: Underlay | None) -> None:
    assert underlay_in_use(store, plain, "") == (plain, [])


def test_with_encryption_the_underlay_is_the_device(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    give_key(store)
    monkeypatch.setattr(wireguard, "read_device", lambda: DEVICE)
    assert underlay_in_use(store, PLAIN[1], "wireguard") == (SECRET[1], [])


@pytest.mark.parametrize(
    ("key", "device", "reason"),
    [
        (False, DEVICE, "there is no key"),
        (True, None, "baiwg0 is missing"),
        (True, DEVICE._replace(up=False), "baiwg0 is down"),
        (True, DEVICE._replace(mtu=1420), "baiwg0 is at mtu 1420"),
        (True, DEVICE._replace(public_key=KEYS[2]), "baiwg0 is without its key"),
        (True, DEVICE._replace(public_key="", port=0), "baiwg0 is without its port"),
    ],
)
def test_broken_encryption_gives_no_underlay_and_a_warning(
    store: Store, monkeypatch: pytest.MonkeyPatch, key: bool, device: Any, reason: str
) -> None:
    if key:
        give_key(store)
    monkeypatch.setattr(wireguard, "read_device", lambda: device)
    underlay, (warning,) = underlay_in_use(store, PLAIN[1], "wireguard")
    assert underlay is None
    assert warning == f"agent_underlay_encryption: {reason}; run backendai.cluster.provision_agents on this host."


def test_with_encryption_an_agent_without_an_address_has_none(store: Store) -> None:
    assert underlay_in_use(store, None, "wireguard") == (None, [])


def no_engine() -> NoReturn:
    raise DockerUnavailableError("the engine does not answer.")


def test_broken_device_is_reported_and_sessions_are_restored(
    store: Store, kernel: FakeNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_wanted: WireGuardConfig | None) -> list[DeviceStep]:
        raise WireGuardError("systemctl restart backendai-wireguard.service: Unit not found")

    monkeypatch.setattr(wireguard, "plan_device", broken)
    give_key(store)
    store.save(held(MADE))
    _changes, failures = restore(store, no_engine, start=False)
    assert failures == ["systemctl restart backendai-wireguard.service: Unit not found"]
    assert len(kernel.links) == 1


def test_peers_are_set_before_links_and_removed_with_the_session(
    engine: Any, store: Store, kernel: FakeNetwork, adapter: Adapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    links: list[set[str]] = []
    give_key(store)
    store.save(held(MADE))
    monkeypatch.setattr(wireguard, "apply_device", lambda _steps: links.append(set(kernel.links)))
    restore(store, no_engine, start=False)
    remove_claimed(engine, store, MADE.id, None, check_mode=False)
    assert (links[0], links[-1]) == (set(), set())
    assert (adapter.wanted[0], adapter.wanted[-1]) == (WireGuardConfig(SECRET[1], (SECRET[2],)), None)
