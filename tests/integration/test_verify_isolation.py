"""Probes from outside and their report: nothing on agents is open, and on gateways only expected ports.

Each test probes as few ports and hosts as possible. The first two belong in this order: fault, then repair.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration.firewalls import apply_firewall
from tests.integration.internals import RECONCILE_AGENT, RECONCILE_FIREWALL, TABLE
from tests.integration.inventories import UNREACHABLE, inventory_options
from tests.integration.laboratory import AGENTS, Run, address, run_on, run_playbook
from tests.integration.probes import PUBLISHED, Target, control_node_address, reachable_from_host, scan
from tests.integration.reconciliation import reconcile_paused
from tests.integration.session_requests import THREE
from tests.integration.sessions import Sessions

pytestmark = pytest.mark.isolation

#: Ports of services, published ports of sessions, and some unused ones.
PORTS = "20-30,80,111,443,2375-2377,8070-8100,30000-32000"
LISTENING = 8077
FOREIGN = "verify-isolation-foreign"
INSIDE = "containers reach no management address"
FOLDERS = "folders of the policy are where root has put them"
PROTECTED = "shared folders of the policy are mounted nosuid,nodev"
COMPUTE = "198.18.77.1"
LEFTOVERS = "ip route show proto 186; ip -6 route show proto 186"


def verify(folder: Path, *options: str, ports: str = PORTS, **variables: object) -> Run:
    """Run ``verify_isolation`` on some ports, and check that it leaves no route on the probe host."""
    extra_vars = {f"firewall_{name}": value for name, value in variables.items()}
    run = run_playbook("verify_isolation", folder, {"firewall_probe_ports": ports, **extra_vars}, *options)
    assert run_on("user1", LEFTOVERS) == ""
    return run


def findings_of(run: Run, host: str) -> list[dict[str, Any]]:
    """Return the findings of a host."""
    return [finding for finding in run.record["findings"] if finding["target"] == host]


def open_ports(run: Run, host: str) -> set[tuple[str, str, int]]:
    """Return the open ports among the findings of a host."""
    opened = (finding for finding in findings_of(run, host) if finding["state"] == "open")
    return {(finding["address"], finding["protocol"], finding["port"]) for finding in opened}


def verdict_on(run: Run, requirement: str) -> bool | None:
    """Return the verdict of the checklist on a requirement."""
    (ok,) = [entry["ok"] for entry in run.record["checklist"] if entry["requirement"] == requirement]
    return ok


@contextmanager
def without_rules(host: str) -> Iterator[None]:
    """Remove the rules of a host for a while."""
    with reconcile_paused(host, unit=RECONCILE_AGENT if host in AGENTS else RECONCILE_FIREWALL):
        run_on(host, f"nft delete table {TABLE}")
        yield


@pytest.fixture(scope="module")
def containers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[set[str]]:
    """Return the addresses of agent1's containers: those of a session, and a foreign one with a published port."""
    foreign = (
        f"docker run --detach --name {FOREIGN} --publish {PUBLISHED}:{PUBLISHED} lab/python:1"
        f" python3 -m http.server {PUBLISHED}"
    )
    with Sessions(tmp_path_factory.mktemp("verify-isolation")) as sessions:
        try:
            run_on("agent1", foreign)
            sessions.start(**THREE)
            form = "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{end}}"
            yield set(run_on("agent1", f"docker inspect --format '{form}' $(docker ps --quiet)").split())
        finally:
            run_on("agent1", f"docker rm --force {FOREIGN}", check=False)


