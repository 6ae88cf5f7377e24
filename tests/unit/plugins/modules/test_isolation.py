"""The modules that verify isolation, run whole on this host."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._exposure import port_scan, probe_routes
from tests.unit.plugins.modules.test_failures import NOWHERE, result_of

LOOPBACK = {"own": ["127.0.0.1"], "addresses": ["127.0.0.1"]}


@pytest.fixture(autouse=True)
def own_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody else's run be waited for, and no route of this host be touched."""
    monkeypatch.setattr(probe_routes, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(probe_routes, "show", lambda *_words: [{"dev": "lo"}] if "get" in _words else [])


@pytest.fixture
def service() -> Any:
    """Return the port of a service of this host."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_probe_says_what_answers_and_how_it_got_there(service: int, capsys: pytest.CaptureFixture[str]) -> None:
    options = {**LOOPBACK, "ports": str(service), "udp_ports": [], "echo": False, "rate": 10}
    result = result_of("isolation_probe", options, capsys)
    assert result["answers"] == [
        {"address": "127.0.0.1", "protocol": "tcp", "state": "open", "ports": str(service)},
    ]
    assert (result["changed"], result["ways"], result["near"]) == (False, {"127.0.0.1": ""}, True)
    assert (result["missing"], result["unseen"]) == ({}, ["127.0.0.1"])


def test_a_probe_pings_and_sends_datagrams(service: int, capsys: pytest.CaptureFixture[str]) -> None:
    result = result_of("isolation_probe", {**LOOPBACK, "ports": str(service), "udp_ports": [9]}, capsys)
    heard = {(one["protocol"], one["state"]) for one in result["answers"]}
    assert {("icmp", "open"), ("tcp", "open"), ("udp", "closed")} == heard


def test_in_check_mode_nothing_is_tried(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port_scan, "scan", None)
    result = result_of("isolation_probe", LOOPBACK, capsys, check_mode=True)
    assert (result["answers"], result["ways"], result["near"]) == ([], {}, False)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"ports": "ssh"}, "ports: 'ssh' must be port numbers and ranges such as 22,80,8000-9000."),
        ({"rate": 0}, "rate: 0 must be at least 1."),
        ({"own": ["agent1"]}, "own: 'agent1' must be an IPv4 or IPv6 address."),
        ({"addresses": ["192.0.2.300"]}, "addresses: '192.0.2.300' must be an IPv4 or IPv6 address."),
    ],
)
def test_what_a_probe_cannot_try_is_refused(
    options: dict[str, Any], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    result = result_of("isolation_probe", {**LOOPBACK, **options}, capsys)
    assert (result["failed"], result["msg"]) == (True, sentence)


@pytest.mark.parametrize("missing", ["own", "addresses"])
def test_a_probe_needs_addresses(missing: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = {name: value for name, value in LOOPBACK.items() if name != missing}
    assert result_of("isolation_probe", given, capsys)["msg"] == f"missing required arguments: {missing}"


def test_an_agent_says_what_is_to_be_tried_also_without_an_engine(capsys: pytest.CaptureFixture[str]) -> None:
    result = result_of("isolation_targets", {"kind": "agent", "docker_host": NOWHERE, "wireguard_port": 51900}, capsys)
    assert "agent" in result["addresses"].values()
    assert 51900 in result["udp_ports"]
    assert (result["changed"], result["expected"]) == (False, {})
    assert "its containers are not known" in result["unread"]


def test_a_gateway_says_what_is_expected_to_be_open(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = {"kind": "gateway", "gateway_state_path": str(tmp_path), "https_port": 8443}
    result = result_of("isolation_targets", options, capsys)
    assert result["expected"] == {"8443": "HTTPS of sessions' apps"}
    assert "gateway" in result["addresses"].values()


def test_other_kinds_of_hosts_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    result = result_of("isolation_targets", {"kind": "user"}, capsys)
    assert result["msg"] == "value of kind must be one of: agent, gateway, got: user"
