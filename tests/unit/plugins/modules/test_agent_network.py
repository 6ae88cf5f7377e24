"""The module agent_network: what it stores of the egress policy and the mounted storage, and what it says."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.module_utils.basic import AnsibleModule

from ansible_collections.backendai.cluster.plugins.module_utils._docker.default_network import DefaultNetwork
from ansible_collections.backendai.cluster.plugins.module_utils._firewall import storage
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.egress import read_egress
from ansible_collections.backendai.cluster.plugins.module_utils._host.mount_table import Mounted
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change
from ansible_collections.backendai.cluster.plugins.module_utils._network.iproute import LinkState, WayOut
from ansible_collections.backendai.cluster.plugins.modules import agent_network
from tests.unit.agent import store
from tests.unit.fake_docker import FakeDocker
from tests.unit.module_runs import result_of

__all__ = ("store",)

MOUNT = Mounted("/mnt/data", frozenset({"rw"}), "nfs4", "192.0.2.7:/data", ("rw", "addr=192.0.2.7"))
SENTENCE = (
    "containers do not reach NFS of 192.0.2.7 (tcp 111, 2049; udp 111, 2049), mounted at /mnt/data: agent_open_storage"
    " opens it."
)


@pytest.fixture
def warned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the warnings: beside the control node's own Ansible, they are not in the result."""
    said: list[str] = []
    monkeypatch.setattr(AnsibleModule, "warn", lambda _module, sentence: said.append(sentence))
    return said


@pytest.fixture
def engine() -> Any:
    """Return an engine."""
    return FakeDocker()


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch, engine: Any) -> None:
    """Let this host have mounted something of a server of NFS, and an engine whose network is as it should be."""
    monkeypatch.setattr(storage, "read_mounts", lambda: [MOUNT])
    monkeypatch.setattr(storage, "registered_ports", lambda _address: set())
    monkeypatch.setattr(agent_network, "connect", lambda _docker_host: engine)
    monkeypatch.setattr(agent_network, "apply_default_network", lambda *_arguments, **_options: [])
    monkeypatch.setattr(agent_network, "save_default_network", lambda *_arguments: None)


def provision(store: Store, capsys: pytest.CaptureFixture[str], *, check_mode: bool = False, **options: Any) -> Any:
    return result_of(
        "agent_network", {"state_path": str(store.egress_file.parent), **options}, capsys, check_mode=check_mode
    )


def test_provisioning_names_the_storage_that_is_closed_and_the_mount(
    store: Store, capsys: pytest.CaptureFixture[str], warned: list[str]
) -> None:
    provision(store, capsys)
    assert warned == [SENTENCE]
    assert provision(store, capsys)["changed"] is False
    assert warned == [SENTENCE] * 2


def test_storage_that_is_open_is_not_named(store: Store, capsys: pytest.CaptureFixture[str], warned: list[str]) -> None:
    assert provision(store, capsys, open_storage=["192.0.2.0/24"])["changed"] is True
    assert warned == []
    assert read_egress(store).open_storage == ("192.0.2.0/24",)


def test_check_mode_stores_nothing(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    provision(store, capsys, check_mode=True, open_storage=["192.0.2.0/24"])
    assert not store.storage_file.exists()
    assert not store.egress_file.exists()


def test_an_engine_that_is_newer_than_any_known_is_worth_one_warning(
    engine: Any, store: Store, capsys: pytest.CaptureFixture[str], warned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "version", lambda: {"ApiVersion": "1.99"})
    provision(store, capsys, open_storage=["192.0.2.0/24"])
    assert [sentence.partition(":")[0] for sentence in warned] == [
        "the engine is newer than this version of backendai.cluster"
    ]


def test_an_engine_that_adds_its_rules_by_nftables_is_refused_before_anything_is_changed(
    engine: Any, store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = engine.info()
    monkeypatch.setattr(engine, "info", lambda: {**known, "FirewallBackend": {"Driver": "nftables"}})
    assert provision(store, capsys)["msg"] == (
        "the engine adds its rules by nftables, with which sessions and their isolation have not been tried: remove"
        " firewall-backend from /etc/docker/daemon.json or its command line, and restart the engine (systemctl restart"
        " docker)."
    )
    assert not store.storage_file.exists()


@pytest.mark.parametrize(("way_out", "mtu"), [(WayOut("eth0", 1400), 1400), (None, 1500)])
def test_the_network_has_the_mtu_of_the_way_out(
    store: Store,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    way_out: WayOut | None,
    mtu: int,
) -> None:
    applied: list[DefaultNetwork] = []
    saved: list[DefaultNetwork] = []
    monkeypatch.setattr(LinkState, "way_out", way_out)

    def apply(_client: None, network: DefaultNetwork, *_lock: object, **_options: bool) -> list[Change]:
        applied.append(network)
        return []

    monkeypatch.setattr(agent_network, "apply_default_network", apply)
    monkeypatch.setattr(agent_network, "save_default_network", lambda *arguments: saved.append(arguments[-1]))
    provision(store, capsys, check_mode=True)
    assert saved == []
    provision(store, capsys, subnet="10.127.0.0/16")
    assert [network.mtu for network in applied] == [mtu, mtu]
    assert saved == [DefaultNetwork("backendai-default", "backendai0", "10.127.0.0/16", mtu)]
