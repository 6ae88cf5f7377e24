"""The firewall table follows the sessions of an agent."""

from __future__ import annotations

import dataclasses
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._firewall import state as state_module
from ansible_collections.backendai.cluster.plugins.module_utils._firewall import sync
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.isolation_policy import build_isolation_policy
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.policy import Firewall
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.ruleset import render, render_pins
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.state import FirewallState, Trial
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.sync import (
    admit_ports,
    apply_ruleset,
    sync_ruleset,
)
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.table import FirewallError
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.would_drop import WouldDrop
from ansible_collections.backendai.cluster.plugins.module_utils._host.local_session import LocalSession
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import CorruptStateError, Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change
from ansible_collections.backendai.cluster.plugins.module_utils._network.iproute import LinkOperation, NetworkError
from ansible_collections.backendai.cluster.plugins.module_utils._network.pins import Pin
from tests.unit.builders import agent_facts, held, plan
from tests.unit.fake_network import FakeNetwork
from tests.unit.uptime import Uptime, uptime_of_numbers

UNDERLAY = {"interface": "eth0", "mtu": 1500}
AGENTS = [
    agent_facts(
        f"agent{number}", underlay={**UNDERLAY, "address": f"192.0.2.{number}", "mac": f"02:00:00:00:00:0{number}"}
    )
    for number in (1, 2, 3)
]
MADE = plan({"agent1": 1, "agent2": 1, "agent3": 1}, AGENTS)
OTHER = dataclasses.replace(plan({"agent1": 2}, AGENTS[:1]), id="00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a")


@pytest.fixture
def uptime(tmp_path: Path) -> Iterator[Uptime]:
    """Return the uptime of the agent."""
    with uptime_of_numbers(tmp_path) as numbers:
        yield numbers


def test_all_sessions_count_even_with_expired_claims(store: Store, kernel: FakeNetwork) -> None:
    store.save(held(MADE))
    store.save(held(OTHER, expires_at=0.0))
    assert sync_ruleset(store, check_mode=False)
    assert kernel.table == render(
        build_isolation_policy([(MADE, "agent1"), (OTHER, "agent1")], routed=()), None, ["eth0"]
    )
    assert sync_ruleset(store, check_mode=False) == []


def test_a_missing_wireguard_device_is_still_external(store: Store, kernel: FakeNetwork) -> None:
    store.save(held(MADE))
    store.wireguard_folder.mkdir()
    (store.wireguard_folder / "public").write_text("its key\n")
    sync_ruleset(store, check_mode=False)
    isolation = build_isolation_policy([(MADE, "agent1")], routed=())
    assert kernel.table == render(isolation, None, ["baiwg0", "eth0"])


def test_an_unreadable_session_gets_no_rules(store: Store, kernel: FakeNetwork) -> None:
    store.save(held(MADE))
    store.save(held(OTHER))
    (store.folder(OTHER.id) / "session.json").write_text("{")
    sync_ruleset(store, check_mode=False)
    assert kernel.table == render(build_isolation_policy([(MADE, "agent1")], routed=()), None, ["eth0"])


def test_an_unreadable_session_keeps_existing_rules(store: Store, kernel: FakeNetwork) -> None:
    store.save(held(MADE))
    store.save(held(OTHER))
    sync_ruleset(store, check_mode=False)
    before = kernel.table
    (store.folder(OTHER.id) / "session.json").write_text("{")
    assert sync_ruleset(store, check_mode=False) == []
    store.remove(MADE.id)
    assert sync_ruleset(store, check_mode=False) == []
    assert kernel.table == before


