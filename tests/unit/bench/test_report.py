"""The report that a run of the benchmark writes."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from tests.bench import report
from tests.bench.figures import COMPARISON, FIGURES, PARTS
from tests.bench.report import Context, merge

OLD = Context("aaaa", 0.5, {"cores": 2, "python": "3.11.2"}, 5)
NEW = Context("bbbb", 1.5, {"cores": 4, "python": "3.13.0"}, 5)
ALL = {name: [1.0] * 5 for name in FIGURES}


def test_figure_is_the_median_with_its_bounds() -> None:
    merged = merge(None, OLD, {"create_one_agent": [4.0, 9.0, 5.00004, 3.0, 6.0]})
    assert {name: merged[name] for name in ("commit", "load", "machine", "rounds")} == dataclasses.asdict(OLD)
    figure = merged["figures"]["create_one_agent"]
    assert figure.pop("what").startswith("create_session / (parallel docker run over SSH + an empty playbook)")
    assert figure == {
        "value": 5.0,
        "wanted": 1.6,
        "moonshot": 1.3,
        "better": "lower",
        "unit": "ratio",
        "spread": [3.0, 9.0],
    }


def test_figure_of_many_values_has_the_confidence_interval_of_its_median() -> None:
    figures = merge(None, OLD, {"network_stream": [float(number) for number in range(20)]})["figures"]
    figure = figures["network_stream"]
    assert (figure["value"], figure["spread"], figure["rounds"]) == (9.5, [0.0, 19.0], 20)
    assert figure["confidence_interval"] == [5.0, 14.0]
    _heading, line = report.lines(figures)
    assert line.split() == ["network_stream", "9.5", "ratio", "5", "to", "14", ">=", "1.1", "reached"]


def test_a_run_of_everything_replaces_the_report() -> None:
    merged = merge(merge(None, OLD, ALL), NEW, ALL)
    assert {name: merged[name] for name in ("commit", "load", "machine")} == {
        "commit": NEW.commit,
        "load": NEW.load,
        "machine": NEW.machine,
    }
    assert not [name for name, figure in merged["figures"].items() if {"commit", "rounds"} & figure.keys()]


def test_partial_run_replaces_only_its_own_figures() -> None:
    merged = merge(merge(None, OLD, ALL), NEW, {"list": [2.0] * 3, "cpu_list": [7.0] * 5})
    assert (merged["commit"], merged["load"], merged["machine"]) == (OLD.commit, OLD.load, OLD.machine)
    assert list(merged["figures"]) == list(FIGURES)
    changed = {name: figure for name, figure in merged["figures"].items() if figure["value"] != 1.0}
    assert {name: (figure["value"], figure["commit"], figure["load"]) for name, figure in changed.items()} == {
        "list": (2.0, "bbbb", 1.5),
        "cpu_list": (7.0, "bbbb", 1.5),
    }
    assert (changed["list"]["rounds"], "rounds" in changed["cpu_list"]) == (3, False)
    assert [name for name, figure in merged["figures"].items() if "commit" in figure] == list(changed)


def test_figures_that_no_longer_exist_leave_the_report() -> None:
    previous = merge(None, OLD, {"list": [2.0]})
    previous["figures"]["former"] = previous["figures"]["list"]
    assert set(merge(previous, NEW, {"modules": [22]})["figures"]) == {"list", "modules"}


def test_a_report_reads_back_as_it_was_saved(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    assert report.load(path) is None
    merged = merge(None, OLD, {"microseconds_session": [43.25, 43.35]})
    report.save(merged, path)
    assert report.load(path) == merged


@pytest.mark.parametrize(
    ("name", "value", "verdict"),
    [("list", 2.0, "reached"), ("list", 2.1, "MISSED"), ("tasks_one_agent", 1.9, "MISSED"), ("seconds_list", 3.0, "s")],
)
def test_printed_line_shows_whether_a_figure_meets_its_bound(name: str, value: float, verdict: str) -> None:
    _heading, line = report.lines(merge(None, OLD, {name: [value]})["figures"])
    assert line.split()[0] == name
    assert line.endswith(verdict)


def test_figures_belong_to_parts_and_have_comparable_bounds() -> None:
    assert {figure.part for figure in FIGURES.values()} == set(PARTS)
    assert set(re.findall(r"{(\w+)}", " ".join(COMPARISON))) <= FIGURES.keys()
    for name, figure in FIGURES.items():
        assert figure.what.endswith("."), name
        if figure.moonshot is not None:
            assert figure.wanted is not None, name
            assert (figure.moonshot < figure.wanted) == (figure.better == "lower"), name
