"""Probes as hosts are asked for them, with the program of hosts in this process."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._exposure import port_scan, probe_routes
from ansible_collections.backendai.cluster.plugins.module_utils._exposure.model import (
    InsideAnswer,
    InsideProbe,
    InsideReply,
    InsideTarget,
    ProbeBatch,
    ProbedHost,
)
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.audit import Zones
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.policy import Firewall
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.state import FirewallState
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.plain_data import to_plain
from ansible_collections.backendai.cluster.plugins.module_utils._program import exposure
from ansible_collections.backendai.cluster.plugins.module_utils._program.main import reply_to
from ansible_collections.backendai.cluster.plugins.plugin_utils._exposure.inside import InsidePlan
from ansible_collections.backendai.cluster.plugins.plugin_utils._exposure.probing import SECONDS, Probing
from ansible_collections.backendai.cluster.plugins.plugin_utils._exposure.report import ProbeResult
from ansible_collections.backendai.cluster.plugins.plugin_utils.agent_calls import Answer, Failure
from tests.unit.plugins.action.asked_hosts import GONE, Asked, AskedHosts

BATCH = ProbeBatch("agent1", ("127.0.0.1",), ("127.0.0.1",), "22", (), False)
NO_ENGINE = "unix:///nowhere/docker.sock"


class Site:
    """An agent, a gateway and two hosts to probe from, which all run the program in this process.

    ``answers`` are those of hosts that answer something else, to any request.
    """

    def __init__(self, folder: Path) -> None:
        self.hosts: dict[str, dict[str, Any]] = {name: {} for name in ("agent1", "gateway1", "user1", "user2")}
        # What AgentCalls adds to requests.
        self.places = {"docker_host": NO_ENGINE, "state_path": str(folder)}
        self.answers: dict[str, Answer] = {}
        self.hidden: tuple[str, ...] = ()
        self.steps: list[str] = []
        self.of_agents, self.of_gateways, self.of_outsiders = self._asks(), self._asks(), self._asks()
        self.probing = Probing(self.of_agents, self.of_gateways, self.of_outsiders, self._shown)

    def _asks(self) -> AskedHosts:
        return AskedHosts(self.hosts, self._answer, lambda step, host, _answer: self._note(step, host))

    def _shown(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if name not in self.hidden]

    def _note(self, step: str, host: str) -> None:
        self.steps += [] if host else [step]

    def _answer(self, request: Asked) -> Answer:
        if request.host in self.answers:
            return self.answers[request.host]
        places = {} if request.phase == "probe" else self.places
        reply = reply_to(asked(request.phase, {**request.options, **places}))
        return Failure(reply["failed"]) if "failed" in reply else reply["result"]

    def target(self, kind: str = "agent", **variables: Any) -> ProbedHost:
        """Return what a host says of itself, with these variables."""
        name = f"{kind}1"
        self.hosts[name] = variables
        names = ([name], []) if kind == "agent" else ([], [name])
        (target,) = self.probing.read_targets(*names, self.hosts)
        return target


def asked(phase: str, options: dict[str, Any], *, check_mode: bool = False) -> dict[str, Any]:
    """Return a request to the program."""
    return {"phase": phase, "options": options, "check_mode": check_mode, "diff": False, "seconds": 60}


def refusal(phase: str, options: dict[str, Any]) -> str:
    return str(reply_to(asked(phase, options))["failed"])


@pytest.fixture(autouse=True)
def own_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for other runs, and do not change routes of this host."""
    monkeypatch.setattr(probe_routes, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(probe_routes, "show", lambda *_words: [{"dev": "lo"}] if "get" in _words else [])


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "state")