def test_unreadable_session_does_not_keep_rules_of_ports(
    store: Store, kernel: FakeNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save(held(MADE))
    sync_ruleset(store, check_mode=False)
    (store.folder(MADE.id) / "session.json").write_text("{")
    pins = [Pin("veth9", "02:42:ac:12:00:09", "172.18.0.9")]
    monkeypatch.setattr(sync, "read_pins", lambda _look: pins)
    sync_ruleset(store, check_mode=True)
    assert kernel.pins == ""
    sync_ruleset(store, check_mode=False)
    assert kernel.pins == render_pins(pins)
    assert "add element inet backendai containers { 172.18.0.9 . 02:42:ac:12:00:09 }" in kernel.pins


def test_ports_are_pinned_before_the_rules_admit_them_and_other_rules_stay(
    store: Store, kernel: FakeNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save(held(MADE))
    sync_ruleset(store, check_mode=False)
    before = kernel.table
    pins: list[Pin] = []
    monkeypatch.setattr(sync, "read_pins", lambda _look: pins)
    monkeypatch.setattr(
        sync,
        "apply_operations",
        lambda steps: pins.extend(Pin("veth9", "02:42:ac:12:00:09", "1.2.3.4") for step in steps if step),
    )
    admit_ports(store, [LinkOperation(Change("port veth9", "not isolated", "isolated"))])
    assert kernel.pins == render_pins(pins)
    assert len(pins) == 1
    assert kernel.table == before


def test_all_rules_are_applied_if_the_sets_of_ports_are_missing(store: Store, kernel: FakeNetwork) -> None:
    store.save(held(MADE))
    sync_ruleset(store, check_mode=False)
    before, kernel.table = kernel.table, ""
    admit_ports(store, [])
    assert kernel.table == before


def test_what_ended_containers_leave_is_removed_but_no_drift(
    store: Store, kernel: FakeNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale = Change("firewall set containers", "172.18.0.9 . 02:42:ac:12:00:09", None)
    missing = Change("firewall set senders", None, '"veth1" . 02:42:ac:12:00:02 . 172.18.0.2')
    other = Change("firewall set agents", "192.0.2.9", None)
    monkeypatch.setattr(kernel, "plan_table", lambda _ruleset: [stale, missing, other])
    assert sync_ruleset(store, check_mode=False) == [missing, other]
    assert kernel.table


def test_an_agent_without_sessions_has_rules(store: Store, kernel: FakeNetwork) -> None:
    assert sync_ruleset(store, check_mode=False)
    assert kernel.table == render(build_isolation_policy([], routed=()), None, ["eth0"])


def test_the_host_firewall_applies_to_external_interfaces(store: Store, kernel: FakeNetwork, uptime: Uptime) -> None:
    mine = Firewall(("192.0.2.7/32",))
    FirewallState(store).save(mine, Trial(None, "n", uptime.up, uptime.boot, ""))
    store.save(held(MADE))
    sync_ruleset(store, check_mode=False)
    assert kernel.table == render(build_isolation_policy([(MADE, "agent1")], routed=()), mine, ["eth0"])
    FirewallState(store).save(mine, Trial(None, "n", uptime.up + 1, uptime.boot, ""))
    sync_ruleset(store, check_mode=False)
    assert kernel.table == render(build_isolation_policy([(MADE, "agent1")], routed=()), None, ["eth0"])


def test_a_session_being_removed_does_not_count(store: Store, kernel: FakeNetwork) -> None:
    store.save(held(MADE))
    store.save(held(OTHER))
    with store.isolation_lock():
        apply_ruleset(store, check_mode=False, excluded=OTHER.id)
    assert kernel.table == render(build_isolation_policy([(MADE, "agent1")], routed=()), None, ["eth0"])


def test_corrupt_firewall_state_closes_the_host_and_keeps_sessions_apart(
    store: Store, kernel: FakeNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_module, "login_ports", set)
    store.save(held(MADE))
    store.firewall_file.write_text("{")
    sync_ruleset(store, check_mode=False)
    logins = Firewall(("0.0.0.0/0", "::/0"))
    assert kernel.table == render(build_isolation_policy([(MADE, "agent1")], routed=()), logins, ["eth0"])
    # Sessions start and end as before.
    store.save(held(OTHER))
    sync_ruleset(store, check_mode=False)
    both = build_isolation_policy([(OTHER, "agent1"), (MADE, "agent1")], routed=())
    assert kernel.table == render(both, logins, ["eth0"])


def test_corrupt_firewall_state_keeps_what_was_confirmed(store: Store, kernel: FakeNetwork) -> None:
    FirewallState(store).save(Firewall(("192.0.2.7/32",)), None)
    sync_ruleset(store, check_mode=False)
    before = kernel.table
    store.firewall_file.write_text("{")
    assert sync_ruleset(store, check_mode=False) == []
    assert kernel.table == before


def test_an_unreadable_session_is_isolated_without_existing_rules(store: Store, kernel: FakeNetwork) -> None:
    store.save(held(MADE))
    store.save(held(OTHER))
    (store.folder(OTHER.id) / "session.json").write_text("{")
    sync_ruleset(store, check_mode=False)
    assert kernel.table == render(build_isolation_policy([(MADE, "agent1")], routed=()), None, ["eth0"])


def test_an_nft_error_precedes_corrupt_firewall_state(
    store: Store, kernel: FakeNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_wanted: str) -> None:
        raise FirewallError("nft: Error: Operation not permitted")

    monkeypatch.setattr(kernel, "apply_table", fail)
    store.firewall_file.write_text("{")
    with pytest.raises(FirewallError, match=r"^nft: Error: Operation not permitted$"):
        sync_ruleset(store, check_mode=False)
    assert kernel.table == ""


def test_a_dry_run_returns_changes_and_applies_none(store: Store, kernel: FakeNetwork) -> None:
    store.save(held(MADE))
    assert [change.subject for change in sync_ruleset(store, check_mode=True)] == ["firewall table inet backendai"]
    assert kernel.table == ""


def test_an_equal_table_is_not_replaced(store: Store, monkeypatch: pytest.MonkeyPatch, kernel: FakeNetwork) -> None:
    sync_ruleset(store, check_mode=False)
    monkeypatch.setattr(kernel, "apply_table", None)
    assert sync_ruleset(store, check_mode=False) == []
    assert kernel.table


def test_peers_behind_a_router_are_detected(store: Store, monkeypatch: pytest.MonkeyPatch, kernel: FakeNetwork) -> None:
    monkeypatch.setattr(sync, "on_link", lambda address: address != "192.0.2.3")
    store.save(held(MADE))
    sync_ruleset(store, check_mode=False)
    assert kernel.table == render(build_isolation_policy([(MADE, "agent1")], routed={"192.0.2.3"}), None, ["eth0"])


def test_a_peer_without_a_route_gets_the_stricter_rule(
    store: Store, monkeypatch: pytest.MonkeyPatch, kernel: FakeNetwork
) -> None:
    def unreachable(_address: str) -> bool:
        raise NetworkError("ip -j route get 192.0.2.2: RTNETLINK answers: Network is unreachable")

    monkeypatch.setattr(sync, "on_link", unreachable)
    store.save(held(MADE))
    sync_ruleset(store, check_mode=False)
    assert kernel.table == render(build_isolation_policy([(MADE, "agent1")], routed=()), None, ["eth0"])


def test_sessions_are_read_and_rules_written_under_one_lock(
    store: Store, kernel: FakeNetwork, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    events: list[tuple[str, bool]] = []

    def free() -> bool:
        folder = os.open(tmp_path / "sessions", os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(folder)
        return True

    def readable(_excluded: str) -> tuple[list[LocalSession], list[CorruptStateError]]:
        events.append(("read", free()))
        return [], []

    monkeypatch.setattr(store, "load_all", readable)
    monkeypatch.setattr(kernel, "apply_table", lambda _wanted: events.append(("written", free())))
    sync_ruleset(store, check_mode=False)
    assert events == [("read", False), ("read", False), ("written", False)]
    assert free()


@pytest.mark.parametrize(
    ("mode", "on_trial", "kept"), [("report", False, True), ("report", True, False), ("enforce", False, False)]
)
def test_what_report_mode_has_counted_outlives_a_change_of_the_rules_but_not_of_the_firewall(
    store: Store,
    kernel: FakeNetwork,
    uptime: Uptime,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    on_trial: bool,
    kept: bool,
) -> None:
    element = ("reported_ports4", ("192.0.2.50", "tcp", "2049"), 7, 420)
    monkeypatch.setattr(sync, "read_would_drop", lambda: WouldDrop((element,)))
    firewall = Firewall(("192.0.2.7/32",), mode=mode)
    trial = Trial(firewall, "n", uptime.up + 60, uptime.boot, "")
    FirewallState(store).save(None if on_trial else firewall, trial if on_trial else None)
    sync_ruleset(store, check_mode=False)
    line = (
        "add element inet backendai reported_ports4 { 192.0.2.50 . tcp . 2049 counter packets 7 bytes 420 }\n"
        if kept
        else ""
    )
    rules = render(build_isolation_policy([], ()), firewall, ["eth0"])
    assert kernel.table == rules + line
