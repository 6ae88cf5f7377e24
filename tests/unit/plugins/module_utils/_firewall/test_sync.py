"""The firewall table follows the sessions that an agent holds."""

from __future__ import annotations

import dataclasses
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._firewall import sync
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.policy import Firewall
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.ruleset import build_isolation_policy, render
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.state import FirewallState, Trial
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.sync import sync_ruleset
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.table import FirewallError
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import (
    CorruptStateError,
    LocalSession,
    Store,
)
from ansible_collections.backendai.cluster.plugins.module_utils._network.iproute import NetworkError
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


def test_every_session_counts_committed_or_claimed_in_time_or_not(store: Store, kernel: FakeNetwork) -> None:
    store.save(held(MADE))
    store.save(held(OTHER, expires_at=0.0))
    assert sync_ruleset(store, dry=False)
    assert kernel.table == render(
        build_isolation_policy([(MADE, "agent1"), (OTHER, "agent1")], routed=()), None, ["eth0"]
    )
    assert sync_ruleset(store, dry=False) == []


def test_the_device_of_wireguard_is_an_outer_one_also_while_it_is_missing(store: Store, kernel: FakeNetwork) -> None:
    store.save(held(MADE))
    store.wireguard_folder.mkdir()
    (store.wireguard_folder / "public").write_text("its key\n")
    sync_ruleset(store, dry=False)
    isolation = build_isolation_policy([(MADE, "agent1")], routed=())
    assert kernel.table == render(isolation, None, ["baiwg0", "eth0"])


def test_a_session_that_cannot_be_read_opens_nothing_and_harms_no_other(store: Store, kernel: FakeNetwork) -> None:
    store.save(held(MADE))
    store.save(held(OTHER))
    (store.folder(OTHER.id) / "session.json").write_text("{")
    sync_ruleset(store, dry=False)
    assert kernel.table == render(build_isolation_policy([(MADE, "agent1")], routed=()), None, ["eth0"])


def test_while_a_session_cannot_be_read_the_rules_that_are_there_stay(store: Store, kernel: FakeNetwork) -> None:
    store.save(held(MADE))
    store.save(held(OTHER))
    sync_ruleset(store, dry=False)
    before = kernel.table
    (store.folder(OTHER.id) / "session.json").write_text("{")
    assert sync_ruleset(store, dry=False) == []
    store.remove(MADE.id)
    assert sync_ruleset(store, dry=False) == []
    assert kernel.table == before


def test_an_agent_without_sessions_has_the_rules_all_the_same(store: Store, kernel: FakeNetwork) -> None:
    assert sync_ruleset(store, dry=False)
    assert kernel.table == render(build_isolation_policy([], routed=()), None, ["eth0"])


def test_the_operators_firewall_is_part_of_the_rules_at_the_interfaces_outside(
    store: Store, kernel: FakeNetwork, uptime: Uptime
) -> None:
    mine = Firewall(("192.0.2.7/32",))
    FirewallState(store).save(mine, Trial(None, "n", uptime.up, uptime.boot, ""))
    store.save(held(MADE))
    sync_ruleset(store, dry=False)
    assert kernel.table == render(build_isolation_policy([(MADE, "agent1")], routed=()), mine, ["eth0"])
    FirewallState(store).save(mine, Trial(None, "n", uptime.up + 1, uptime.boot, ""))
    sync_ruleset(store, dry=False)
    assert kernel.table == render(build_isolation_policy([(MADE, "agent1")], routed=()), None, ["eth0"])


def test_a_session_that_goes_does_not_count(store: Store, kernel: FakeNetwork) -> None:
    store.save(held(MADE))
    store.save(held(OTHER))
    sync_ruleset(store, dry=False, except_id=OTHER.id)
    assert kernel.table == render(build_isolation_policy([(MADE, "agent1")], routed=()), None, ["eth0"])


def test_a_firewall_that_cannot_be_read_leaves_the_rules_as_they_are(store: Store, kernel: FakeNetwork) -> None:
    sync_ruleset(store, dry=False)
    before = kernel.table
    store.save(held(MADE))
    store.firewall_file.write_text("{")
    with pytest.raises(CorruptStateError, match=r"firewall\.json is damaged \("):
        sync_ruleset(store, dry=False)
    assert kernel.table == before


