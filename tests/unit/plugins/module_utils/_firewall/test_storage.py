"""Storage services that are closed to containers: what is mounted, what servers say, and what is kept."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._firewall import storage as module
from ansible_collections.backendai.cluster.plugins.module_utils._firewall import sync
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.egress import EgressPolicy, save_egress
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.isolation_policy import IsolationPolicy
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.ruleset import render
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.storage import (
    closed_storage,
    refresh_storage,
    storage_warnings,
)
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.sync import sync_ruleset
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.would_drop import WouldDrop
from ansible_collections.backendai.cluster.plugins.module_utils._host.mount_table import Mounted
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change
from ansible_collections.backendai.cluster.plugins.module_utils._model.storage import StorageService
from ansible_collections.backendai.cluster.plugins.module_utils._session.reconcile import restore
from tests.unit.fake_network import FakeNetwork

DATA = StorageService("NFS", "192.0.2.7", "/mnt/data", ("111", "2049", "20048"), ("111", "2049"))
CEPH = StorageService("Ceph", "192.0.2.9", "/mnt/ceph", ("3300", "6789", "6800-7568"))


def nfs(path: str, address: str) -> Mounted:
    return Mounted(path, frozenset({"rw"}), "nfs4", f"{address}:/export", ("rw", f"addr={address}"))


class Host:
    """What is mounted here, and what servers say of their ports; ``asked`` are those that were asked."""

    def __init__(self) -> None:
        self.mounts = [nfs("/mnt/data", "192.0.2.7")]
        self.ports: dict[str, set[tuple[str, int]] | None] = {"192.0.2.7": {("tcp", 20048)}}
        self.asked: list[str] = []
        self.now = 1000.0

    def ask(self, address: str) -> set[tuple[str, int]] | None:
        self.asked.append(address)
        return self.ports.get(address, set())


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, kernel: FakeNetwork) -> Host:
    del kernel
    made = Host()
    monkeypatch.setattr(module, "read_mounts", lambda: made.mounts)
    monkeypatch.setattr(module, "registered_ports", made.ask)
    monkeypatch.setattr(module.time, "time", lambda: made.now)
    monkeypatch.setattr(sync, "read_would_drop", WouldDrop)
    return made


@pytest.mark.usefixtures("host")
def test_the_services_of_mounted_servers_are_closed_and_others_stay_open(store: Store, kernel: FakeNetwork) -> None:
    assert refresh_storage(store) == [
        Change(
            "storage closed to containers: NFS of 192.0.2.7",
            "NFS of 192.0.2.7 (tcp 111, 2049; udp 111, 2049), mounted at /mnt/data",
            "NFS of 192.0.2.7 (tcp 111, 2049, 20048; udp 111, 2049), mounted at /mnt/data",
        )
    ]
    assert closed_storage(store) == (DATA,)
    sync_ruleset(store, check_mode=False)
    rules = kernel.table
    assert "ip daddr { 192.0.2.7 } tcp dport { 111, 2049, 20048 } goto drop_storage" in rules
    assert "ip daddr { 192.0.2.7 } udp dport { 111, 2049 } goto drop_storage" in rules
    assert [line for line in rules.splitlines() if "192.0.2.7" in line and "dport" not in line] == []
    assert store.storage_file.stat().st_mode & 0o777 == 0o600


def test_the_timer_closes_what_is_mounted_new(host: Host, store: Store, engine: Any, kernel: FakeNetwork) -> None:
    assert restore(store, lambda: engine, start=False)[1] == []
    assert "192.0.2.9" not in kernel.table
    host.mounts.append(Mounted("/mnt/ceph", frozenset(), "ceph", "192.0.2.9:6789:/", ("rw",)))
    changes, failures = restore(store, lambda: engine, start=False)
    assert failures == []
    assert changes[0] == Change("storage closed to containers: Ceph of 192.0.2.9", None, CEPH.description)
    assert "ip daddr { 192.0.2.9 } tcp dport { 3300, 6789, 6800-7568 } goto drop_storage" in kernel.table
    # When the engine starts, the network may be away: what is stored counts.
    host.asked.clear()
    host.now += 10_000
    restore(store, lambda: engine, start=True)
    assert host.asked == []


def test_what_was_dropped_outlives_a_change_of_the_rules(
    host: Host, store: Store, kernel: FakeNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped = ("dropped_storage4", ("172.18.0.2", "tcp", "2049", "192.0.2.7"), 7, 420)
    reported = ("reported_ports4", ("192.0.2.50", "tcp", "2049"), 7, 420)
    monkeypatch.setattr(sync, "read_would_drop", lambda: WouldDrop((reported,), dropped=(dropped,)))
    line = "add element inet backendai dropped_storage4 { 172.18.0.2 . tcp . 2049 . 192.0.2.7 counter packets 7"
    sync_ruleset(store, check_mode=False)
    assert line in kernel.table
    assert "add element inet backendai reported_ports4" not in kernel.table
    host.mounts.clear()
    refresh_storage(store, forget=True)
    sync_ruleset(store, check_mode=False)
    assert "dropped_storage4" not in kernel.table


def test_servers_are_asked_again_after_a_while_and_keep_their_ports_when_silent(host: Host, store: Store) -> None:
    refresh_storage(store)
    host.now += 500
    assert (refresh_storage(store), host.asked) == ([], ["192.0.2.7"])
    host.now += 500
    host.ports["192.0.2.7"] = None
    assert (refresh_storage(store), host.asked) == ([], ["192.0.2.7"] * 2)
    assert closed_storage(store) == (DATA,)
    host.now += 5000
    host.ports["192.0.2.7"] = {("udp", 4045)}
    assert refresh_storage(store)[0].after == (
        "NFS of 192.0.2.7 (tcp 111, 2049; udp 111, 2049, 4045), mounted at /mnt/data"
    )
    # A clock that is set back asks once more.
    host.now -= 5000
    refresh_storage(store)
    assert len(host.asked) == 4


def test_what_is_mounted_no_more_is_closed_until_provisioning(host: Host, store: Store) -> None:
    refresh_storage(store)
    host.mounts.clear()
    assert (refresh_storage(store), closed_storage(store)) == ([], (DATA,))
    assert [change.after for change in refresh_storage(store, forget=True, check_mode=True)] == [None]
    assert closed_storage(store) == (DATA,)
    assert [change.after for change in refresh_storage(store, forget=True)] == [None]
    assert closed_storage(store) == ()


def test_operators_open_servers(host: Host, store: Store, kernel: FakeNetwork) -> None:
    host.mounts.append(nfs("/mnt/more", "198.51.100.4"))
    refresh_storage(store)
    save_egress(store, EgressPolicy(open_storage=("192.0.2.0/24",)))
    assert [service.address for service in closed_storage(store)] == ["198.51.100.4"]
    save_egress(store, EgressPolicy(open_storage=("192.0.2.0/24", "198.51.100.4/32")))
    sync_ruleset(store, check_mode=False)
    assert "drop_storage" not in kernel.table


def test_a_server_that_is_not_known_is_said(host: Host, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "resolve", {"mgs1": "192.0.2.11"}.get)
    host.mounts = [
        Mounted("/mnt/l", frozenset(), "lustre", "mgs1@tcp:/data", ("rw",)),
        Mounted("/mnt/f", frozenset(), "fuse.ceph-fuse", "ceph-fuse", ("rw",)),
    ]
    refresh_storage(store)
    assert closed_storage(store) == (StorageService("Lustre", "192.0.2.11", "/mnt/l", ("988",)),)
    (warning,) = storage_warnings(store)
    assert warning == (
        "the servers of /mnt/f are not known, so containers may reach them: name their addresses in"
        " agent_closed_networks."
    )


@pytest.mark.usefixtures("host")
def test_a_damaged_file_closes_what_the_table_of_mounts_names(store: Store) -> None:
    refresh_storage(store)
    for damage in ("{", '{"version": 3, "services": [{"kind": "NFS", "address": "1.2.3.4; flush ruleset"}]}'):
        store.storage_file.write_text(damage)
        assert closed_storage(store) == (dataclasses.replace(DATA, tcp=("111", "2049")),)
    refresh_storage(store)
    assert closed_storage(store) == (DATA,)


def test_closed_storage_comes_after_name_servers_and_exceptions() -> None:
    policy = IsolationPolicy(("192.0.2.1",), (), (), {}, name_servers=("192.0.2.7",), storage=(DATA,))
    rules = render(policy)
    chain = rules[rules.index("chain from_containers") : rules.index("# Incoming traffic")]
    assert chain.index("@name_servers") < chain.index("goto drop_storage") < chain.index("@closed_networks")
    assert chain.index("ct direction reply return") < chain.index("goto drop_storage")
    assert "drop_storage" not in render(dataclasses.replace(policy, storage=()))


@pytest.mark.parametrize(
    "changes",
    [{"address": "x"}, {"address": "2001:db8::1"}, {"tcp": ("0",)}, {"udp": ("1; drop",)}, {"kind": "N\nFS"}],
)
def test_what_is_no_service_becomes_no_rule(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must be|is not"):
        dataclasses.replace(DATA, **changes)
