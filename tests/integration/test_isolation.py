"""Isolation of sessions: every row of the table in docs/security.md, tested from inside containers."""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Iterator
from functools import partial

import pytest

from tests.integration.containers import default_address, public_keys
from tests.integration.firewalls import temporary_firewall
from tests.integration.forgery import (
    FORGED,
    LEGITIMATE,
    PEER,
    TUNNEL,
    external_address,
    in_container,
    send_forged_frames,
)
from tests.integration.internals import DEFAULT_NETWORK, LIST_PUBLISHED_PORTS, RECONCILE_AGENT, SET_PEERS, TABLE
from tests.integration.laboratory import AGENTS, TIMEOUT, Kernel, Run, address, in_parallel, run_on, run_on_all, ssh
from tests.integration.probes import (
    PUBLISHED,
    Target,
    all_targets,
    list_addresses,
    reachable_from_container,
    reachable_from_host,
    routes_through,
    scan,
    targets_with_ports,
)
from tests.integration.programs import run_line
from tests.integration.reconciliation import reconcile_paused
from tests.integration.session_requests import THREE
from tests.integration.sessions import Sessions, StartedSession
from tests.integration.waiting import wait_until

pytestmark = pytest.mark.isolation

OTHER = {**THREE, "cluster_size": 2, "designated_agents": ["agent2", "agent3"]}
METADATA = "169.254.169.254"
FOREIGN = "isolation-foreign"
REFUSALS = "sysctl --write net.ipv4.icmp_ratelimit"


@dataclasses.dataclass(frozen=True)
class SessionPair:
    """Two sessions: ``wide`` on all agents, ``other`` on one agent of each engine version."""

    wide: StartedSession
    other: StartedSession

    @property
    def kernels(self) -> list[Kernel]:
        return [*self.wide.kernels, *self.other.kernels]

    def session_peers(self, kernel: Kernel) -> list[Kernel]:
        """Return the containers of the same session, including the container itself."""
        return next(session.kernels for session in (self.wide, self.other) if kernel in session.kernels)

    def other_containers(self, kernel: Kernel) -> list[Kernel]:
        """Return the containers of the other session."""
        return [container for container in self.kernels if container not in self.session_peers(kernel)]

    def repair(self) -> Run:
        """Run the creation of the other session again."""
        return self.other.create_again("--diff")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SessionPair]:
    """Two sessions, a foreign container with a published port on every agent, and a host at the metadata address.

    The firewall is disabled, because the isolation of sessions must not depend on it.
    """
    start_foreign = (
        f"docker run --detach --restart always --name {FOREIGN} --network {DEFAULT_NETWORK}"
        f" --publish {PUBLISHED}:{PUBLISHED} lab/python:1 python3 -m http.server {PUBLISHED}"
    )
    with temporary_firewall(enabled=False), Sessions(tmp_path_factory.mktemp("isolation")) as sessions:
        try:
            # The tests expect ICMP errors, which hosts rate-limit by default.
            run_on_all(f"{start_foreign} && {REFUSALS}=0 && ip route add {METADATA} dev eth0")
            run_on("user1", f"ip address add {METADATA}/32 dev eth0 && {REFUSALS}=0")
            wide = sessions.start(**THREE, name=f"{sessions.name}-wide")
            yield SessionPair(wide, sessions.start(**OTHER, name=f"{sessions.name}-other"))
        finally:
            run_on_all(f"docker rm --force {FOREIGN}; ip route del {METADATA}; {REFUSALS}=1000", check=False)
            run_on("user1", f"ip address del {METADATA}/32 dev eth0; {REFUSALS}=1000", check=False)


def neighbour_addresses(pair: SessionPair, kernel: Kernel) -> list[str]:
    """Return the default-network addresses of containers outside the session on the same agent."""
    names = [
        container["container"] for container in pair.other_containers(kernel) if container["agent"] == kernel["agent"]
    ]
    return [default_address(kernel["agent"], name) for name in (*names, FOREIGN)]


