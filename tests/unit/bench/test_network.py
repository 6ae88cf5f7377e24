"""The comparison of network paths: the order of its measurements, its samples and its figures."""

from __future__ import annotations

import json

import pytest

from tests.bench import figures, lab, network, rulesets
from tests.bench.errors import BenchError
from tests.bench.paths import NetworkPath

NAMES = ("underlay", "session", "swarm", "wireguard")
PATHS = {name: NetworkPath(number, 10 + number, f"192.0.2.{number}") for number, name in enumerate(NAMES)}
SESSION = PATHS["session"]


class RecordedTables(rulesets.Rulesets):
    """Tables whose state is only recorded."""

    def __init__(self) -> None:
        self.state = rulesets.APPLIED

    def apply(self, state: str) -> None:
        """Record the state."""
        self.state = state


@pytest.fixture
def tables() -> RecordedTables:
    return RecordedTables()


@pytest.fixture
def lines(tables: RecordedTables, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Return the state of the tables and the line of each measurement; its values are 1, 2, ... in order."""
    ran: list[tuple[str, str]] = []

    def run_on(host: str, line: str, text: str) -> str:
        assert (host, text[:3]) == ("agent1", '"""')
        ran.append((tables.state, line))
        return f"{len(ran)} {len(ran)}" if " stream " in line else str(len(ran))

    monkeypatch.setattr(lab, "run_on", run_on)
    return ran


def test_order_is_the_opposite_in_every_other_turn() -> None:
    turns = [network.in_order(("a", "b", "c"), turn) for turn in range(4)]
    assert turns == [["a", "b", "c"], ["c", "b", "a"]] * 2


def test_compared_paths_are_adjacent_and_equally_often_first() -> None:
    assert network.PAIRS >= 20
    assert network.PAIRS % 2 == 0
    orders = {metric: each.paths for each in network.measurements("eth0") for metric in each.factors}
    compared = {name: ratio for name, ratio in network.RATIOS.items() if ratio[0] in orders}
    assert network.RATIOS.keys() - compared.keys() == {"network_attach", "network_join"}
    distances = {
        name: abs(orders[metric].index(path) - orders[metric].index(other))
        for name, (metric, path, other) in compared.items()
    }
    assert distances.pop("network_stream_of_underlay") == 2
    assert set(distances.values()) == {1}


def test_paths_are_measured_in_turns_with_their_tables(tables: RecordedTables, lines: list[tuple[str, str]]) -> None:
    compared = network.Network(PATHS, "eth7")
    compared.compare(2, tables)
    echo = [(state, line) for state, line in lines if " echo " in line]
    first = [
        ("applied", "python3 - echo 192.0.2.0 7001 2000"),
        ("applied", "nsenter --net=/proc/2/ns/net python3 - echo 192.0.2.2 7001 2000"),
        ("applied", "nsenter --net=/proc/1/ns/net python3 - echo 192.0.2.1 7001 2000"),
        ("unguarded", "nsenter --net=/proc/1/ns/net python3 - echo 192.0.2.1 7001 2000"),
    ]
    assert echo == [*first, *reversed(first)]
    single = [(state, line) for state, line in lines if line.endswith("stream 192.0.2.1 7001 1 1 eth7")]
    states = ["applied", "unguarded", "many_sessions", "without_tables"]
    assert [state for state, _line in single] == [*states, *reversed(states)]
    # The values are the numbers of the measurements: in the second turn, what is compared comes in the other order.
    assert compared.samples["round_trip", "session"] == pytest.approx([3e6, (13 + 2) * 1e6])
    assert compared.samples["round_trip", "unguarded"] == pytest.approx([4e6, (13 + 1) * 1e6])
    assert compared.samples["stream", "many_sessions"] == pytest.approx([9e-9, (17 + 2) * 1e-9])
    assert compared.samples["cpu_per_packet", "without_tables"] == pytest.approx([10e9, (17 + 1) * 1e9])
    assert compared.samples["streams", "swarm"] == pytest.approx([11e-9, 26e-9])


@pytest.mark.usefixtures("tables")
def test_wireguard_is_measured_as_often_as_there_are_rounds(lines: list[tuple[str, str]]) -> None:
    compared = network.Network(PATHS, "eth0")
    compared.measure_once("wireguard")
    assert [line.split(" - ")[1] for _state, line in lines] == [
        "echo 192.0.2.3 7001 2000",
        "stream 192.0.2.3 7001 1 1 eth0",
    ]
    assert compared.samples["stream", "wireguard"] == pytest.approx([2e-9])


def test_figures_are_ratios_within_each_turn(
    tables: RecordedTables, lines: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "attach_to_session_network", lambda: (1.0, 0.1))
    monkeypatch.setattr(network, "attach_to_swarm", lambda: (4.0, 0.5))
    compared = network.Network(PATHS, "eth0")
    compared.compare(4, tables)
    compared.measure_once("wireguard")
    compared.attach()
    assert len(lines) == 4 * (4 + 6 + 3) + 2
    result = network.figures(compared.samples)
    assert result.keys() == figures.of_part("network")
    assert result["network_round_trip"] == pytest.approx([3 / 2, 15 / 16, 29 / 28, 41 / 42])
    assert result["firewall_cpu_per_packet"] == pytest.approx([7 / 8, 21 / 20, 33 / 34, 47 / 46])
    assert result["many_sessions_stream"] == pytest.approx([9 / 10, 19 / 18, 35 / 36, 45 / 44])
    assert result["network_attach"] == [0.25]
    assert result["microseconds_session"] == pytest.approx([3e6, 15e6, 29e6, 41e6])


def test_interface_of_an_agent_is_the_one_that_was_selected() -> None:
    assert network.interface_of(json.dumps([{}, {"ifindex": 7, "ifname": "eth0"}, {}])) == "eth0"


@pytest.mark.parametrize(
    ("listed", "named"), [([], "not none"), ([{"ifname": "eth0"}, {"ifname": "eth1"}], "not eth0, eth1")]
)
def test_other_than_one_interface_is_an_error(listed: list[dict[str, str]], named: str) -> None:
    with pytest.raises(BenchError, match=named):
        network.interface_of(json.dumps(listed))
