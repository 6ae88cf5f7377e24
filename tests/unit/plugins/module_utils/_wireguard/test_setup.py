"""Enabling and disabling encryption of the underlay: keys are created and removed, unless sessions use them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host.store import NotProvisionedError, Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change
from ansible_collections.backendai.cluster.plugins.module_utils._model.network import Underlay
from ansible_collections.backendai.cluster.plugins.module_utils._wireguard import key
from ansible_collections.backendai.cluster.plugins.module_utils._wireguard.key import (
    DesiredEncryption,
    UnderlayInUseError,
    ensure_key,
)
from ansible_collections.backendai.cluster.plugins.module_utils._wireguard.mesh import wireguard_underlay
from tests.unit.builders import agent_facts, held, plan

KEY, OTHER_KEY = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=", "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI="
PLAIN = Underlay("192.0.2.1", "eth0", 1500)
OWN, PEER = (
    wireguard_underlay(PLAIN, KEY, 51820),
    wireguard_underlay(Underlay("192.0.2.2", "eth0", 1500), OTHER_KEY, 51820),
)
AGENTS = [
    agent_facts(f"agent{number}", underlay=dataclasses.asdict(underlay)) for number, underlay in ((1, OWN), (2, PEER))
]
ENCRYPTED = held(plan({"agent1": 1, "agent2": 1}, AGENTS))
ON, OFF = DesiredEncryption("wireguard", 51820, ""), DesiredEncryption("", 51820, "")


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fake a host with one interface and a tool that always creates the same pair."""

    def make_key(folder: Path) -> str:
        folder.mkdir()
        (folder / "public").write_text(KEY)
        return KEY

    monkeypatch.setattr(key, "find_underlay", lambda _address: PLAIN)
    monkeypatch.setattr(key, "make_wireguard_key", make_key)


def test_a_key_is_made_once(store: Store) -> None:
    assert ensure_key(store, ON, check_mode=False) == ([Change("wireguard key", None, "created by the agent")], OWN)
    assert ensure_key(store, ON, check_mode=False) == ([], OWN)


def test_dry_run_only_returns_changes(store: Store) -> None:
    assert ensure_key(store, ON, check_mode=True) == ([Change("wireguard key", None, "created by the agent")], None)
    assert not store.wireguard_folder.exists()


def test_without_encryption_the_key_is_removed(store: Store) -> None:
    ensure_key(store, ON, check_mode=False)
    removal = [Change("wireguard key", "present", None)]
    assert ensure_key(store, OFF, check_mode=True) == (removal, None)
    assert store.wireguard_folder.exists()
    assert ensure_key(store, OFF, check_mode=False) == (removal, None)
    assert not store.wireguard_folder.exists()
    assert ensure_key(store, OFF, check_mode=False) == ([], None)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (OFF, "'' would cut off train-llm"),
        (
            ON._replace(port=51821),
            "'wireguard' with another key, port, address or MTU would cut off train-llm",
        ),
    ],
)
def test_change_under_a_running_session_is_refused(store: Store, settings: DesiredEncryption, message: str) -> None:
    ensure_key(store, ON, check_mode=False)
    store.save(ENCRYPTED)
    with pytest.raises(UnderlayInUseError) as refused:
        ensure_key(store, settings, check_mode=False)
    assert str(refused.value) == f"agent_underlay_encryption: {message}; terminate those sessions first"
    assert ensure_key(store, ON, check_mode=False) == ([], OWN)


def test_lost_key_is_not_replaced_while_a_session_uses_it(store: Store) -> None:
    store.save(ENCRYPTED)
    with pytest.raises(UnderlayInUseError, match="would cut off train-llm"):
        ensure_key(store, ON, check_mode=False)
    assert not store.wireguard_folder.exists()


@pytest.mark.parametrize("counts", [{"agent1": 2}, {"agent1": 1, "agent2": 1}], ids=["one agent", "in the clear"])
def test_sessions_without_encryption_do_not_block_changes(store: Store, counts: dict[str, int]) -> None:
    store.save(held(plan(counts)))
    assert ensure_key(store, ON, check_mode=False)[1] == OWN
    assert ensure_key(store, OFF, check_mode=False)[1] is None


def test_an_address_that_no_interface_has_is_an_error(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key, "find_underlay", lambda _address: None)
    with pytest.raises(ValueError, match=r"^agent_underlay_address: no interface of this host has 192\.0\.2\.9$"):
        ensure_key(store, ON._replace(address="192.0.2.9"), check_mode=False)


def test_a_host_that_is_not_provisioned_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotProvisionedError):
        ensure_key(Store(str(tmp_path / "nowhere")), ON, check_mode=False)
