"""The search for slow decisions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench import figures, mixed, slow_decisions
from tests.bench.slow_decisions import Search, load, run, save


@pytest.mark.parametrize("name", ["ordinary-1", "odd-1", *(f"odd-2/{change}" for change in range(6)), "odd-1/2/3"])
def test_a_name_makes_the_same_case_each_time(name: str) -> None:
    case = mixed.make(name)
    mixed.make.cache_clear()
    again = mixed.make(name)
    assert [agent.free for agent in case.agents] == [agent.free for agent in again.agents]
    assert (case.groups, case.selection, case.single_node) == (again.groups, again.selection, again.single_node)
    assert 0 < sum(group.count for group in case.groups) <= 1024
    assert mixed.decide(case) == mixed.decide(again)


def test_a_search_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    whole, first = Search(7), Search(7)
    for _step in range(4):
        whole.step()
    for _step in range(2):
        first.step()
    save(first, path)
    second = load(path, None)
    for _step in range(2):
        second.step()
    assert second.decisions == whole.decisions == 4
    assert (len(second.times), len(second.slowest)) == (2, 4)
    assert "4 in 0 s, p50 " in second.summary()


def test_a_search_of_another_seed_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    save(Search(7, decisions=3), path)
    assert (load(path, 7).decisions, load(path, 8).decisions) == (3, 0)


def test_a_search_ends_after_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "progress.json"
    monkeypatch.setattr(slow_decisions, "SAVED_EVERY", -1.0)
    search = Search(7)
    run(search, 0.0, path)
    assert search.decisions == 1
    assert json.loads(path.read_text())["decisions"] == 1
    run(search, 0.0, path)
    assert search.decisions == 1


@pytest.mark.parametrize(("wanted", "code"), [(1e9, 0), (0.0, 1)])
def test_a_decision_that_takes_longer_than_wanted_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], wanted: float, code: int
) -> None:
    figure = figures.Figure("planner", "a time", "ms", wanted=wanted)
    monkeypatch.setitem(figures.FIGURES, "decision_mixed_worst", figure)
    path = tmp_path / "progress.json"
    monkeypatch.setattr("sys.argv", ["slow_decisions", "--seconds=0", "--seed=3", f"--progress={path}"])
    assert slow_decisions.main() == code
    assert "search for slow decisions: --seed 3, 0 s passed before" in capsys.readouterr().out
    assert not path.exists()