@pytest.fixture
def service() -> Any:
    """Return the port of a service of this host."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def probed(site: Site, *batches: ProbeBatch, hosts: tuple[str, ...] = ("user1",), rate: int = 10) -> list[ProbeResult]:
    return site.probing.probe(hosts, batches, rate)


def test_a_probe_returns_answers_and_next_hops(site: Site, service: int) -> None:
    (result,) = probed(site, dataclasses.replace(BATCH, ports=str(service)))
    assert to_plain(result.answers) == [
        {"address": "127.0.0.1", "protocol": "tcp", "state": "open", "ports": str(service)},
    ]
    assert (result.next_hops, result.on_link, result.failed) == ({"127.0.0.1": ""}, True, "")
    assert (result.missing, list(result.unresolved)) == ({}, ["127.0.0.1"])
    (request,) = site.of_outsiders.asked
    assert (request.phase, request.seconds, request.options["rate"]) == ("probe", SECONDS["probe"], 10)
    assert site.steps == ["Probe agent1: 127.0.0.1"]


def test_a_probe_sends_pings_and_datagrams(site: Site, service: int) -> None:
    (result,) = probed(site, dataclasses.replace(BATCH, ports=str(service), udp_ports=(9,), echo=True))
    heard = {(answer["protocol"], answer["state"]) for answer in result.answers}
    assert {("icmp", "open"), ("tcp", "open"), ("udp", "closed")} == heard


def test_check_mode_does_not_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port_scan, "scan", None)
    options = {**to_plain(BATCH), "rate": 10}
    result = reply_to(asked("probe", options, check_mode=True))["result"]
    assert (result["answers"], result["next_hops"], result["on_link"]) == ([], {}, False)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"ports": "ssh"}, "ports: 'ssh' must be port numbers and ranges such as 22,80,8000-9000."),
        ({"rate": 0}, "rate: 0 must be at least 1."),
        ({"own": ["agent1"]}, "own: 'agent1' must be an IPv4 or IPv6 address."),
        ({"addresses": ["192.0.2.300"]}, "addresses: '192.0.2.300' must be an IPv4 or IPv6 address."),
    ],
)
def test_a_host_refuses_to_probe_what_is_not_valid(options: dict[str, Any], sentence: str) -> None:
    assert refusal("probe", {**to_plain(BATCH), "rate": 10, **options}) == sentence


QUIET = {"answers": [], "next_hops": {"127.0.0.1": ""}, "missing": {}, "unresolved": [], "on_link": True}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Failure("ip -batch:\n File exists."), "the probe failed: ip -batch: File exists"),
        ({"next_hops": {}}, "the probe failed: its reply is damaged: answers is missing"),
        ({**QUIET, "on_link": "yes"}, "the probe failed: its reply is damaged: on_link must be true or false"),
    ],
)
def test_a_probe_that_fails_is_said_and_the_next_one_is_made(site: Site, answer: Answer, reason: str) -> None:
    site.answers["user1"] = answer
    assert [result.failed for result in probed(site, BATCH, BATCH)] == [reason, reason]
    assert len(site.of_outsiders.asked) == 2


def test_a_host_that_cannot_be_reached_or_is_hidden_is_said_for_each_batch_and_asked_once(site: Site) -> None:
    site.answers |= {"user1": GONE, "user2": QUIET}
    site.hidden = ("user3",)
    results = probed(site, BATCH, BATCH, hosts=("user1", "user2", "user3"))
    gone, hidden = "the probe failed: no route to host", "the probe failed: hidden by --limit"
    assert [(result.probe_host, result.failed) for result in results] == [
        *[("user1", gone)] * 2,
        *[("user2", "")] * 2,
        *[("user3", hidden)] * 2,
    ]
    assert [request.host for request in site.of_outsiders.asked] == ["user1", "user2", "user2"]


def test_an_agent_returns_its_targets_without_docker(site: Site) -> None:
    target = site.target(agent_wireguard_port="51900")
    assert "agent" in target.addresses.values()
    assert 51900 in target.udp_ports
    assert (target.kind, target.expected) == ("agent", {})
    assert "its containers are not known" in target.unread
    assert 51820 in site.target().udp_ports
    assert {(request.phase, request.seconds) for request in site.of_agents.asked} == {("targets", SECONDS["targets"])}


def test_a_gateway_returns_its_expected_ports(site: Site) -> None:
    target = site.target("gateway", gateway_https_port=8443, agent_wireguard_port="none")
    assert target.expected == {8443: "HTTPS of sessions' apps"}
    assert "gateway" in target.addresses.values()


@pytest.mark.parametrize(("kind", "variable"), [("agent", "agent_state_path"), ("gateway", "firewall_state_path")])
def test_a_host_returns_the_mode_of_its_firewall(site: Site, tmp_path: Path, kind: str, variable: str) -> None:
    FirewallState(Store(str(tmp_path))).save(Firewall(("192.0.2.7/32",), mode="report"), None)
    assert site.target(kind, **{variable: str(tmp_path)}).firewall_mode == "report"
    assert site.target(kind, **{variable: str(tmp_path / "nowhere")}).firewall_mode == "off"


def test_a_host_in_both_groups_is_read_once_as_a_gateway(site: Site) -> None:
    agent, gateway = site.probing.read_targets(["gateway1"], ["gateway1"], site.hosts)
    assert (agent.kind, gateway.kind, agent.expected) == ("agent", "gateway", gateway.expected)
    assert (len(site.of_agents.asked), len(site.of_gateways.asked)) == (0, 1)


SAID = {"addresses": {"192.0.2.1": "agent"}, "udp_ports": [51820], "expected": {}, "unread": ""}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Failure("Failed to\nconnect.", unreachable=True), "Failed to connect"),
        ({"addresses": {}}, "its reply is damaged: udp_ports is missing"),
        (
            {**SAID, "expected": {"https": "HTTPS"}},
            "its reply is damaged: expected must have whole numbers of 64 bits as keys",
        ),
        (None, "hidden by --limit"),
    ],
)
def test_a_host_that_cannot_say_is_probed_at_its_inventory_addresses(
    site: Site, answer: Answer | None, reason: str
) -> None:
    site.answers |= {"agent1": answer} if answer else {}
    site.hidden = () if answer else ("agent1",)
    target = site.target(ansible_host="agent1.example", agent_underlay_address="192.0.2.7")
    assert (target.addresses, target.unread) == (
        {"192.0.2.7": "agent"},
        f"its addresses could not be read: {reason}",
    )


def test_a_variable_of_a_host_that_is_not_valid_is_a_finding_about_that_host(site: Site) -> None:
    unread = site.target(agent_wireguard_port="many").unread
    assert "agent_*: argument 'wireguard_port' is of type str and we were unable to convert to int: " in unread


DECLARED: dict[str, Any] = {"agent_management_networks": ["127.1.0.0/16"], "agent_compute_networks": ["127.2.0.0/16"]}


def recorded(monkeypatch: pytest.MonkeyPatch, name: str, result: object) -> list[tuple[object, ...]]:
    """Replace a function of the program by one with this result, and return what it is called with."""
    calls: list[tuple[object, ...]] = []

    def called(*given: object) -> object:
        calls.append(given)
        return result

    monkeypatch.setattr(exposure, name, called)
    return calls


def test_an_agent_returns_whether_its_firewall_keeps_declared_networks_apart(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apart = Zones(("127.1.0.0/16",), ("127.2.0.0/16",), "127.1.0.7", "127.2.0.7", {})
    asked_for = recorded(monkeypatch, "read_zones", apart)
    variables = {**DECLARED, "agent_state_path": str(tmp_path), "agent_underlay_address": "127.2.0.7"}

    def separation(firewall: Firewall | None) -> dict[str, Any]:
        FirewallState(Store(str(tmp_path))).save(firewall, None)
        found: dict[str, Any] = to_plain(site.target(**variables).separation)
        return found

    kept = Firewall(("192.0.2.7/32",), management=apart.management, compute=apart.compute)
    assert separation(kept) == {"declared": True, "problems": [], "enforced": True}
    assert asked_for == [(["127.1.0.0/16"], ["127.2.0.0/16"], "127.2.0.7")]
    other = dataclasses.replace(kept, compute=("127.3.0.0/16",))
    for firewall in (None, dataclasses.replace(kept, mode="report"), Firewall(kept.ssh_sources), other):
        assert separation(firewall)["enforced"] is False


def test_an_agent_returns_why_its_networks_are_not_apart(site: Site) -> None:
    found = site.target(agent_management_networks=["127.1.0.0/16"]).separation
    assert found is not None
    (problem,) = found.problems
    assert problem.startswith("agent_management_networks needs agent_compute_networks beside it")
    assert (found.declared, found.enforced) == (True, False)
    undeclared = {"declared": False, "problems": [], "enforced": False}
    assert to_plain(site.target().separation) == undeclared


TARGET: dict[str, Any] = {"host": "manager1", "address": "127.0.0.1", "port": 22}
PLAN = InsidePlan((InsideTarget("manager1", "127.0.0.1", 22),))
AGENT = ProbedHost("agent1", "agent", {})


def test_an_agent_probes_from_its_containers(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    reply = InsideReply((InsideProbe("train", "main1", (InsideAnswer("127.0.0.1", 22, "open"),)),), 2)
    monkeypatch.setattr(exposure, "connect", lambda docker_host: docker_host)
    monkeypatch.setattr(exposure, "Store", str)
    asked_for = recorded(monkeypatch, "probe_from_containers", reply)
    assert site.probing.probe_inside(PLAN, [AGENT]).replies == {"agent1": reply}
    assert asked_for == [(NO_ENGINE, site.places["state_path"], [*PLAN.targets])]
    assert site.of_agents.asked[0].seconds == SECONDS["inside"]


def test_check_mode_probes_from_no_container(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposure, "probe_from_containers", None)
    assert reply_to(asked("inside", {"targets": [TARGET]}, check_mode=True))["result"]["probes"] == []


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ({"address": "manager1"}, "targets: 'manager1' and 22 must be an address and a port."),
        ({"port": 0}, "targets: '127.0.0.1' and 0 must be an address and a port."),
        ({"port": "22"}, "targets: port must be a whole number."),
    ],
)
def test_an_agent_refuses_targets_that_are_not_valid(target: dict[str, Any], sentence: str) -> None:
    assert refusal("inside", {"targets": [{**TARGET, **target}]}) == sentence


def test_without_an_engine_nothing_is_probed_from(site: Site) -> None:
    assert "does not answer" in site.probing.probe_inside(PLAN, [AGENT]).failed["agent1"]
