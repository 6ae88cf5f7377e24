"""Sessions are kept apart: every row of the table in docs/security.md, looked at from inside of containers.

Whatever comes back counts as reached: a connection, a refusal, an ICMP error. Only silence is closed.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from ipaddress import ip_address
from typing import Any

import pytest

from tests.integration.conftest import Sessions
from tests.integration.firewalls import firewall
from tests.integration.frames import datagram, ethernet, vxlan
from tests.integration.laboratory import AGENTS, TIMEOUT, Run, at_once, host_variables, inside, on, ssh

Kernel = dict[str, Any]
Target = tuple[str, str, int]

SMALL = {"cluster_mode": "multi-node", "agent_selection": "dispersed", "resources": {"cpu": 1, "mem": "128m"}}
WIDE = {**SMALL, "cluster_size": 3}
OTHER = {**SMALL, "cluster_size": 2, "designated_agents": ["agent2", "agent3"]}
ADDRESS = {host: host_variables(host)["ansible_host"] for host in (*AGENTS, "gateway1", "user1")}
WORLD, METADATA = ADDRESS["user1"], "169.254.169.254"
FOREIGN, PUBLISHED = "isolation-foreign", 8099
REFUSALS = "sysctl --write net.ipv4.icmp_ratelimit"
TUNNEL, IN_CONTAINER, ON_AGENT, IN_WORLD = 4789, 9997, 9998, 9999

PROBE = """
import concurrent.futures, errno, json, socket, sys

def reached(target):
    protocol, address, port = target
    kinds = {"tcp": (socket.SOCK_STREAM, 0), "udp": (socket.SOCK_DGRAM, 0), "icmp": (socket.SOCK_DGRAM, 1)}
    with socket.socket(socket.AF_INET, *kinds.get(protocol, (socket.SOCK_RAW, 253))) as probe:
        probe.settimeout(1.5)
        try:
            probe.connect((address, port))
            if protocol != "tcp":
                probe.send(bytes([8, 0, 0, 0, 0, 1, 0, 1]))
                probe.recv(64)
        except OSError as error:
            return error.errno in (errno.ECONNREFUSED, errno.ENOPROTOOPT)
    return True

targets = json.loads(sys.argv[1])
with concurrent.futures.ThreadPoolExecutor(100) as pool:
    print(json.dumps([target for target, there in zip(targets, pool.map(reached, targets)) if there]))
"""

LISTEN = """
import json, socket, sys, time

with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as listener:
    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    listener.bind(("::", int(sys.argv[1])))
    print("ready", flush=True)
    heard, until = set(), time.monotonic() + 4
    while (left := until - time.monotonic()) > 0:
        listener.settimeout(left)
        try:
            heard.add(listener.recv(2048).decode())
        except TimeoutError:
            break
print(json.dumps(sorted(heard)))
"""

HOLD = """
import socket, sys

with socket.create_connection((sys.argv[1], 22), timeout=3) as held:
    held.recv(256)
    print("open", flush=True)
    sys.stdin.readline()
    held.sendall(b"hello\\r\\n")
    try:
        print(held.recv(256))
    except TimeoutError:
        print("silence")
"""

SEND = """
import socket, sys

with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
    sender.bind((sys.argv[1], 0))
    for frame in sys.argv[2:]:
        sender.send(bytes.fromhex(frame))
