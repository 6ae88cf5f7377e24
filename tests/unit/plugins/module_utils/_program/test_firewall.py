"""The phase firewall_traffic: what would be dropped, with the programs and containers that listen there."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker.client import DockerUnavailableError
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.policy import Firewall
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.state import FirewallState
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.storage import KnownStorage
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.would_drop import WouldDrop
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.storage import StorageService
from ansible_collections.backendai.cluster.plugins.module_utils._program import firewall
from ansible_collections.backendai.cluster.plugins.plugin_utils.host_replies import check_reply
from tests.unit.phases import NOWHERE, result_of

ELEMENTS = (
    ("reported_ports4", ("192.0.2.9", "tcp", "22"), 4, 0),
    ("reported_ports4", ("192.0.2.9", "tcp", "8080"), 3, 0),
    ("reported_ports4", ("192.0.2.9", "udp", "22"), 2, 0),
    ("reported_routed_ports4", ("192.0.2.9", "tcp", "22", "10.1.0.2"), 1, 0),
)
WEB = [{"Names": ["/web"], "Ports": [{"PublicPort": 8080, "Type": "tcp"}]}]


def report(path: Path) -> dict[str, Any]:
    result = result_of("firewall_traffic", {"state_path": str(path), "docker_host": NOWHERE})
    check_reply("firewall_traffic", result)
    return result


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Return a host with an sshd and the container web, which a proxy of the engine publishes."""
    monkeypatch.setattr(firewall, "read_would_drop", lambda: WouldDrop(ELEMENTS, 5))
    listening = {("tcp", 22): "sshd", ("tcp", 8080): "docker-proxy"}
    monkeypatch.setattr(firewall, "listening_programs", lambda: dict(listening))
    monkeypatch.setattr(firewall, "connect", lambda _docker_host: SimpleNamespace(containers=lambda: WEB))


def test_programs_and_containers_are_named_at_their_own_ports_alone(tmp_path: Path) -> None:
    FirewallState(Store(str(tmp_path))).save(Firewall(("192.0.2.7/32",), mode="report"), None)
    result = report(tmp_path)
    assert [(entry["protocol"], entry["port"], entry["program"]) for entry in result["traffic"]] == [
        ("tcp", 22, "sshd"),
        ("tcp", 8080, "container web"),
        ("udp", 22, None),
        ("tcp", 22, None),
    ]
    assert (result["mode"], result["unlisted"]) == ("report", 5)


def test_a_host_without_an_engine_has_the_programs_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_docker_host: str) -> None:
        raise DockerUnavailableError("no engine.")

    monkeypatch.setattr(firewall, "connect", refuse)
    assert [entry["program"] for entry in report(tmp_path)["traffic"]] == ["sshd", "docker-proxy", None, None]


def test_without_anything_to_report_nothing_is_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(firewall, "read_would_drop", WouldDrop)
    monkeypatch.setattr(firewall, "listening_programs", None)
    monkeypatch.setattr(firewall, "connect", None)
    assert report(tmp_path) == {"mode": "off", "traffic": [], "unlisted": 0, "storage": []}


def test_what_containers_sent_to_closed_storage_is_named_by_its_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped = (
        ("dropped_storage4", ("172.18.0.2", "tcp", "2049", "192.0.2.7"), 4, 0),
        ("dropped_storage4", ("172.18.0.2", "tcp", "6789", "192.0.2.8"), 1, 0),
    )
    monkeypatch.setattr(firewall, "read_would_drop", lambda: WouldDrop(dropped=dropped))
    closed = KnownStorage((StorageService("NFS", "192.0.2.7", "/mnt/data", ("2049",)),))
    monkeypatch.setattr(firewall, "known_storage", lambda _store: closed)
    result = report(tmp_path)
    assert [(entry["destination"], entry["packets"], entry["program"]) for entry in result["storage"]] == [
        ("192.0.2.7", 4, "NFS, mounted at /mnt/data"),
        ("192.0.2.8", 1, None),
    ]
    assert result["traffic"] == []
