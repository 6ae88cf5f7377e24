"""The scan targets that a host returns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._exposure import targets
from ansible_collections.backendai.cluster.plugins.module_utils._gateway.routes import Endpoint, Route
from ansible_collections.backendai.cluster.plugins.module_utils._model.plain_data import to_plain
from tests.unit.gateway import ONE, TWO

NOWHERE = "unix:///nowhere/docker.sock"


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Return a host with one address, and two bridges of which one has a container."""
    monkeypatch.setattr(
        targets, "read_host_addresses", lambda: (["192.0.2.1", "fe80::1"], ["172.17.0.1", "172.18.0.1"])
    )
    monkeypatch.setattr(targets, "read_tunnel_ports", lambda: [4789, 4790])
    monkeypatch.setattr(targets, "container_addresses", lambda _client: ["172.18.0.2", "192.0.2.1"])


def test_an_agent_returns_host_bridge_and_container_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "connect", lambda _docker_host: None)
    result = targets.collect_agent_targets(NOWHERE, 51820)
    assert list(result["addresses"].items()) == [
        ("192.0.2.1", "agent"),
        ("fe80::1", "agent"),
        ("172.17.0.1", "bridge"),
        ("172.18.0.1", "bridge"),
        ("172.18.0.2", "container"),
    ]
    assert (result["udp_ports"], result["expected"], result["unread"]) == ([4789, 4790, 51820], {}, "")


def test_an_agent_without_docker_reports_unknown_containers() -> None:
    result = targets.collect_agent_targets(NOWHERE, 51820)
    assert "container" not in result["addresses"].values()
    assert result["unread"].startswith(f"its containers are not known: the Docker engine at {NOWHERE} does not answer")
    assert not result["unread"].endswith(".")


def test_a_gateway_expects_its_ports_to_be_open(tmp_path: Path) -> None:
    (tmp_path / "routes").mkdir()
    with_ssh = Route(ONE, "train", ssh=Endpoint("192.0.2.1", 30001), ssh_port=32007)
    for route in (with_ssh, Route(TWO, "serve")):
        (tmp_path / "routes" / f"{route.id}.json").write_text(json.dumps({"version": 3, **to_plain(route)}))
    result = targets.collect_gateway_targets(str(tmp_path), 8443)
    assert result["expected"] == {"32007": "SSH of the session train", "8443": "HTTPS of sessions' apps"}
    assert (result["addresses"]["192.0.2.1"], result["addresses"]["172.17.0.1"]) == ("gateway", "bridge")
    assert (result["udp_ports"], result["unread"]) == ([4789, 4790], "")


def test_an_unprovisioned_gateway_expects_only_https(tmp_path: Path) -> None:
    assert targets.collect_gateway_targets(str(tmp_path / "nowhere"), 443)["expected"] == {
        "443": "HTTPS of sessions' apps"
    }


def test_a_gateway_with_damaged_routes_reports_it(tmp_path: Path) -> None:
    (tmp_path / "routes").mkdir()
    (tmp_path / "routes" / "1.json").write_text("{")
    result = targets.collect_gateway_targets(str(tmp_path), 443)
    assert "/routes/1.json is damaged (" in result["unread"]
    assert result["expected"] == {"443": "HTTPS of sessions' apps"}