"""


@dataclasses.dataclass(frozen=True)
class Apart:
    """Two sessions: ``wide`` lies on all agents, ``other`` on one of each engine, and ``repair`` asks for it again."""

    wide: dict[str, Any]
    other: dict[str, Any]
    repair: Callable[[], Run]

    @property
    def kernels(self) -> list[Kernel]:
        return [*self.wide["kernels"], *self.other["kernels"]]

    def mates(self, kernel: Kernel) -> list[Kernel]:
        """Return the containers of the same session, itself among them."""
        return next(one["kernels"] for one in (self.wide, self.other) if kernel in one["kernels"])

    def strangers(self, kernel: Kernel) -> list[Kernel]:
        """Return the containers of the other session."""
        return [one for one in self.kernels if one not in self.mates(kernel)]

    def of_other(self, agent: str) -> Kernel:
        return next(one for one in self.other["kernels"] if one["agent"] == agent)


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apart]:
    """Two sessions, a foreign container with a published port on every agent, and an answer at the metadata address.

    There is no firewall: what keeps sessions apart does so without one.
    """
    made = Sessions(tmp_path_factory.mktemp("isolation"))
    foreign = (
        f"docker run --detach --restart always --name {FOREIGN} --network backendai-default"
        f" --publish {PUBLISHED}:{PUBLISHED} lab/python:1 python3 -m http.server {PUBLISHED}"
    )
    with firewall(enabled=False):
        yield from laid_out(made, foreign)


def laid_out(made: Sessions, foreign: str) -> Iterator[Apart]:
    """Make all that, and take it away again."""
    try:
        at_once(*[partial(on, agent, foreign) for agent in AGENTS])
        # Refusals are counted here, and hosts send few of them.
        at_once(*[partial(on, host, f"{REFUSALS}=0") for host in (*AGENTS, "user1")])
        on("user1", f"ip address add {METADATA}/32 dev eth0")
        at_once(*[partial(on, agent, f"ip route add {METADATA} dev eth0") for agent in AGENTS])
        wide = made.create(**WIDE, name=f"{made.name}-wide")
        repair = partial(made.create, "--diff", **OTHER, name=f"{made.name}-other")
        other = repair()
        assert (wide.code, other.code) == (0, 0), wide.output + other.output
        yield Apart(wide.record, other.record, repair)
    finally:
        made.end()
        undo = f"docker rm --force {FOREIGN}; ip route del {METADATA}; {REFUSALS}=1000"
        at_once(*[partial(on, agent, undo, check=False) for agent in AGENTS])
        on("user1", f"ip address del {METADATA}/32 dev eth0; {REFUSALS}=1000", check=False)


def ways(*addresses: str) -> list[Target]:
    """Return every way to reach hosts: open and closed ports, ICMP, and an IP protocol that nobody speaks."""
    kinds = (("tcp", 22), ("tcp", PUBLISHED), ("udp", 9), ("icmp", 0), ("other", 0))
    return [(protocol, address, port) for address in addresses for protocol, port in kinds]


def with_ports(*addresses: str) -> list[Target]:
    """Return the ways by which hosts tell who asked: without ports, translation and tracking take all for one."""
    return [way for way in ways(*addresses) if way[0] != "other"]


def answers(printed: str) -> set[Target]:
    return {(one[0], one[1], one[2]) for one in json.loads(printed)}


def reached(kernel: Kernel, targets: Sequence[Target]) -> set[Target]:
    """Return those of the targets that answer a container, whoever its user is."""
    return answers(inside(kernel, "python3", "-c", PROBE, json.dumps(targets), user="root"))


def reached_by_host(host: str, targets: Sequence[Target]) -> set[Target]:
    """Return those of the targets that answer a host."""
    return answers(on(host, shlex.join(["python3", "-c", PROBE, json.dumps(targets)])))


def addresses_of(agent: str) -> list[str]:
    """Return the addresses of an agent, those of its bridges among them."""
    links = json.loads(on(agent, "ip -j -4 address show scope global"))
    return [entry["local"] for link in links for entry in link["addr_info"]]


def default_address(agent: str, container: str) -> str:
    """Return the address of a container on the agent's default network; it may change with every start."""
    form = '{{(index .NetworkSettings.Networks "backendai-default").IPAddress}}'
    return on(agent, shlex.join(["docker", "inspect", "--format", form, container])).strip()


def neighbours(apart: Apart, kernel: Kernel) -> list[str]:
    """Return the addresses on the default network of what else is there on the same agent, of no session of its own."""
    names = [one["container"] for one in apart.strangers(kernel) if one["agent"] == kernel["agent"]]
    return [default_address(kernel["agent"], name) for name in (*names, FOREIGN)]


