"""The action isolation_host, with the host program in this process."""

from __future__ import annotations

import dataclasses
import json
import socket
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.action.isolation_host import SECONDS, ActionModule
from ansible_collections.backendai.cluster.plugins.module_utils._exposure import port_scan, probe_routes
from ansible_collections.backendai.cluster.plugins.module_utils._exposure.model import (
    InsideAnswer,
    InsideProbe,
    InsideReply,
    InsideTarget,
)
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.audit import Zones
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.policy import Firewall
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.state import FirewallState
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._program import exposure
from ansible_collections.backendai.cluster.plugins.module_utils._program.main import reply_to
from tests.unit.plugins.action.conftest import Run

LOOPBACK = {"phase": "probe", "own": ["127.0.0.1"], "addresses": ["127.0.0.1"]}
NO_ENGINE = {"agent_docker_host": "unix:///nowhere/docker.sock"}


@pytest.fixture(autouse=True)
def own_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for other runs, and do not change routes of this host."""
    monkeypatch.setattr(probe_routes, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(probe_routes, "show", lambda *_words: [{"dev": "lo"}] if "get" in _words else [])


@pytest.fixture(autouse=True)
def requests(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Run the program in this process; return its requests."""
    requests: list[dict[str, Any]] = []

    def exchange(_action: object, _interpreter: str, payload: bytes) -> dict[str, Any]:
        size, _line, text = payload.partition(b"\n")
        _header, _line, request = text[int(size) :].partition(b"\n")
        requests.append(json.loads(request))
        return reply_to(requests[-1])

    monkeypatch.setattr(ActionModule, "_exchange", exchange)
    return requests