def closed_to(pair: SessionPair) -> list[list[Target]]:
    """Return what is closed to each container: agents, other sessions, neighbours, the metadata service."""
    addresses = [
        (
            *list_addresses(kernel["agent"]),
            *(address(agent) for agent in AGENTS if agent != kernel["agent"]),
            *(container["address"] for container in pair.other_containers(kernel)),
            *neighbour_addresses(pair, kernel),
            METADATA,
        )
        for kernel in pair.kernels
    ]
    return [all_targets(*closed) for closed in addresses]


def test_ports_closed_to_containers_are_open_to_others(pair: SessionPair) -> None:
    agents = all_targets(*map(address, AGENTS))
    assert reachable_from_host("user1", agents) == set(agents)
    for agent in AGENTS:
        names = [kernel["container"] for kernel in pair.kernels if kernel["agent"] == agent]
        inner = [default_address(agent, name) for name in (*names, FOREIGN)]
        # From containers an agent accepts answers, but no ICMP errors such as those about closed UDP ports.
        answered = [target for target in all_targets(*inner) if target[0] in ("tcp", "icmp")]
        targets = targets_with_ports(METADATA, *list_addresses(agent)) + answered
        assert reachable_from_host(agent, targets) == set(targets)


def test_scan_finds_open_ports_without_the_firewall(pair: SessionPair) -> None:
    """So the scan of test_firewall.py can fail; published ports of sessions are closed even then."""
    agent = pair.wide.kernels[0]["agent"]
    published = run_on(agent, LIST_PUBLISHED_PORTS)
    ports = {port for _address, port in scan([address(agent)], f"22,{PUBLISHED},30000-31000")}
    assert {"22/open", f"{PUBLISHED}/open"} <= ports
    assert "->22/tcp" in published
    assert not {port for port in ports if f":{port.partition('/')[0]}->" in published}
    banner = run_on(agent, f"docker run --rm lab/python:1 {run_line('banner', address(agent), 22)}")
    assert "SSH-2.0" in banner, "containers outside of sessions do not reach their agent"


@pytest.mark.usefixtures("pair")
def test_published_ports_answer_users_gateways_and_agents() -> None:
    urls = [f"http://{address(agent)}:{PUBLISHED}/" for agent in AGENTS]
    pages = run_on_all(run_line("fetch", *urls), ("user1", "gateway1", *AGENTS))
    assert [page.count("<title>Directory listing") for page in pages] == [3] * 5


@pytest.mark.parametrize("agent", AGENTS)
def test_external_hosts_reach_only_published_ports_of_containers(pair: SessionPair, agent: str) -> None:
    kernels = [kernel for kernel in pair.kernels if kernel["agent"] == agent]
    names = [FOREIGN, *(kernel["container"] for kernel in kernels)]
    inner = [*(default_address(agent, name) for name in names), *(kernel["address"] for kernel in kernels)]
    with routes_through(agent, inner):
        assert reachable_from_host("user1", all_targets(*inner)) == set()


def test_two_sessions_share_no_key(pair: SessionPair) -> None:
    wide, other = (
        [public_keys(kernel, session.record["id"]) for kernel in session.kernels] for session in (pair.wide, pair.other)
    )
    # Each container has a user key and a host key.
    assert [len(keys) for keys in (*wide, *other)] == [6, 6, 6, 4, 4]
    assert not wide[0] & other[0]
    assert all(keys == wide[0] for keys in wide)
    assert all(keys == other[0] for keys in other)


@pytest.mark.parametrize("bridged_filtering", [0, 1])
def test_sessions_reach_only_themselves_with_and_without_br_netfilter(
    pair: SessionPair, bridged_filtering: int
) -> None:
    set_to = "sysctl --write net.bridge.bridge-nf-call-iptables="
    closed = closed_to(pair)
    assert all(closed)
    try:
        run_on_all(f"{set_to}{bridged_filtering}")
        wait_until(lambda: all(reach_own_session(pair)))
        pairs = zip(pair.kernels, closed, strict=True)
        assert in_parallel(*[partial(reachable_from_container, kernel, targets) for kernel, targets in pairs]) == [
            set()
        ] * len(closed)
    finally:
        run_on_all(f"{set_to}1")