ROWS: dict[str, Callable[[Apart, Kernel], list[str]]] = {
    "their own agent": lambda _apart, kernel: addresses_of(kernel["agent"]),
    "other agents": lambda _apart, kernel: [ADDRESS[agent] for agent in AGENTS if agent != kernel["agent"]],
    "other sessions": lambda apart, kernel: [one["address"] for one in apart.strangers(kernel)],
    "neighbours on the default network": neighbours,
    "the metadata service": lambda _apart, _kernel: [METADATA],
}


@pytest.mark.parametrize("row", ROWS)
def test_containers_reach_the_world_and_not(apart: Apart, row: str) -> None:
    closed = [ways(*ROWS[row](apart, kernel)) for kernel in apart.kernels]
    asked = zip(apart.kernels, closed, strict=True)
    seen = at_once(*[partial(reached, kernel, with_ports(WORLD) + targets) for kernel, targets in asked])
    assert seen == [set(with_ports(WORLD))] * len(apart.kernels)
    assert all(closed)


def test_what_is_closed_to_containers_is_open_to_others(apart: Apart) -> None:
    agents = ways(*(ADDRESS[agent] for agent in AGENTS))
    assert reached_by_host("user1", agents) == set(agents)
    for agent in AGENTS:
        names = [one["container"] for one in apart.kernels if one["agent"] == agent]
        here = with_ports(METADATA, *addresses_of(agent), *(default_address(agent, name) for name in (*names, FOREIGN)))
        assert reached_by_host(agent, here) == set(here)


@pytest.mark.usefixtures("apart")
def test_published_ports_answer_users_gateways_and_agents() -> None:
    fetch = "import sys, urllib.request; [print(urllib.request.urlopen(url, timeout=5).status) for url in sys.argv[1:]]"
    urls = [f"http://{ADDRESS[agent]}:{PUBLISHED}/" for agent in AGENTS]
    line = shlex.join(["python3", "-c", fetch, *urls])
    assert at_once(*[partial(on, host, line) for host in ("user1", "gateway1", *AGENTS)]) == ["200\n" * 3] * 5


@pytest.mark.parametrize("agent", AGENTS)
def test_nobody_outside_reaches_containers_but_through_published_ports(apart: Apart, agent: str) -> None:
    kernels = [one for one in apart.kernels if one["agent"] == agent]
    names = [FOREIGN, *(one["container"] for one in kernels)]
    addresses = [*(default_address(agent, name) for name in names), *(one["address"] for one in kernels)]
    with routed_through(agent, addresses):
        assert reached_by_host("user1", ways(*addresses)) == set()


@pytest.mark.parametrize("bridged_filtering", [0, 1])
def test_a_session_reaches_itself_in_every_way_and_no_neighbour_whatever_is_filtered_on_the_host(
    apart: Apart, bridged_filtering: int
) -> None:
    set_to = "sysctl --write net.bridge.bridge-nf-call-iptables="
    closed = [ways(*neighbours(apart, kernel)) for kernel in apart.kernels]
    try:
        at_once(*[partial(on, agent, f"{set_to}{bridged_filtering}") for agent in AGENTS])
        assert alone_with_itself(apart) == [True] * len(apart.kernels)
        asked = zip(apart.kernels, closed, strict=True)
        assert at_once(*[partial(reached, kernel, targets) for kernel, targets in asked]) == [set()] * len(closed)
    finally:
        at_once(*[partial(on, agent, f"{set_to}1") for agent in AGENTS])


def test_only_peers_of_a_session_send_into_its_tunnel_and_containers_send_under_their_own_name(apart: Apart) -> None:
    assert arrived(apart) == {"a peer of the session", "a container", "a host"}


def test_containers_send_nothing_that_could_be_a_tunnels(apart: Apart) -> None:
    tunnel = [("udp", WORLD, TUNNEL)]
    assert reached_by_host("agent2", tunnel) == set(tunnel)
    assert at_once(*[partial(reached, kernel, tunnel) for kernel in apart.kernels]) == [set()] * len(apart.kernels)