def test_agent_without_rules_is_reported_open(containers: set[str], tmp_path: Path) -> None:
    agent = address("agent1")
    with without_rules("agent1"):
        run = verify(tmp_path)
    assert run.code != 0
    assert {(agent, "tcp", port) for port in (22, PUBLISHED)} <= open_ports(run, "agent1")
    assert f"user1 -> agent1 ({agent}) tcp 22 open: it accepts connections." in run.output
    states = {(finding["address"], finding["protocol"], finding["state"]) for finding in findings_of(run, "agent1")}
    assert (agent, "tcp", "closed") in states
    assert (agent, "icmp", "open") in states
    assert containers & {inner for inner, _protocol, _state in states}
    assert [findings_of(run, agent) for agent in ("agent2", "agent3")] == [[], []]
    assert "probe hosts get an answer from" in run.text
    assert verdict_on(run, INSIDE) is False
    assert "agent1" in {finding["target"] for finding in run.record["findings"] if finding["probe_host"] != "user1"}


def test_only_the_gateway_is_open_and_all_addresses_are_probed(containers: set[str], tmp_path: Path) -> None:
    """The rules that were removed are restored, so agent1 has no findings either."""
    run = verify(tmp_path)
    probed = {(entry["target"], entry["address"]): entry for entry in run.record["probed"]}
    assert (run.code, run.record["ok"]) == (0, True), run.output
    assert (run.record["findings"], run.record["inconclusive"]) == ([], [])
    assert "Only the gateway answers user1, at " in run.output
    expected = {port["description"].partition(" ")[0]: port["open"] for port in run.record["expected"]}
    assert expected == {"HTTPS": True, "SSH": True}
    assert run.record["probe_hosts"] == ["user1"]
    assert {entry["kind"] for entry in probed.values()} == {"agent", "bridge", "container", "gateway"}
    for agent in AGENTS:
        entry = probed[agent, address(agent)]
        assert (entry["kind"], entry["next_hop"], entry["ports"]) == ("agent", None, PORTS)
        assert entry["protocols"] == ["tcp", "udp", "icmp"]
        assert "4789" in entry["udp_ports"].split(",")
        assert any(inner.startswith("fe80::") for target, inner in probed if target == agent)
    for container in containers:
        inner = probed["agent1", container]
        assert (inner["kind"], inner["next_hop"], inner["ports"]) == ("container", address("agent1"), PORTS)


@contextmanager
def compute_network() -> Iterator[str]:
    """Give agent1 an interface for compute, to which agent2 has a route; yield the variables that declare it.

    The lab's network is that of management.
    """
    network = f"{address('agent1').rpartition('.')[0]}.0/24"
    variables = {
        "agent_management_networks": [network],
        "agent_compute_networks": [f"{COMPUTE}/32"],
        "agent_underlay_address": COMPUTE,
    }
    try:
        run_on("agent1", "ip link add compute0 type veth peer name compute1; ip link set compute0 up")
        run_on("agent1", f"ip address add {COMPUTE} dev compute0")
        run_on("agent2", f"ip route replace {COMPUTE} via {address('agent1')}")
        yield json.dumps(variables)
    finally:
        run_on("agent1", "ip link del compute0", check=False)
        run_on("agent2", f"ip route del {COMPUTE}", check=False)
        restored = apply_firewall({}, "--limit", "agent1")
    assert restored.returncode == 0, restored.stdout


@pytest.mark.usefixtures("containers")
def test_ssh_answers_on_management_alone_tunnels_on_compute_alone_and_the_checklist_says_so(tmp_path: Path) -> None:
    management = address("agent1")
    targets: list[Target] = [("tcp", management, 22), ("tcp", COMPUTE, 22)]
    peer = address("agent2")
    firewall = {"agents": [peer], "ssh_sources": [control_node_address(), peer]}
    with compute_network() as variables:
        one_network = apply_firewall(firewall, "--limit", "agent1")
        assert one_network.returncode == 0, one_network.stdout
        assert reachable_from_host("agent2", targets) == set(targets)
        apart = apply_firewall(firewall, "--limit", "agent1", "-e", variables)
        assert apart.returncode == 0, apart.stdout
        assert reachable_from_host("agent2", targets) == {("tcp", management, 22)}
        closed = [line for line in run_on("agent1", f"nft list table {TABLE}").splitlines() if "@tunnel_ports" in line]
        assert [line for line in closed if "ip daddr != @compute4 fib daddr type local goto drop_ingress" in line]
        run = verify(tmp_path, "-e", variables, "-e", "agent_group=agent1", ports="22,4789")
    assert run.code == 0, run.output
    met = [entry["requirement"] for entry in run.record["checklist"] if entry["ok"]]
    assert len(met) == 10
    assert {INSIDE, FOLDERS, PROTECTED} <= {*met}
    assert "✓ SSH is closed on compute, tunnels are closed on management" in run.output


