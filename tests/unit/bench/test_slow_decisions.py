"""The search for slow decisions."""

from __future__ import annotations

import pytest

from tests.bench import mixed, slow_decisions


@pytest.mark.parametrize("name", ["ordinary-1", "odd-1", "odd-2"])
def test_a_name_makes_the_same_case_each_time(name: str) -> None:
    case, again = mixed.make(name), mixed.make(name)
    assert [agent.free for agent in case.agents] == [agent.free for agent in again.agents]
    assert (case.groups, case.selection, case.single_node) == (again.groups, again.selection, again.single_node)
    assert 0 < sum(group.count for group in case.groups) <= 1024
    assert mixed.decide(case) == mixed.decide(again)


@pytest.mark.parametrize(("wanted", "code"), [((1e9, 1e9), 0), ((0.0, 1e9), 1), ((1e9, 0.0), 1)])
def test_decisions_that_take_longer_than_wanted_are_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], wanted: tuple[float, float], code: int
) -> None:
    monkeypatch.setattr(slow_decisions, "WANTED_P99", wanted[0])
    monkeypatch.setattr(slow_decisions, "WANTED_WORST", wanted[1])
    monkeypatch.setattr("sys.argv", ["slow_decisions", "--seconds=0", "--seed=3"])
    assert slow_decisions.main() == code
    printed = capsys.readouterr().out
    assert "--seed 3, 1 decided" in printed
    assert "odd-3-0" in printed