@pytest.mark.parametrize(
    ("fault", "opens", "drift"),
    [
        ("delete table inet backendai", True, "firewall table inet backendai: "),
        ("flush set inet backendai pinned4", False, f"firewall set pinned4: {ADDRESS['agent1']} . "),
    ],
)
def test_rules_that_are_gone_are_told_and_put_back(apart: Apart, fault: str, opens: bool, drift: str) -> None:
    with nobody_heals("agent2"):
        on("agent2", f"nft {fault}")
        assert arrived(apart) == ({"a container", "a host", *FORGED} if opens else {"a container", "a host"})
        agent = ways(ADDRESS["agent2"])
        assert reached(apart.of_other("agent2"), agent) == (set(agent) if opens else set())
        direct = [default_address("agent2", FOREIGN)]
        with routed_through("agent2", direct):
            assert (("tcp", direct[0], PUBLISHED) in reached_by_host("user1", ways(*direct))) == opens
        run = apart.repair()
    assert run.code == 0, run.output
    assert run.changed > 0
    assert f"+{drift}" in run.output
    assert arrived(apart) == {"a peer of the session", "a container", "a host"}


def test_rules_hold_after_the_engine_restarts_and_come_back_when_all_are_flushed(apart: Apart) -> None:
    at_once(
        partial(on, "agent2", "nft flush ruleset; systemctl restart docker"),
        partial(on, "agent3", "systemctl restart docker"),
    )
    until = time.monotonic() + 60
    while not all(alone_with_itself(apart)):
        assert time.monotonic() < until, "the sessions did not come back"
    closed = [[*ways(*(one for row in ROWS.values() for one in row(apart, kernel)))] for kernel in apart.kernels]
    asked = zip(apart.kernels, closed, strict=True)
    assert at_once(*[partial(reached, kernel, targets) for kernel, targets in asked]) == [set()] * len(closed)
    assert arrived(apart) == {"a peer of the session", "a container", "a host"}


def test_what_was_opened_while_the_rules_were_away_is_closed_with_them(apart: Apart) -> None:
    line = in_container(apart.of_other("agent2"), HOLD, ADDRESS["agent2"], options="--interactive")
    with nobody_heals("agent2"):
        on("agent2", "nft flush table inet backendai")
        command = ssh("agent2", line)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as held:
            assert held.stdout
            assert held.stdout.readline() == "open\n"
            on("agent2", "systemctl start backendai-heal.service")
            assert held.communicate("go on\n", timeout=TIMEOUT)[0] == "silence\n"


def alone_with_itself(apart: Apart) -> list[bool]:
    """Return, for each container, whether it reaches all of its session and the world in every way."""
    open_to = [with_ports(WORLD) + ways(*(one["address"] for one in apart.mates(kernel))) for kernel in apart.kernels]

    def look(kernel: Kernel, targets: list[Target]) -> bool:
        try:
            return reached(kernel, targets) == set(targets)
        except AssertionError:
            return False

    return at_once(*[partial(look, kernel, targets) for kernel, targets in zip(apart.kernels, open_to, strict=True)])


FORGED = {
    "a peer of the session",
    "a stranger",
    "a stranger as a peer",
    "a stranger as a gateway",
    "an agent of another session",
    "a container on its session's bridge",
    "a container over IPv6",
    "a container to everybody",
    "a container as somebody else",
}
"""What arrives where the rules are gone, beside what always does."""


def arrived(apart: Apart) -> set[str]:
    """Send frames under true and false names and return who was heard: in a container, on agent2, in the world."""
    target, peer = apart.of_other("agent2"), apart.of_other("agent3")
    listeners = {
        "agent2": [in_container(target, LISTEN, IN_CONTAINER), in_python(LISTEN, ON_AGENT)],
        "user1": [in_python(LISTEN, IN_WORLD)],
    }
    frames = [*into_the_tunnel(apart, target, peer), *out_of_the_container(apart, target)]
    with ExitStack() as stack:
        listening = [
            stack.enter_context(subprocess.Popen(ssh(host, line), stdout=subprocess.PIPE, text=True))
            for host, lines in listeners.items()
            for line in lines
        ]
        assert [one.stdout and one.stdout.readline() for one in listening] == ["ready\n"] * 3
        at_once(*[partial(on, host, line) for host, line in frames])
        return {name for one in listening for name in json.loads(one.communicate(timeout=TIMEOUT)[0])}


