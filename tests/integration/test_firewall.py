"""Only control nodes, agents and gateways have access; probed from ``user1``, which shares the agents' network.

test_isolation.py shows that a scan finds open ports without the firewall.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.integration.containers import can_log_in, default_address
from tests.integration.firewalls import apply_firewall, temporary_firewall
from tests.integration.frames import datagram, ethernet
from tests.integration.internals import (
    CHAIN_DROP_FORGED,
    FIREWALL_STATE,
    LIST_PUBLISHED_PORTS,
    RECONCILE_AGENT,
    ROLLBACK_TIMERS,
    TABLE,
    UNIT_FIREWALL,
)
from tests.integration.laboratory import (
    AGENTS,
    address,
    in_parallel,
    run_on,
    run_on_all,
    run_playbook,
)
from tests.integration.probes import (
    PUBLISHED,
    all_targets,
    control_node_address,
    mac,
    reachable_from_host,
    read_banner,
    routes_through,
    scan,
)
from tests.integration.programs import run_line
from tests.integration.reboots import reboot, takes_sessions
from tests.integration.reconciliation import reconcile_paused
from tests.integration.session_requests import THREE
from tests.integration.sessions import Sessions, StartedSession
from tests.integration.waiting import wait_until

pytestmark = pytest.mark.isolation

UNUSED_ADDRESS = "198.51.100.1"
FOREIGN = "firewall-foreign"
WEB = {"name": "web", "port": 8000, "command": "cd /etc && python3 -m http.server 8000"}
STATE = f"cat {FIREWALL_STATE}; nft --stateless list table {TABLE}"
#: Stops the rollback timers, for a minute.
NO_TIMERS = f"""
for n in $(seq 600); do
    for timer in $(systemctl list-units --plain --no-legend '{ROLLBACK_TIMERS}' | cut -d ' ' -f 1); do
        systemctl stop $timer && echo stopped $timer
    done
    sleep 0.1
done
"""


@pytest.fixture(scope="module")
def access_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The path of the file with the session's access."""
    return tmp_path_factory.mktemp("access") / "access.json"


@pytest.fixture(scope="module")
def session(access_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedSession]:
    """A session with an app on all three agents, and on each a foreign container with a published port."""
    remove = f"docker rm --force {FOREIGN}"
    foreign = f"docker run --detach --restart always --name {FOREIGN} --publish {PUBLISHED}:{PUBLISHED} lab/python:1"
    with Sessions(tmp_path_factory.mktemp("firewall")) as sessions:
        try:
            run_on_all(f"{remove} 2> /dev/null; {foreign} python3 -m http.server {PUBLISHED}")
            yield sessions.start(**THREE, apps=[WEB], access_path=str(access_path))
        finally:
            run_on_all(remove, check=False)


def published(agent: str) -> dict[int, int]:
    """Return the session ports that an agent publishes: agent port by container port."""
    listed = run_on(agent, LIST_PUBLISHED_PORTS)
    return {int(inner): int(outer) for outer, inner in re.findall(r":(\d+)->(\d+)/tcp", listed)}


def fetch(host: str, url: str) -> str:
    """Return the content that a host gets from a URL; empty on failure."""
    return run_on(host, f"{run_line('fetch', url)} 2>/dev/null || true").strip()


def inner_addresses(session: StartedSession, agent: str) -> list[str]:
    """Return the addresses of all containers on an agent, in all their networks."""
    kernel = session.container_on(agent)
    foreign = run_on(agent, f"docker inspect --format '{{{{.NetworkSettings.IPAddress}}}}' {FOREIGN}").strip()
    return [kernel["address"], default_address(agent, kernel["container"]), foreign]


def assert_nothing_is_open(session: StartedSession, ports: str, ssh_port: int) -> None:
    """Scan agents and containers from outside, agent by agent, since all default networks have the same subnet.

    The gateway is scanned too: its open ports show that the scan works.
    """
    gateway = address("gateway1")
    expected = {(gateway, "443/open"), (gateway, f"{ssh_port}/open")}
    found: set[tuple[str, str]] = set()

    def scan_works() -> bool:
        # A fast scan may lose packets.
        found.clear()
        found.update(scan([gateway, *map(address, AGENTS)], ports))
        return expected <= found

    wait_until(scan_works)
    assert found == expected
    for agent in AGENTS:
        inner = inner_addresses(session, agent)
        with routes_through(agent, inner):
            assert scan(inner, ports) == set()
            assert reachable_from_host("user1", all_targets(address(agent), *inner)) == set()


def ssh_port(access_path: Path) -> int:
    """Return the gateway port of main1's sshd."""
    (access,) = json.loads(access_path.read_text())
    return int(access["ssh"]["port"])


def test_foreign_containers_do_not_reach_their_agent(session: StartedSession) -> None:
    agent = session.kernels[0]["agent"]
    exec_in_foreign = f"docker exec {FOREIGN}"
    url = f"http://{address(agent)}:{PUBLISHED}/"
    for line in (run_line("banner", address(agent), 22), run_line("fetch", url)):
        assert "timed out" in run_on(agent, f"{exec_in_foreign} {line}", check=False)


def test_only_control_nodes_reach_sshd_and_gateways_no_other_port() -> None:
    targets = [("tcp", address(agent), port) for agent in AGENTS for port in (22, PUBLISHED)]
    sources = ("gateway1", "user1", "agent1")
    others = [[target for target in targets if target[1] != address(host)] for host in sources]
    assert (
        in_parallel(*[partial(reachable_from_host, *pair) for pair in zip(sources, others, strict=True)]) == [set()] * 3
    )
    pings = [("icmp", address("agent1"), 0)]
    for host in ("gateway1", "manager1", "agent2"):
        assert reachable_from_host(host, pings) == set(pings)