def test_forged_frames_are_dropped(pair: SessionPair) -> None:
    assert send_forged_frames(pair.other) == {PEER, *LEGITIMATE}


def test_containers_cannot_send_vxlan(pair: SessionPair) -> None:
    tunnel = [("udp", external_address(), TUNNEL)]
    assert reachable_from_host("agent2", tunnel) == set(tunnel)
    assert in_parallel(*[partial(reachable_from_container, kernel, tunnel) for kernel in pair.kernels]) == [
        set()
    ] * len(pair.kernels)


def test_tunnels_are_not_tracked(pair: SessionPair) -> None:
    assert all(reach_own_session(pair))
    for connections in run_on_all("cat /proc/net/nf_conntrack"):
        assert "dport=22 " in connections
        assert f"dport={TUNNEL} " not in connections


@pytest.mark.parametrize(
    ("fault", "opens", "drift"),
    [
        (f"delete table {TABLE}", True, f"firewall table {TABLE}: "),
        (f"flush set {TABLE} {SET_PEERS}", False, f"firewall set {SET_PEERS}: "),
    ],
)
def test_missing_rules_are_reported_and_restored(pair: SessionPair, fault: str, opens: bool, drift: str) -> None:
    fault, drift = (text.format(vni=pair.other.record["network"]["vni"]) for text in (fault, drift))
    with reconcile_paused("agent2"):
        run_on("agent2", f"nft {fault}")
        assert send_forged_frames(pair.other) == ({PEER, *LEGITIMATE, *FORGED} if opens else LEGITIMATE)
        agent = all_targets(address("agent2"))
        assert reachable_from_container(pair.other.container_on("agent2"), agent) == (set(agent) if opens else set())
        direct = [default_address("agent2", FOREIGN)]
        with routes_through("agent2", direct):
            assert (("tcp", direct[0], PUBLISHED) in reachable_from_host("user1", all_targets(*direct))) == opens
        run = pair.repair()
    assert run.code == 0, run.output
    assert run.changed > 0
    assert f"+{drift}" in run.output
    assert opens or f"+{drift}{address('agent3')} . " in run.output
    assert send_forged_frames(pair.other) == {PEER, *LEGITIMATE}


def test_rules_survive_engine_restart_and_flush(pair: SessionPair) -> None:
    in_parallel(
        partial(run_on, "agent2", "nft flush ruleset; systemctl restart docker"),
        partial(run_on, "agent3", "systemctl restart docker"),
    )
    wait_until(lambda: all(reach_own_session(pair)))
    closed = closed_to(pair)
    pairs = zip(pair.kernels, closed, strict=True)
    assert in_parallel(*[partial(reachable_from_container, kernel, targets) for kernel, targets in pairs]) == [
        set()
    ] * len(closed)
    assert send_forged_frames(pair.other) == {PEER, *LEGITIMATE}


def test_restored_rules_cut_connections_opened_without_them(pair: SessionPair) -> None:
    line = in_container(pair.other.container_on("agent2"), "hold_connection", address("agent2"))
    with reconcile_paused("agent2"):
        run_on("agent2", f"nft flush table {TABLE}")
        command = ssh("agent2", line)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            assert process.stdout.readline() == "open\n"
            run_on("agent2", f"systemctl start {RECONCILE_AGENT}.service")
            assert process.communicate("go on\n", timeout=TIMEOUT)[0] == "silence\n"


def reach_own_session(pair: SessionPair) -> list[bool]:
    """Return, for each container, whether it reaches all of its session and an external host by all protocols."""

    def reaches_session(kernel: Kernel) -> bool:
        addresses = (mate["address"] for mate in pair.session_peers(kernel))
        targets = targets_with_ports(external_address()) + all_targets(*addresses)
        try:
            return reachable_from_container(kernel, targets) == set(targets)
        except AssertionError:
            return False

    return in_parallel(*[partial(reaches_session, kernel) for kernel in pair.kernels])
