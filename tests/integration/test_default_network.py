"""The default network of agents, shared by sessions: containers are apart there at layer 2, with and without filtering.

Each frame is sent by root of the agent in the network of a container, on an agent of each engine version.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from tests.integration.forgery import in_container
from tests.integration.frames import ethernet, fragmentation_needed
from tests.integration.internals import DEFAULT_BRIDGE, DEFAULT_NETWORK, RECONCILE_AGENT, TABLE
from tests.integration.laboratory import address, run_in, run_on, run_on_all, ssh
from tests.integration.neighbours import BETWEEN, CONTROL, GENUINE, Neighbours
from tests.integration.programs import run_line
from tests.integration.reconciliation import reconcile_paused
from tests.integration.session_requests import THREE
from tests.integration.sessions import Sessions
from tests.integration.waiting import wait_until

pytestmark = pytest.mark.isolation


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Neighbours]]:
    """Two sessions on agents of both engine versions, and what they are to each other there."""
    agents = ["agent1", "agent3"]
    with Sessions(tmp_path_factory.mktemp("default-network")) as sessions:
        request = {**THREE, "cluster_size": 2, "designated_agents": agents}
        first = sessions.start(**request, name=f"{sessions.name}-first")
        second = sessions.start(**request, name=f"{sessions.name}-second")
        yield {agent: Neighbours(agent, first.container_on(agent), second.container_on(agent)) for agent in agents}


AGENTS_OF_BOTH_ENGINES = pytest.mark.parametrize("agent", ["agent1", "agent3"])


@contextmanager
def bridged_filtering(agent: str, enabled: int) -> Iterator[None]:
    set_to = "sysctl --write net.bridge.bridge-nf-call-iptables="
    run_on(agent, f"{set_to}{enabled}")
    try:
        yield
    finally:
        run_on(agent, f"{set_to}1")


def on_ports(flags: str) -> str:
    """Return the shell line that sets flags of all ports of the default network."""
    return f"for port in $(ls /sys/class/net/{DEFAULT_BRIDGE}/brif); do bridge link set dev $port {flags}; done"


@AGENTS_OF_BOTH_ENGINES
def test_only_genuine_frames_leave_a_container(pairs: dict[str, Neighbours], agent: str) -> None:
    """Without filtering; with it, the next test and all others find them alone at their ends."""
    with bridged_filtering(agent, 0):
        assert pairs[agent].send() == {GENUINE}
    assert pairs[agent].target_answers()


@AGENTS_OF_BOTH_ENGINES
def test_without_pins_and_rules_neighbours_reach_each_other(pairs: dict[str, Neighbours], agent: str) -> None:
    """So the tests above can fail; what was taken away is restored, and nothing else is open meanwhile."""
    with bridged_filtering(agent, 0), reconcile_paused(agent):
        run_on(agent, f"nft delete table bridge backendai; {on_ports('isolated off learning on flood on')}")
        assert pairs[agent].send() >= {GENUINE, CONTROL, *BETWEEN}
    wait_until(lambda: pairs[agent].send() == {GENUINE})
    assert pairs[agent].target_answers()


@AGENTS_OF_BOTH_ENGINES
def test_forged_icmp_errors_do_not_change_path_mtus(pairs: dict[str, Neighbours], agent: str) -> None:
    pair, peer = pairs[agent], address("agent2")
    own_mac, own, (bridge_mac, _bridge) = pair.mac(pair.sender), pair.address(pair.sender), pair.bridge()
    frame = ethernet(own_mac, bridge_mac, fragmentation_needed(own, address(agent), peer, 600))
    line = in_container(pair.sender, "send_frames", "eth0", frame.hex())
    route = f"ip route get {peer}"

    def lowered() -> bool:
        run_on(agent, line)
        return "mtu 600" in run_on(agent, route)

    try:
        assert not lowered()
        with reconcile_paused(agent):
            run_on(agent, f"nft flush chain {TABLE} from_containers")
            # The forged error is one that would be believed.
            wait_until(lowered)
    finally:
        run_on(agent, "ip route flush cache")


@AGENTS_OF_BOTH_ENGINES
@pytest.mark.parametrize("missing", ["rules", "pins"])
def test_either_pins_or_rules_keep_neighbours_apart(pairs: dict[str, Neighbours], agent: str, missing: str) -> None:
    remove = {"rules": "nft delete table bridge backendai", "pins": on_ports("isolated off")}
    with bridged_filtering(agent, 0), reconcile_paused(agent):
        run_on(agent, remove[missing])
        assert not pairs[agent].send() & BETWEEN


@AGENTS_OF_BOTH_ENGINES
def test_container_restarted_from_outside_is_closed_until_its_network_is_whole(
    pairs: dict[str, Neighbours], agent: str
) -> None:
    pair = pairs[agent]
    interfaces = "ls /sys/class/net"
    pid = f"$(docker inspect --format '{{{{.State.Pid}}}}' {pair.sender['container']})"
    with bridged_filtering(agent, 0), reconcile_paused(agent):
        # The kernel removes a namespace late: its interface has the MAC that the new one needs.
        run_on(agent, f"systemd-run --unit former-namespace nsenter --target {pid} --net sleep infinity")
        run_on(agent, f"docker restart --time 1 {pair.sender['container']}")
        run_on(agent, "systemd-run --on-active 4 systemctl stop former-namespace")
        assert run_in(pair.sender, *interfaces.split()).split() == ["eth0", "lo"]
        # The rule for control frames knows pinned ports alone.
        assert pair.send() == {CONTROL}
    run_on(agent, f"systemctl start {RECONCILE_AGENT}.service")
    assert sorted(run_in(pair.sender, *interfaces.split()).split()) == ["cluster0", "eth0", "lo"]
    wait_until(lambda: "SSH-2.0" in run_on(agent, run_line("banner", pair.address(pair.sender), 22), check=False))
    assert pair.send() == {GENUINE}
    assert pair.target_answers()


@contextmanager
def narrower_card(agent: str, mtu: int) -> Iterator[None]:
    """Give the network card of an agent another MTU, and let the agent see that, as its timer would."""
    before = run_on(agent, "cat /sys/class/net/eth0/mtu").strip()
    run_on(agent, f"ip link set dev eth0 mtu {mtu} && systemctl start {RECONCILE_AGENT}.service")
    try:
        yield
    finally:
        run_on(agent, f"ip link set dev eth0 mtu {before} && systemctl start {RECONCILE_AGENT}.service")


@AGENTS_OF_BOTH_ENGINES
def test_links_follow_the_way_out_of_their_agent_under_an_open_connection(
    pairs: dict[str, Neighbours], agent: str
) -> None:
    kernel, port, part = pairs[agent].sender, 8129, 300_000
    mtus = f"cat /sys/class/net/{DEFAULT_BRIDGE}/mtu /sys/class/net/{DEFAULT_BRIDGE}/brif/*/../mtu"

    def seen() -> set[str]:
        return {run_in(kernel, "cat", "/sys/class/net/eth0/mtu").strip(), *run_on(agent, mtus).split()}

    network = run_on(agent, f"docker network inspect {DEFAULT_NETWORK} --format '{{{{.Id}}}}'")
    started = run_on(agent, f"docker inspect --format '{{{{.State.StartedAt}}}}' {kernel['container']}")
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with ExitStack() as stack:
        receiver = stack.enter_context(subprocess.Popen(ssh("user1", run_line("receive", port)), **pipes))
        assert receiver.stdout
        assert receiver.stdout.readline() == "ready\n"
        sends = ssh(agent, in_container(kernel, "send_parts", address("user1"), port, part))
        sender = stack.enter_context(subprocess.Popen(sends, **pipes))
        assert sender.stdin
        assert sender.stdout
        to_sender, from_sender = sender.stdin, sender.stdout

        def send() -> str:
            print(file=to_sender, flush=True)
            return from_sender.readline()

        assert send() == "sent\n"
        with narrower_card(agent, 1400):
            assert seen() == {"1400"}
            assert send() == "sent\n"
        assert seen() == {run_on(agent, "cat /sys/class/net/eth0/mtu").strip()}
        assert send() == "sent\n"
        to_sender.close()
        assert receiver.stdout.readline() == f"{3 * part}\n"
    # Nothing was made anew for it.
    assert run_on(agent, f"docker network inspect {DEFAULT_NETWORK} --format '{{{{.Id}}}}'") == network
    assert run_on(agent, f"docker inspect --format '{{{{.State.StartedAt}}}}' {kernel['container']}") == started


@AGENTS_OF_BOTH_ENGINES
def test_what_an_agent_must_have_is_mended_by_its_timer(pairs: dict[str, Neighbours], agent: str) -> None:
    forwarding = f"/proc/sys/net/ipv4/conf/{DEFAULT_BRIDGE}/forwarding"
    gateway = f"ip -brief -4 address show dev {DEFAULT_BRIDGE}"
    before = run_on(agent, gateway).split()
    with reconcile_paused(agent):
        run_on(agent, f"sysctl --write net.ipv4.ip_forward=0 && ip address flush dev {DEFAULT_BRIDGE}")
    assert run_on(agent, f"cat /proc/sys/net/ipv4/ip_forward {forwarding}").split() == ["1", "1"]
    assert run_on(agent, gateway).split() == before
    assert pairs[agent].send() == {GENUINE}


@pytest.mark.usefixtures("pairs")
def test_nothing_of_ended_containers_stays() -> None:
    pins = run_on_all(f"ip neigh show dev {DEFAULT_BRIDGE} nud permanent | wc -l")
    containers = run_on_all("docker ps --quiet --filter label=ai.backend.session-id | wc -l")
    assert pins == containers


@AGENTS_OF_BOTH_ENGINES
def test_rules_load_although_a_port_has_vanished(pairs: dict[str, Neighbours], agent: str) -> None:
    """A container may end between the moment when its port is read and that when the rules are loaded."""
    table = "bridge backendai"
    with reconcile_paused(agent):
        run_on(agent, f"nft add element {table} ports '{{ \"vanished0\" }}'")
        run_on(agent, f"(echo delete table {table}; nft list table {table}) > /tmp/rules && nft -f /tmp/rules")
        assert "vanished0" in run_on(agent, f"rm /tmp/rules; nft list set {table} ports")
    assert "vanished0" not in run_on(agent, f"nft list set {table} ports")
    assert pairs[agent].target_answers()