@pytest.mark.usefixtures("session")
def test_ipv6_is_closed_and_firewall_allow_opens_ports() -> None:
    inner = {host: f"fd00:77::{number}" for number, host in enumerate(("agent1", "agent2", "user1"), 1)}
    url = f"http://{address('agent1')}:{PUBLISHED}/"
    allow = [{"protocol": "tcp", "ports": [str(PUBLISHED)], "sources": [address("user1")]}]
    try:
        for host, ipv6_address in inner.items():
            run_on(
                host,
                f"sysctl -qw net.ipv6.conf.eth0.disable_ipv6=0; ip -6 address add {ipv6_address}/64 dev eth0 nodad",
            )
        assert "timed out" in read_banner("user1", inner["agent1"], 22)
        with temporary_firewall(ssh_sources=[control_node_address(), "fd00:77::/64"], allow=allow):
            assert read_banner("user1", inner["agent1"], 22).startswith("SSH-2.0")
            assert "Directory listing" in fetch("user1", url)
            assert fetch("gateway1", url) == ""
        assert fetch("user1", url) == ""
    finally:
        for host, ipv6_address in inner.items():
            run_on(host, f"ip -6 address del {ipv6_address}/64 dev eth0", check=False)


def dropped(agent: str, chain: str) -> int:
    """Return the number of packets that a drop chain of an agent has counted."""
    listed = json.loads(run_on(agent, f"nft --json list chain {TABLE} {chain}"))["nftables"]
    parts = [part for entry in listed for part in entry.get("rule", {}).get("expr", [])]
    return sum(int(part["counter"]["packets"]) for part in parts if "counter" in part)


def test_external_packets_with_container_addresses_are_dropped(session: StartedSession) -> None:
    """Otherwise forged packets could pass as replies to a container."""
    kernel = session.kernels[0]
    agent = kernel["agent"]
    before = dropped(agent, CHAIN_DROP_FORGED)
    senders = [default_address(agent, kernel["container"]), kernel["address"], address(agent)]
    packets = [datagram(sender, address("user1"), 40000, b"spoofed") for sender in senders]
    frames = [ethernet(mac("user1"), mac(agent), packet).hex() for packet in packets]
    run_on("user1", run_line("send_frames", "eth0", *frames))
    assert dropped(agent, CHAIN_DROP_FORGED) >= before + 2


def test_reconcile_rolls_back_without_the_timer() -> None:
    """Rules that lock out every control node; the timer that would end the trial is stopped as soon as it starts."""
    before = run_on("agent2", STATE)
    run_on(
        "agent2",
        f"systemctl stop '{ROLLBACK_TIMERS}'; systemd-run --quiet --unit=no-timers sh -c {shlex.quote(NO_TIMERS)}",
    )
    try:
        # SSH times out before the rollback, on a busy machine too.
        locked = {"ssh_sources": [UNUSED_ADDRESS], "confirm_timeout": 30}
        assert apply_firewall(locked, "--timeout", "4", "--limit", "agent2").returncode != 0
        wait_until(lambda: run_on("agent2", STATE, check=False) == before)
        assert "stopped backendai-firewall-" in run_on("agent2", "journalctl --unit no-timers --output cat --boot")
    finally:
        run_on("agent2", "systemctl stop no-timers", check=False)


def test_rules_follow_a_reload_and_restart_of_nftables() -> None:
    """The unit of the rules loads them again, without the reconciliation."""

    def has_rules() -> bool:
        return "chain host_firewall" in run_on("agent1", f"nft list table {TABLE}", check=False)

    with reconcile_paused("agent1"):
        try:
            for action in ("reload", "restart"):
                run_on("agent1", "systemctl start nftables; nft flush ruleset")
                assert not has_rules()
                run_on("agent1", f"systemctl {action} nftables")
                wait_until(has_rules)
        finally:
            run_on("agent1", f"systemctl stop nftables; systemctl start {UNIT_FIREWALL}; systemctl restart docker")
    wait_until(lambda: takes_sessions("agent1"))


def test_full_scan_is_empty_after_restart_reboot_and_flush(
    session: StartedSession, access_path: Path, tmp_path: Path
) -> None:
    is_back = reboot("agent3")
    in_parallel(
        partial(run_on, "agent1", "systemctl restart docker"),
        partial(
            run_on, "agent2", f"nft flush ruleset; systemctl start {RECONCILE_AGENT}.service; systemctl restart docker"
        ),
    )
    wait_until(lambda: is_back() and takes_sessions("agent3"))
    main, *subs = session.kernels
    wait_until(lambda: all(can_log_in(main, sub) for sub in subs))
    # The rules are loaded before any service listens.
    began = "systemctl show --property=ActiveEnterTimestampMonotonic --value "
    rules_at, *others = [int(run_on("agent3", began + unit)) for unit in (UNIT_FIREWALL, "ssh", "docker")]
    assert 0 < rules_at < min(others)
    # It changes nothing, so the ports were closed before it.
    provisioned = run_playbook("provision_agents", tmp_path, {}, "--tags", "firewall")
    assert (provisioned.code, provisioned.changed) == (0, 0), provisioned.output
    assert_nothing_is_open(session, "1-65535", ssh_port(access_path))
