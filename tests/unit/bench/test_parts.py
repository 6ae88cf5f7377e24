"""Each part of the benchmark returns its figures, and the runner tolerates a failed part."""

from __future__ import annotations

import pytest

from tests.bench import __main__ as runner
from tests.bench import (
    code_size,
    creation,
    decisions,
    figures,
    gateway,
    many_sessions,
    memory,
    replay,
    start_up,
    ten_creates,
    timing,
    waiting,
)
from tests.bench.creation import Costs
from tests.bench.errors import BenchError
from tests.bench.timing import Cost
from tests.bench.workload import WORKLOADS

ROUND = Costs(
    empty_playbook=Cost(1.0, 0.9),
    docker_run=Cost(1.5, 2.0),
    community_docker=Cost(8.0, 7.0),
    create=Cost(5.0, 6.0),
    again=Cost(2.0, 3.0),
    terminate=Cost(2.5, 2.6),
)


def test_creation_compares_within_each_round() -> None:
    slower = Costs(**{**vars(ROUND), "create": Cost(9.0, 11.0)})
    result = creation.figures({workload.name: [ROUND, slower] for workload in WORKLOADS})
    assert result.keys() == figures.of_part("create")
    assert result["create_one_agent"] == [5.0 / 2.5, 9.0 / 2.5]
    assert result["tasks_three_agents"] == [8.0 / 5.0, 8.0 / 9.0]
    assert result["again_one_agent"] == [(2.0 - 1.0) / (5.0 - 1.0), (2.0 - 1.0) / (9.0 - 1.0)]
    assert result["cpu_create"] == [6.0, 11.0]
    assert result["playbooks_create"] == [6.0 / 0.9, 11.0 / 0.9]
    assert result["seconds_terminate_one_agent"] == [2.5, 2.5]


def test_cpu_time_is_that_of_three_agents() -> None:
    first_round = Costs(**{**vars(ROUND), "create": Cost(9.0, 11.0)})
    assert creation.figures({"one_agent": [first_round], "three_agents": [ROUND]})["cpu_create"] == [6.0]


def test_code_is_counted_as_git_lists_it() -> None:
    result = code_size.measure()
    assert result.keys() == figures.of_part("code")
    (lines,), (modules,) = result["lines_plugins"], result["modules"]
    assert lines > 50 * modules > 0


def test_the_gateway_is_compared_with_an_empty_configuration_in_each_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "REQUESTS", 20)
    result = gateway.measure(2)
    assert result.keys() == figures.of_part("gateway")
    rates = zip(result["gateway_requests"], result["gateway_requests_empty"], strict=True)
    assert result["gateway"] == [full / empty for full, empty in rates]
    assert len(result["gateway"]) == 2


def test_a_gateway_that_refuses_the_request_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "NAME", "nobody-here")
    with pytest.raises(BenchError, match="404 Not Found"):
        gateway.measure(1)


def test_planner_reads_facts_and_decides_as_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(memory.read_facts(0).sessions) == memory.SESSIONS
    replayed = replay.figures(replay.replay(200, seed=1), 200)
    assert [replayed[name] for name in replayed if name.startswith("placements")] == [[0]] * 3
    assert decisions.slowest(1000) > 0
    queue = waiting.measure(count=60, agents=20)
    assert all(seconds > 0 for (seconds,) in queue.values())
    monkeypatch.setattr(decisions, "MIXED", 3)
    times = decisions.mixed_roles()
    assert 0 < times["decision_mixed_p50"][0] <= times["decision_mixed_p99"][0] == times["decision_mixed_worst"][0]
    names = {*replayed, *times, *(f"decision_{size}_agents" for size in decisions.SIZES), "facts_memory", *queue}
    assert names == figures.of_part("planner")


def test_names_of_the_other_parts_are_those_of_figures() -> None:
    starts = {f"start_{image}_{engine}" for image in start_up.IMAGES for engine in start_up.ENGINES}
    assert starts == figures.of_part("start_up")
    assert runner.PARTS.keys() == figures.PARTS.keys()
    for name in figures.of_part("many_sessions") - {"many_sessions_timer"}:
        assert f"the last {many_sessions.BLOCK} of {many_sessions.COUNT} " in figures.FIGURES[name].what
    assert ten_creates.EXPECTED.total() == ten_creates.COUNT


def test_growth_is_the_last_block_as_a_multiple_of_the_first() -> None:
    sessions = [{"claim": 0.2, "  keys": 5.0, "check": 0.3}] * 20 + [{"claim": 9.0}] * 60 + [{"claim": 1.0}] * 20
    assert many_sessions.growth(sessions) == pytest.approx(2.0)


def test_cpu_time_leaves_out_idle_time_and_waiting_and_steal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sysconf", lambda _name: 100)
    assert timing.cpu_seconds("cpu  100 20 30 9999 9999 4 5 9999 9999 0\ncpu0 1 2 3") == 1.59


def test_cost_covers_a_command_and_its_processes() -> None:
    cost = timing.cost_of(lambda: sum(number * number for number in range(3_000_000)))
    assert 0 < cost.wall < 60
    assert cost.cpu >= 0


def test_a_part_that_fails_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_rounds: int) -> dict[str, list[float]]:
        raise BenchError("an agent is unreachable")

    def count(rounds: int) -> dict[str, list[float]]:
        return dict.fromkeys(figures.of_part("list"), [2.0] * rounds)

    monkeypatch.setattr(runner, "PARTS", {"create": runner.Part(fail), "list": runner.Part(count, rounds=3)})
    samples: dict[str, list[float]] = {}
    assert runner.measure(["create", "list"], None, samples) == ["create: an agent is unreachable"]
    assert samples == count(3)
    assert runner.measure(["list"], 16, samples) == []
    assert samples == count(16)


def test_a_part_that_gives_other_figures_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "PARTS", {"list": runner.Part(lambda _rounds: {"list": [2.0], "lists": [2.0]})})
    (failure,) = runner.measure(["list"], None, {})
    assert failure == "list: ['cpu_list', 'lists', 'playbooks_list', 'seconds_list'] are unexpected or missing"


@pytest.mark.parametrize("arguments", [["--only", "create,lists"], ["--rounds", "0"]])
def test_invalid_options_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        runner.parse(arguments)
    assert arguments[0] in capsys.readouterr().err


def test_parts_can_be_chosen() -> None:
    assert runner.parse(["--only", "create,list"]).only == ["create", "list"]
    # The training needs an image that a lab seldom has.
    assert runner.parse([]).only == [name for name in figures.PARTS if name != "training"]
