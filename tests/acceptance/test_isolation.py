"""What a container, a neighbour and an outsider reach: the shared session on all agents, another one on two of them.

Each probe tries open and closed TCP ports, UDP, ICMP and an unused protocol; any answer counts as reached.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

import pytest

from tests.acceptance.conftest import Training
from tests.acceptance.hosts import answers_ssh, containers, curl
from tests.integration.containers import default_address
from tests.integration.forgery import IN_CONTAINER, TUNNEL, collect_datagrams, listen_in, session_mac
from tests.integration.frames import datagram, ethernet, vxlan
from tests.integration.internals import session_link
from tests.integration.laboratory import AGENTS, Kernel, address, in_parallel, run_in, run_on, run_on_all
from tests.integration.neighbours import GENUINE, Neighbours
from tests.integration.probes import (
    Target,
    all_targets,
    list_addresses,
    mac,
    reachable_from_container,
    reachable_from_host,
    routes_through,
    scan,
    targets_with_ports,
)
from tests.integration.programs import run_line
from tests.integration.session_requests import TWO
from tests.integration.sessions import StartedSession, started_session
from tests.integration.waiting import wait_until

#: Where clouds keep what they say of machines, and the credentials of tasks.
METADATA = ("169.254.169.254", "169.254.170.2")
OUTSIDE = "user1"
#: Ports of services, of Docker, and those that agents publish and gateways listen on.
PORTS = "22,80,111,443,2375-2377,4789,7946,8000,8080,30000-32000"


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedSession]:
    """A session of somebody else, on two of the agents, of both engine versions."""
    folder = tmp_path_factory.mktemp("other")
    with started_session(folder, **TWO, designated_agents=["agent2", "agent3"]) as session:
        yield session


@pytest.fixture(scope="module")
def metadata() -> Iterator[None]:
    """Put a host at the addresses where clouds keep credentials."""

    def change(how: str) -> None:
        run_on_all(" && ".join(f"ip route {how} {each} dev eth0" for each in METADATA))
        run_on(OUTSIDE, " && ".join(f"ip address {how} {each}/32 dev eth0" for each in METADATA))

    change("add")
    yield
    change("del")


def published(agent: str) -> dict[int, int]:
    """Return the port on the agent of each port that its containers publish, from docker."""
    listed = run_on(agent, "docker ps --format '{{.Ports}}' --filter name=^backendai-")
    return {int(inner): int(outer) for outer, inner in re.findall(r":(\d+)->(\d+)/tcp", listed)}


@pytest.mark.usefixtures("metadata")
def test_a_container_reaches_no_agent_no_other_session_and_no_metadata(train: Training, other: StartedSession) -> None:
    main = train.session.kernels[0]
    outer: list[Target] = [("tcp", address(main["agent"]), port) for port in published(main["agent"]).values()]
    assert len(outer) >= 3
    # Of gateways, which are open to the world, containers do not reach the sshd; of managers, nothing.
    outer += [("tcp", address("gateway1"), 22), *all_targets(address("manager1"))]

    def closed_to(kernel: Kernel, strangers: list[Kernel]) -> list[Target]:
        neighbours = [
            default_address(kernel["agent"], stranger["container"])
            for stranger in strangers
            if stranger["agent"] == kernel["agent"]
        ]
        agents = [*list_addresses(kernel["agent"]), *map(address, AGENTS)]
        return [*all_targets(*agents, *neighbours, *(each["address"] for each in strangers), *METADATA), *outer]

    mine, theirs = train.session.container_on("agent3"), other.kernels[0]
    probes = [(mine, closed_to(mine, other.kernels)), (theirs, closed_to(theirs, train.session.kernels))]
    world = targets_with_ports(address(OUTSIDE))
    reached = in_parallel(*[partial(reachable_from_container, kernel, [*world, *closed]) for kernel, closed in probes])
    assert reached == [{*world}] * 2


def test_only_genuine_frames_leave_a_container(train: Training, other: StartedSession) -> None:
    agent = other.kernels[0]["agent"]
    pair = Neighbours(agent, train.session.container_on(agent), other.kernels[0])
    assert pair.send() == {GENUINE}
    assert pair.target_answers()


@pytest.mark.usefixtures("train")
def test_a_tunnel_takes_frames_of_peers_alone(other: StartedSession) -> None:
    """Whoever sends, the inner frame is the same: from one container of the session to another."""
    target, peer = other.container_on("agent2"), other.container_on("agent3")
    (vni,) = run_on(
        "agent2", f"ip -d link show {session_link(other.record['id'])} | grep -o 'vxlan id [0-9]*' | cut -c 10-"
    ).split()

    def sender(host: str, claims: str, name: str) -> tuple[str, str]:
        inner = datagram(peer["address"], target["address"], IN_CONTAINER, name.encode())
        payload = vxlan(int(vni), ethernet(session_mac(peer), session_mac(target), inner))
        frame = ethernet(mac(host), mac("agent2"), datagram(address(claims), address("agent2"), TUNNEL, payload))
        return host, run_line("send_frames", "eth0", frame.hex())

    senders = [
        sender("agent3", "agent3", "a peer"),
        sender("agent1", "agent1", "an agent of another session"),
        sender(OUTSIDE, OUTSIDE, "a stranger"),
        sender(OUTSIDE, "agent3", "a stranger as a peer"),
    ]
    assert collect_datagrams({"agent2": [listen_in(target)]}, senders) == {"a peer"}


def test_an_outsider_finds_no_port_but_those_of_the_gateway(train: Training) -> None:
    gateway = address("gateway1")
    expected = {(gateway, "443/open"), (gateway, f"{train.access['ssh']['port']}/open")}
    found: set[tuple[str, str]] = set()

    def scan_works() -> bool:
        # A fast scan may lose packets; the ports of the gateway show whether this one has.
        found.update(scan([gateway, *map(address, AGENTS)], PORTS))
        return expected <= found

    wait_until(scan_works, seconds=60)
    assert {host for host, _port in found} == {gateway}
    assert {port for _host, port in found} - {"443/open"} <= {f"{port}/open" for port in range(31001, 32001)}
    # Nor does any of them answer other protocols.
    assert reachable_from_host(OUTSIDE, all_targets(gateway, *map(address, AGENTS))) == set()


def test_an_outsider_who_routes_through_an_agent_reaches_no_container(train: Training) -> None:
    for agent in AGENTS:
        kernel = train.session.container_on(agent)
        inner = [kernel["address"], default_address(agent, kernel["container"])]
        with routes_through(agent, inner):
            assert scan(inner, "22,8000") == set()
            assert reachable_from_host(OUTSIDE, all_targets(*inner)) == set()


def test_published_ports_of_main1_answer_gateways_alone(train: Training) -> None:
    engines = containers(train.name)
    main, sub = engines["main1"], engines["sub1"]
    (binding,) = main["NetworkSettings"]["Ports"]["8000/tcp"][:1]
    assert {*published(main["agent"]).values()} <= {*range(30000, 31001)}
    assert not [ports for ports in (sub["NetworkSettings"]["Ports"] or {}).values() if ports]
    url = f"http://{address(main['agent'])}:{binding['HostPort']}/hostname"
    others = [agent for agent in AGENTS if agent != main["agent"]]
    pages = in_parallel(*[partial(curl, host, url) for host in ("gateway1", OUTSIDE, "manager1", *others)])
    assert pages == [(200, "main1\n"), *[(0, "")] * 4]
    # Inside, every container reaches the app.
    ask = "import urllib.request as u; print(u.urlopen('http://main1:8000/hostname', timeout=5).read())"
    assert "main1" in run_in(train.session.kernels[2], "python3", "-c", ask)


@pytest.fixture
def ipv6() -> Iterator[str]:
    """Give agent1 and an outsider an IPv6 address each; return that of agent1."""
    hosts = {"agent1": "fd00:77::1", OUTSIDE: "fd00:77::2"}
    for host, own in hosts.items():
        line = f"sysctl -qw net.ipv6.conf.eth0.disable_ipv6=0; ip -6 address add {own}/64 dev eth0 nodad"
        run_on(host, line)
    yield hosts["agent1"]
    for host, own in hosts.items():
        run_on(host, f"ip -6 address del {own}/64 dev eth0")


def test_ssh_of_an_agent_answers_control_nodes_and_managers_alone(ipv6: str) -> None:
    asked = in_parallel(
        *[partial(answers_ssh, host, address("agent1")) for host in ("manager1", OUTSIDE, "gateway1", "agent2")],
        partial(answers_ssh, OUTSIDE, ipv6),
    )
    assert asked == [True, False, False, False, False]


@pytest.mark.usefixtures("train")
def test_agents_run_no_service_of_this_collection() -> None:
    """Beside sshd and the ports that docker publishes nothing listens, and no program of ours stays."""
    listening = "ss --no-header --listening --tcp --udp --numeric --processes | grep -vE ' (127[.]|.::1.)'"
    programs = f"{listening} | grep -o 'users:((\"[^\"]*' | cut -d '\"' -f 2 | sort --unique"
    for agent, text in zip(AGENTS, run_on_all(programs), strict=True):
        assert {*text.split()} == {"sshd", *(["docker-proxy"] if published(agent) else [])}, agent
    # The timers' services end by themselves.
    runs = "pgrep --full '^[^ ]*python3? .*backendai' > /dev/null"
    run_on_all(f"for n in $(seq 300); do {runs} || exit 0; sleep 0.1; done; exit 1")