def test_where_there_are_no_rules_a_firewall_that_cannot_be_read_keeps_sessions_apart_all_the_same(
    store: Store, kernel: FakeNetwork
) -> None:
    store.save(held(MADE))
    store.firewall_file.write_text("{")
    with pytest.raises(CorruptStateError) as damaged:
        sync_ruleset(store, dry=False)
    assert str(damaged.value).startswith(f"{store.firewall_file} is damaged (")
    assert str(damaged.value).endswith("): remove it, and provision this host again.")
    apart = render(build_isolation_policy([(MADE, "agent1")], routed=()), None, ["eth0"])
    assert kernel.table == apart
    # From now on there are rules, and they stay.
    store.save(held(OTHER))
    with pytest.raises(CorruptStateError, match=r"firewall\.json is damaged \("):
        sync_ruleset(store, dry=False)
    assert kernel.table == apart


def test_a_session_that_cannot_be_read_either_is_cut_off(store: Store, kernel: FakeNetwork) -> None:
    store.save(held(MADE))
    store.save(held(OTHER))
    (store.folder(OTHER.id) / "session.json").write_text("{")
    store.firewall_file.write_text("{")
    with pytest.raises(CorruptStateError, match=r"firewall\.json is damaged \("):
        sync_ruleset(store, dry=False)
    assert kernel.table == render(build_isolation_policy([(MADE, "agent1")], routed=()), None, ["eth0"])


def test_a_dry_run_with_a_firewall_that_cannot_be_read_changes_nothing(store: Store, kernel: FakeNetwork) -> None:
    store.save(held(MADE))
    store.firewall_file.write_text("{")
    with pytest.raises(CorruptStateError, match=r"firewall\.json is damaged \("):
        sync_ruleset(store, dry=True)
    assert kernel.table == ""


def test_rules_that_nft_refuses_are_told_before_a_firewall_that_cannot_be_read(
    store: Store, kernel: FakeNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_wanted: str) -> None:
        raise FirewallError("nft: Error: Operation not permitted")

    monkeypatch.setattr(kernel, "apply_table", fail)
    store.firewall_file.write_text("{")
    with pytest.raises(FirewallError, match=r"^nft: Error: Operation not permitted$"):
        sync_ruleset(store, dry=False)
    assert kernel.table == ""


def test_a_dry_run_tells_and_changes_nothing(store: Store, kernel: FakeNetwork) -> None:
    store.save(held(MADE))
    assert [change.subject for change in sync_ruleset(store, dry=True)] == ["firewall table inet backendai"]
    assert kernel.table == ""


def test_a_table_as_wanted_is_left_alone(store: Store, monkeypatch: pytest.MonkeyPatch, kernel: FakeNetwork) -> None:
    sync_ruleset(store, dry=False)
    monkeypatch.setattr(kernel, "apply_table", None)
    assert sync_ruleset(store, dry=False) == []
    assert kernel.table


def test_peers_behind_a_router_are_found_out(
    store: Store, monkeypatch: pytest.MonkeyPatch, kernel: FakeNetwork
) -> None:
    monkeypatch.setattr(sync, "on_link", lambda address: address != "192.0.2.3")
    store.save(held(MADE))
    sync_ruleset(store, dry=False)
    assert kernel.table == render(build_isolation_policy([(MADE, "agent1")], routed={"192.0.2.3"}), None, ["eth0"])


def test_a_peer_that_no_route_leads_to_yet_keeps_the_stricter_rule(
    store: Store, monkeypatch: pytest.MonkeyPatch, kernel: FakeNetwork
) -> None:
    def unreachable(_address: str) -> bool:
        raise NetworkError("ip -j route get 192.0.2.2: RTNETLINK answers: Network is unreachable")

    monkeypatch.setattr(sync, "on_link", unreachable)
    store.save(held(MADE))
    sync_ruleset(store, dry=False)
    assert kernel.table == render(build_isolation_policy([(MADE, "agent1")], routed=()), None, ["eth0"])


def test_sessions_are_read_and_rules_are_written_under_one_lock(
    store: Store, kernel: FakeNetwork, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[tuple[str, bool]] = []

    def free() -> bool:
        folder = os.open(tmp_path / "sessions", os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(folder)
        return True

    def readable() -> tuple[list[LocalSession], list[CorruptStateError]]:
        seen.append(("read", free()))
        return [], []

    monkeypatch.setattr(store, "load_all", readable)
    monkeypatch.setattr(kernel, "apply_table", lambda _wanted: seen.append(("written", free())))
    sync_ruleset(store, dry=False)
    assert seen == [("read", False), ("read", False), ("written", False)]
    assert free()
