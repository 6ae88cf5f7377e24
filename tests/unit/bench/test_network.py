"""The comparison of network paths: the order of its measurements, its figures, and the chain without rules."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._firewall.isolation_policy import IsolationPolicy
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.policy import Firewall
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.ruleset import render
from ansible_collections.backendai.cluster.plugins.module_utils._network.pins import Pin
from tests.bench import figures, lab, network
from tests.bench.paths import NetworkPath
from tests.bench.timing import BenchError
from tests.lab.debian import require

NAMES = ("underlay", "session", "swarm")
PATHS = {name: NetworkPath(number, 10 + number, f"192.0.2.{number}") for number, name in enumerate(NAMES)}
RULESET = render(
    IsolationPolicy(
        agents=("192.0.2.0/28",),
        bridges=(),
        ports=(4789,),
        peers={"pinned4": (("192.0.2.2", "02:00:00:00:00:02", "4096"),)},
        pins=(Pin("veth1", "02:42:ac:1e:00:02", "172.30.0.2"),),
    ),
    Firewall(ssh_sources=("192.0.2.10/32",), ssh_ports=(22,), gateways=(), agents=("192.0.2.0/28",), allow=()),
    ("eth0",),
)


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the line of each measurement, and each change of a chain; the values are their numbers in order."""
    ran: list[str] = []

    def run_on(host: str, line: str, text: str = "") -> str:
        assert host in {"agent1", "agent2"}
        if "python3" in line:
            assert (host, text[:3]) == ("agent1", '"""')
        ran.append(line)
        return str(len(ran))

    monkeypatch.setattr(lab, "run_on", run_on)
    return ran


def test_order_is_the_opposite_in_every_other_turn() -> None:
    turns = [network.in_order(("a", "b", "c"), turn) for turn in range(4)]
    assert turns == [["a", "b", "c"], ["c", "b", "a"]] * 2


def test_compared_paths_are_adjacent_and_equally_often_first() -> None:
    assert network.PAIRS >= 20
    assert network.PAIRS % 2 == 0
    distances = {}
    for name, (metric, path, other) in network.RATIOS.items():
        if metric in network.MEASUREMENTS:
            _words, names = network.MEASUREMENTS[metric]
            distances[name] = abs(names.index(path) - names.index(other))
    assert network.RATIOS.keys() - distances.keys() == {"network_attach", "network_join"}
    assert distances.pop("network_stream_of_underlay") == 2
    assert set(distances.values()) == {1}


def test_paths_are_measured_in_turns_and_without_the_firewall_only_where_it_is_compared(lines: list[str]) -> None:
    network.Network(PATHS).compare(2)
    programs = [line.replace("nsenter --net=/proc/", "") for line in lines if "python3" in line]
    session, swarm = "1/ns/net python3 - {} 192.0.2.1 7001 {}", "2/ns/net python3 - {} 192.0.2.2 7001 {}"
    first = [
        swarm.format("echo", 2000),
        session.format("echo", 2000),
        "python3 - stream 192.0.2.0 7001 1 1",
        swarm.format("stream", "1 1"),
        session.format("stream", "1 1"),
        session.format("stream", "1 1"),
        swarm.format("stream", "4 1"),
        session.format("stream", "4 1"),
    ]
    assert programs[:8] == first
    assert programs[8:] == [*first[1::-1], *first[5:1:-1], *first[:5:-1]]
    flushed = [at for at, line in enumerate(lines) if line.startswith("nft flush")]
    between = [line for at, line in enumerate(lines) if flushed[1] < at < flushed[1] + 4]
    assert between == [f"nsenter --net=/proc/{session.format('stream', '1 1')}", "nft --file -", "nft --file -"]
    assert len(flushed) == 4


def test_figures_are_ratios_within_each_turn(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "attach_to_session_network", lambda: (1.0, 0.1))
    monkeypatch.setattr(network, "attach_to_swarm", lambda: (4.0, 0.5))
    compared = network.Network(PATHS)
    compared.compare(2)
    compared.attach()
    result = compared.figures()
    assert result.keys() == figures.of_part("network")
    # The numbers of the lines; six more of them around what is measured without the firewall.
    assert len(lines) == 2 * (8 + 6)
    assert result["network_round_trip"] == pytest.approx([2 / 1, 15 / 16])
    assert result["firewall_stream"] == pytest.approx([5 / 10, 24 / 21])
    assert result["network_streams"] == pytest.approx([14 / 13, 27 / 28])
    assert (result["network_attach"], result["network_join"]) == ([0.25], [0.2])


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Make a network namespace with the tables for each agent; return how each is entered."""
    inside: dict[str, str] = {}

    def run_on(host: str, line: str, text: str = "") -> str:
        done = subprocess.run(
            ["sh", "-c", f"{inside[host]}{line}"], input=text, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    monkeypatch.setattr(lab, "run_on", run_on)
    require("nft")
    processes = []
    try:
        for name in ("agent1", "agent2"):
            process = subprocess.Popen(
                ["unshare", "--net", "sh", "-c", "echo made; exec sleep 600"], stdout=subprocess.PIPE, text=True
            )
            processes.append(process)
            assert process.stdout
            assert process.stdout.readline() == "made\n"
            inside[name] = f"nsenter --net=/proc/{process.pid}/ns/net "
            run_on(name, "nft --file -", RULESET)
        yield inside
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_the_chain_of_both_agents_is_empty_for_a_while_even_after_an_error(agents: dict[str, str]) -> None:
    chain, tables = f"nft list chain {network.CHAIN}", "nft list ruleset"
    before = [lab.run_on(agent, tables) for agent in agents]

    def fail() -> None:
        with network.without_firewall():
            assert not [line for agent in agents for line in lab.run_on(agent, chain).splitlines() if "return" in line]
            raise BenchError

    assert "jump host_firewall" in lab.run_on("agent1", chain)
    with pytest.raises(BenchError):
        fail()
    assert [lab.run_on(agent, tables) for agent in agents] == before


def test_reconciliation_continues_even_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[dict[str, str]] = []
    monkeypatch.setattr(lab, "run_on_each", ran.append)

    def fail() -> None:
        with network.stopped_reconciliation():
            assert len(ran) == 1
            raise BenchError

    with pytest.raises(BenchError):
        fail()
    stop = "systemctl stop backendai-reconcile.timer && systemctl start backendai-reconcile.service"
    start = "systemctl start backendai-reconcile.service backendai-reconcile.timer"
    assert ran == [dict.fromkeys(("agent1", "agent2", "agent3"), line) for line in (stop, start)]