@pytest.fixture
def service() -> Any:
    """Return the port of a service of this host."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def host(run: Run, args: dict[str, Any], variables: dict[str, Any] | None = None, **how: bool) -> dict[str, Any]:
    return run(ActionModule, args, {"ansible_python_interpreter": "python3", **(variables or {})}, **how)


def refusal(run: Run, args: dict[str, Any], variables: dict[str, Any] | None = None) -> str:
    with pytest.raises(AnsibleActionFail) as refused:
        host(run, args, variables)
    return str(refused.value)


def test_probe_returns_answers_and_next_hops(run: Run, service: int) -> None:
    result = host(run, {**LOOPBACK, "ports": str(service), "udp_ports": [], "echo": False, "rate": 10})
    assert result["answers"] == [
        {"address": "127.0.0.1", "protocol": "tcp", "state": "open", "ports": str(service)},
    ]
    assert (result["changed"], result["next_hops"], result["on_link"]) == (False, {"127.0.0.1": ""}, True)
    assert (result["missing"], result["unresolved"]) == ({}, ["127.0.0.1"])


def test_probe_sends_pings_and_datagrams(run: Run, service: int) -> None:
    result = host(run, {**LOOPBACK, "ports": str(service), "udp_ports": [9]})
    heard = {(answer["protocol"], answer["state"]) for answer in result["answers"]}
    assert {("icmp", "open"), ("tcp", "open"), ("udp", "closed")} == heard


def test_check_mode_does_not_probe(run: Run, requests: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port_scan, "scan", None)
    result = host(run, LOOPBACK, check_mode=True)
    assert (result["answers"], result["next_hops"], result["on_link"]) == ([], {}, False)
    assert requests[0]["check_mode"] is True


def test_probe_defaults_to_all_ports(run: Run, requests: list[dict[str, Any]]) -> None:
    host(run, LOOPBACK, check_mode=True)
    arguments = requests[0]["options"]
    assert (arguments["ports"], arguments["udp_ports"], arguments["echo"], arguments["rate"]) == (
        "1-65535",
        [],
        True,
        16000,
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"ports": "ssh"}, "ports: 'ssh' must be port numbers and ranges such as 22,80,8000-9000."),
        ({"rate": 0}, "rate: 0 must be at least 1."),
        ({"own": ["agent1"]}, "own: 'agent1' must be an IPv4 or IPv6 address."),
        ({"addresses": ["192.0.2.300"]}, "addresses: '192.0.2.300' must be an IPv4 or IPv6 address."),
    ],
)
def test_invalid_probe_options_are_rejected(run: Run, options: dict[str, Any], sentence: str) -> None:
    assert refusal(run, {**LOOPBACK, **options}) == sentence


@pytest.mark.parametrize("missing", ["own", "addresses", "phase"])
def test_probe_requires_addresses(run: Run, requests: list[dict[str, Any]], missing: str) -> None:
    arguments = {name: value for name, value in LOOPBACK.items() if name != missing}
    assert refusal(run, arguments) == f"missing required arguments: {missing}."
    assert requests == []


def test_agent_returns_its_targets_without_docker(run: Run, requests: list[dict[str, Any]]) -> None:
    args = {"phase": "targets", "kind": "agent"}
    result = host(run, args, {**NO_ENGINE, "agent_wireguard_port": "51900"})
    assert "agent" in result["addresses"].values()
    assert 51900 in result["udp_ports"]
    assert (result["changed"], result["expected"]) == (False, {})
    assert "its containers are not known" in result["unread"]
    assert 51820 in host(run, args, NO_ENGINE)["udp_ports"]
    assert {request["seconds"] for request in requests} == {SECONDS["targets"]}


def test_gateway_returns_its_expected_ports(run: Run, tmp_path: Path) -> None:
    variables = {"gateway_state_path": str(tmp_path), "gateway_https_port": 8443, "agent_wireguard_port": "none"}
    result = host(run, {"phase": "targets", "kind": "gateway"}, variables)
    assert result["expected"] == {"8443": "HTTPS of sessions' apps"}
    assert "gateway" in result["addresses"].values()


@pytest.mark.parametrize(("kind", "variable"), [("agent", "agent_state_path"), ("gateway", "firewall_state_path")])
def test_a_host_returns_the_mode_of_its_firewall(run: Run, tmp_path: Path, kind: str, variable: str) -> None:
    FirewallState(Store(str(tmp_path))).save(Firewall(("192.0.2.7/32",), mode="report"), None)
    args = {"phase": "targets", "kind": kind}
    assert host(run, args, {**NO_ENGINE, variable: str(tmp_path)})["firewall_mode"] == "report"
    assert host(run, args, {**NO_ENGINE, variable: str(tmp_path / "nowhere")})["firewall_mode"] == "off"


@pytest.mark.parametrize(
    ("args", "variables", "sentence"),
    [
        ({"phase": "targets", "kind": "user"}, {}, "value of kind must be one of: agent, gateway, got: user."),
        ({"phase": "targets"}, {}, "missing required arguments: kind."),
        ({"phase": "look"}, {}, "value of phase must be one of: targets, probe, inside, got: look."),
        (
            {"phase": "targets", "kind": "agent"},
            {"agent_wireguard_port": "many"},
            "agent_*: argument 'wireguard_port' is of type str and we were unable to convert to int: ",
        ),
    ],
)
def test_invalid_phase_options_are_rejected(
    run: Run, requests: list[dict[str, Any]], args: dict[str, Any], variables: dict[str, Any], sentence: str
) -> None:
    assert refusal(run, args, variables).startswith(sentence)
    assert requests == []


DECLARED = {"agent_management_networks": ["127.1.0.0/16"], "agent_compute_networks": ["127.2.0.0/16"]}
UNDECLARED = {"declared": False, "problems": [], "enforced": False}


def recorded(monkeypatch: pytest.MonkeyPatch, name: str, result: object) -> list[tuple[object, ...]]:
    """Replace a function of the program by one with this result, and return what it is called with."""
    calls: list[tuple[object, ...]] = []

    def called(*given: object) -> object:
        calls.append(given)
        return result

    monkeypatch.setattr(exposure, name, called)
    return calls


def test_an_agent_returns_whether_its_firewall_keeps_declared_networks_apart(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apart = Zones(("127.1.0.0/16",), ("127.2.0.0/16",), "127.1.0.7", "127.2.0.7", {})
    asked = recorded(monkeypatch, "read_zones", apart)
    variables = {**NO_ENGINE, **DECLARED, "agent_state_path": str(tmp_path), "agent_underlay_address": "127.2.0.7"}

    def separation(firewall: Firewall | None) -> dict[str, Any]:
        FirewallState(Store(str(tmp_path))).save(firewall, None)
        return dict(host(run, {"phase": "targets", "kind": "agent"}, variables)["separation"])

    kept = Firewall(("192.0.2.7/32",), management=apart.management, compute=apart.compute)
    assert separation(kept) == {"declared": True, "problems": [], "enforced": True}
    assert asked == [(["127.1.0.0/16"], ["127.2.0.0/16"], "127.2.0.7")]
    other = dataclasses.replace(kept, compute=("127.3.0.0/16",))
    for firewall in (None, dataclasses.replace(kept, mode="report"), Firewall(kept.ssh_sources), other):
        assert separation(firewall)["enforced"] is False


def test_an_agent_returns_why_its_networks_are_not_apart(run: Run) -> None:
    variables = {**NO_ENGINE, "agent_management_networks": ["127.1.0.0/16"]}
    separation = host(run, {"phase": "targets", "kind": "agent"}, variables)["separation"]
    (problem,) = separation["problems"]
    assert problem.startswith("agent_management_networks needs agent_compute_networks beside it")
    assert (separation["declared"], separation["enforced"]) == (True, False)
    assert host(run, {"phase": "targets", "kind": "agent"}, NO_ENGINE)["separation"] == UNDECLARED


TARGET: dict[str, Any] = {"host": "manager1", "address": "127.0.0.1", "port": 22}
INSIDE = {"phase": "inside", "targets": [TARGET]}


def test_an_agent_probes_from_its_containers(
    run: Run, requests: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = InsideProbe("train", "main1", (InsideAnswer("127.0.0.1", 22, "open"),))
    monkeypatch.setattr(exposure, "connect", lambda docker_host: docker_host)
    monkeypatch.setattr(exposure, "Store", str)
    asked = recorded(monkeypatch, "probe_from_containers", InsideReply((probe,), 2))
    result = host(run, INSIDE, NO_ENGINE)
    answers = [{"address": "127.0.0.1", "port": 22, "state": "open"}]
    assert result["probes"] == [{"session": "train", "container": "main1", "answers": answers, "failed": ""}]
    assert (result["changed"], result["skipped"]) == (False, 2)
    assert asked == [
        (NO_ENGINE["agent_docker_host"], "/var/lib/backendai", [InsideTarget("manager1", "127.0.0.1", 22)])
    ]
    assert requests[0]["seconds"] == SECONDS["inside"]


def test_check_mode_probes_from_no_container(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposure, "probe_from_containers", None)
    assert host(run, INSIDE, NO_ENGINE, check_mode=True)["probes"] == []


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ({"address": "manager1"}, "targets: 'manager1' and 22 must be an address and a port."),
        ({"port": 0}, "targets: '127.0.0.1' and 0 must be an address and a port."),
        ({"port": "22"}, "targets: port must be a whole number."),
    ],
)
def test_invalid_targets_are_rejected(run: Run, target: dict[str, Any], sentence: str) -> None:
    assert refusal(run, {**INSIDE, "targets": [{**TARGET, **target}]}, NO_ENGINE) == sentence


def test_without_an_engine_nothing_is_probed_from(run: Run) -> None:
    assert "does not answer" in refusal(run, INSIDE, NO_ENGINE)