def into_the_tunnel(apart: Apart, target: Kernel, peer: Kernel) -> list[tuple[str, str]]:
    """Return the hosts that send VXLAN datagrams to agent2, each with the line that does."""
    claimed = {
        "agent3": {"agent3": "a peer of the session"},
        "user1": {"user1": "a stranger", "agent3": "a stranger as a peer", "gateway1": "a stranger as a gateway"},
        "agent1": {"agent1": "an agent of another session"},
    }

    def frame(host: str, sender: str, name: str) -> str:
        inner = datagram(peer["address"], target["address"], IN_CONTAINER, name.encode())
        carried = vxlan(apart.other["network"]["vni"], ethernet(session_mac(peer), session_mac(target), inner))
        outer = datagram(ADDRESS[sender], ADDRESS["agent2"], TUNNEL, carried)
        return ethernet(mac(host), mac("agent2"), outer).hex()

    return [
        (host, in_python(SEND, "eth0", *(frame(host, sender, name) for sender, name in named.items())))
        for host, named in claimed.items()
    ]


def out_of_the_container(apart: Apart, sender: Kernel) -> list[tuple[str, str]]:
    """Return the lines with which a container on agent2, and a host, send to the agent itself and to the world."""
    bridges = {link["ifname"]: link for link in json.loads(on("agent2", "ip -j address show type bridge"))}
    session, default = bridges[f"bai-{apart.other['id'].replace('-', '')[:10]}"], bridges["backendai0"]
    local = next(entry["local"] for entry in default["addr_info"] if entry["family"] == "inet6")
    own = default_address("agent2", sender["container"])
    on_cluster0 = [
        datagram(sender["address"], ADDRESS["agent2"], ON_AGENT, b"a container on its session's bridge"),
    ]
    on_eth0 = [
        datagram("fe80::1", local, ON_AGENT, b"a container over IPv6"),
        datagram(own, "255.255.255.255", ON_AGENT, b"a container to everybody"),
        datagram(own, WORLD, IN_WORLD, b"a container"),
        datagram(ADDRESS["gateway1"], WORLD, IN_WORLD, b"a container as somebody else"),
    ]

    def sent(interface: str, bridge: dict[str, Any], packets: Sequence[bytes]) -> tuple[str, str]:
        frames = [ethernet(session_mac(sender), bridge["address"], packet).hex() for packet in packets]
        return "agent2", in_container(sender, SEND, interface, *frames)

    hello = f"import socket; socket.socket(type=2).sendto(b'a host', ('{ADDRESS['agent2']}', {ON_AGENT}))"
    return [sent("cluster0", session, on_cluster0), sent("eth0", default, on_eth0), ("user1", in_python(hello))]


@functools.cache
def mac(host: str) -> str:
    """Return the MAC that a host has in the agents' network."""
    return on(host, "cat /sys/class/net/eth0/address").strip()


def session_mac(kernel: Kernel) -> str:
    """Return the MAC that a container has in its session: its address says it."""
    return f"02:ba:{ip_address(kernel['address']).packed.hex(':')}"


def in_python(program: str, *words: object) -> str:
    """Return the shell line that runs a program on a host."""
    return shlex.join(["python3", "-c", program, *map(str, words)])


def in_container(kernel: Kernel, program: str, *words: object, options: str = "") -> str:
    """Return the shell line that runs a program as root in a container of that host."""
    return f"docker exec --user root {options} {kernel['container']} {in_python(program, *words)}"


@contextmanager
def routed_through(agent: str, addresses: Sequence[str]) -> Iterator[None]:
    """Let user1 send what is for these addresses to an agent."""
    on("user1", "; ".join(f"ip route add {address} via {ADDRESS[agent]}" for address in addresses))
    try:
        yield
    finally:
        on("user1", "; ".join(f"ip route del {address}" for address in addresses))


@contextmanager
def nobody_heals(agent: str) -> Iterator[None]:
    """Keep an agent from putting its rules right by itself."""
    on(agent, "systemctl stop backendai-heal.timer backendai-heal.service")
    try:
        yield
    finally:
        on(agent, "systemctl start backendai-heal.timer")