def test_a_folder_of_the_policy_that_is_not_roots_is_named_with_its_component(tmp_path: Path) -> None:
    run_on("agent2", "install -d -m 1777 /srv/home")
    try:
        run = verify(tmp_path, ports="22")
    finally:
        run_on("agent2", "rmdir /srv/home")
    assert (run.code, verdict_on(run, FOLDERS)) == (2, False), run.output
    assert "agent2: /srv/home/{user}: /srv/home is writable for others than root (mode 1777)" in run.text


def test_unexpected_gateway_port_is_reported_as_by_nmap(tmp_path: Path) -> None:
    gateway = address("gateway1")
    try:
        run_on("gateway1", f"systemd-run --unit verify-listener python3 -m http.server {LISTENING}")
        with without_rules("gateway1"):
            run = verify(tmp_path, "--limit", "localhost,gateway1,user1")
            scanned = scan([gateway], PORTS)
    finally:
        run_on("gateway1", "systemctl stop verify-listener", check=False)
    expected = {port["port"] for port in run.record["expected"] if port["open"]}
    ours = {port for host, _protocol, port in open_ports(run, "gateway1") if host == gateway} | expected
    assert run.code != 0
    assert LISTENING in ours
    assert LISTENING not in expected
    assert ours == {int(port.partition("/")[0]) for _host, port in scanned if re.fullmatch(r"\d+/open", port)}
    hidden = {entry["target"] for entry in run.record["inconclusive"] if "hidden by --limit" in entry["reason"]}
    assert hidden == set(AGENTS)


@pytest.fixture(scope="module")
def unreachable_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The run with agent2 unreachable, and agent3 at an unused address."""
    folder = tmp_path_factory.mktemp("unreachable")
    unused = {"ansible_host": unused_address(), "ansible_ssh_timeout": UNREACHABLE["ansible_ssh_timeout"]}
    # The next run removes a route left by a killed one.
    run_on("user1", f"ip route add 198.18.0.1 via {address('agent1')} proto 186")
    assert run_on("user1", LEFTOVERS) != ""
    return verify(folder, *inventory_options(folder, agent2=UNREACHABLE, agent3=unused), ports="22")


def unused_address() -> str:
    """Return an unused address of the agents' network."""
    return address("agent3").rpartition(".")[0] + ".250"


def test_unreachable_host_is_probed_by_inventory_and_inconclusive(unreachable_run: Run) -> None:
    (inconclusive,) = [entry for entry in unreachable_run.record["inconclusive"] if entry["target"] == "agent2"]
    assert unreachable_run.code != 0
    assert inconclusive["address"] is None
    assert inconclusive["reason"].startswith("its addresses could not be read: ")
    assert [entry["address"] for entry in unreachable_run.record["probed"] if entry["target"] == "agent2"] == [
        address("agent2")
    ]
    assert "agent2: its addresses could not be read: " in unreachable_run.text


def test_silence_of_an_unused_address_is_inconclusive(unreachable_run: Run) -> None:
    inconclusive = {
        (entry["target"], entry["address"], entry["reason"]) for entry in unreachable_run.record["inconclusive"]
    }
    assert ("agent3", unused_address(), "no host on the segment has this address") in inconclusive


def test_check_mode_probes_nothing_and_reports_the_plan(tmp_path: Path) -> None:
    run = verify(tmp_path, "--check", ports="22")
    assert (run.code, run.record) == (0, None), run.output
    assert address("agent1") in run.output
    assert "TCP ports 22 would be probed." in run.text
