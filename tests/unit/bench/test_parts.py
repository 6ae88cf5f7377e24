"""Each part of the benchmark returns its figures, and the runner tolerates a failed part."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import __main__ as runner
from tests.bench import creation, figures, planner, playbooks, start_up, timing
from tests.bench.creation import WORKLOADS, Costs
from tests.bench.timing import BenchError, Cost

ROUND = Costs(
    empty_playbook=Cost(1.0, 0.9),
    no_task=Cost(0.5, 0.4),
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
    assert result["create_no_task_one_agent"] == [5.0 / 2.0, 9.0 / 2.0]
    assert result["tasks_three_agents"] == [8.0 / 5.0, 8.0 / 9.0]
    assert result["again_one_agent"] == [(2.0 - 1.0) / (5.0 - 1.0), (2.0 - 1.0) / (9.0 - 1.0)]
    assert result["cpu_create"] == [6.0, 11.0]
    assert result["playbooks_create"] == [6.0 / 0.9, 11.0 / 0.9]
    assert result["playbooks_terminate"] == [2.6 / 0.9, 2.6 / 0.9]


def test_cpu_time_is_that_of_three_agents() -> None:
    first_round = Costs(**{**vars(ROUND), "create": Cost(9.0, 11.0)})
    assert creation.figures({"one_agent": [first_round], "three_agents": [ROUND]})["cpu_create"] == [6.0]


def test_planner_decides_as_expected() -> None:
    placed = planner.placements(30, seed=1)
    assert list(placed.values()) == [[0]] * 3
    assert planner.slowest_decision(200) > 0
    queue = planner.queue(60, 20)
    assert all(seconds > 0 for (seconds,) in queue.values())
    assert {*placed, *queue, f"decision_{planner.AGENTS}_agents"} == figures.of_part("planner")


def test_names_and_sizes_of_the_other_parts_are_those_of_figures() -> None:
    starts = {f"start_{image}_{engine}" for image in start_up.IMAGES for engine in start_up.ENGINES}
    assert starts == figures.of_part("start_up")
    assert runner.PARTS.keys() == figures.PARTS.keys()
    assert playbooks.EXPECTED.total() == playbooks.TEN
    sizes = f"{planner.WAITING:,} waiting sessions, {planner.AGENTS:,} full agents"
    assert figures.FIGURES["queue_first"].what.startswith(sizes)
    placed = figures.FIGURES["placements_refused_with_room"].what
    assert f"{planner.SESSIONS:,} sessions on {planner.AGENTS:,} nodes" in placed


def test_cpu_time_leaves_out_idle_time_and_waiting_and_steal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sysconf", lambda _name: 100)
    assert timing.cpu_seconds("cpu  100 20 30 9999 9999 4 5 9999 9999 0\ncpu0 1 2 3") == 1.59


def test_cost_covers_a_command_and_its_processes() -> None:
    cost = timing.cost_of(lambda: sum(number * number for number in range(3_000_000)))
    assert 0 < cost.wall < 60
    assert cost.cpu >= 0


def test_a_command_that_fails_is_an_error_with_its_output(tmp_path: Path) -> None:
    assert timing.run(["true"], tmp_path, {}).wall >= 0
    with pytest.raises(BenchError, match="sh -c echo why; exit 3 ended with 3:\nwhy"):
        timing.run(["sh", "-c", "echo why; exit 3"], tmp_path, {})


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
    assert failure == "list: ['cpu_list', 'lists', 'playbooks_list'] are unexpected or missing"


@pytest.mark.parametrize("arguments", [["--only", "create,lists"], ["--rounds", "0"]])
def test_invalid_options_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        runner.parse(arguments)
    assert arguments[0] in capsys.readouterr().err


def test_parts_can_be_chosen() -> None:
    assert runner.parse(["--only", "create,list"]).only == ["create", "list"]
    assert runner.parse([]).only == list(figures.PARTS)
