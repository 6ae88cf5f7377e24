"""The report that a run of the benchmark writes."""

from __future__ import annotations

import dataclasses
import json
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
        "rounds": 5,
        "commit": "aaaa",
        "load": 0.5,
    }


def test_figure_of_many_values_has_the_confidence_interval_of_its_median() -> None:
    figure = merge(None, OLD, {"network_stream": [float(number) for number in range(20)]})["figures"]["network_stream"]
    assert (figure["value"], figure["spread"], figure["rounds"]) == (9.5, [0.0, 19.0], 20)
    assert figure["confidence_interval"] == [5.0, 14.0]


def test_a_run_replaces_only_its_own_figures() -> None:
    merged = merge(merge(None, OLD, ALL), NEW, {"list": [2.0] * 3, "cpu_list": [7.0] * 5})
    assert (merged["commit"], merged["load"], merged["machine"]) == (NEW.commit, NEW.load, NEW.machine)
    assert list(merged["figures"]) == list(FIGURES)
    changed = {name: figure for name, figure in merged["figures"].items() if figure["commit"] != "aaaa"}
    assert {name: (figure["value"], figure["load"], figure["rounds"]) for name, figure in changed.items()} == {
        "list": (2.0, 1.5, 3),
        "cpu_list": (7.0, 1.5, 5),
    }


@pytest.mark.parametrize("change", [{"former": {}}, {"list": {"what": "Of 9 agents."}}])
def test_figures_that_no_longer_exist_leave_the_report(tmp_path: Path, change: dict[str, dict[str, str]]) -> None:
    path = tmp_path / "bench.json"
    merged = merge(None, OLD, {"list": [2.0], "modules": [22]})
    for name, values in change.items():
        merged["figures"][name] = {**merged["figures"]["list"], **values}
    report.save(merged, path)
    loaded = report.load(path)
    assert loaded
    assert loaded["figures"].keys() == {"list", "modules"} - {name for name in change if name == "list"}


def test_a_figure_that_was_measured_earlier_has_today_s_bounds(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    merged = merge(None, OLD, {"modules": [22]})
    report.save({**merged, "figures": {"modules": {**merged["figures"]["modules"], "wanted": 1, "moonshot": 0}}}, path)
    assert report.load(path) == merged


def test_the_report_in_the_documents_has_no_figure_that_no_longer_exists() -> None:
    assert report.load() == json.loads(report.PATH.read_text())


def test_a_report_reads_back_as_it_was_saved(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    assert report.load(path) is None
    merged = merge(None, OLD, {"ten_creates": [43.25, 43.35]})
    report.save(merged, path)
    assert report.load(path) == merged


def test_figures_belong_to_parts_and_have_comparable_bounds() -> None:
    assert {figure.part for figure in FIGURES.values()} == set(PARTS)
    assert set(re.findall(r"{(\w+)}", " ".join(COMPARISON))) <= FIGURES.keys()
    for name, figure in FIGURES.items():
        assert figure.what.endswith("."), name
        if figure.moonshot is not None:
            assert figure.wanted is not None, name
            assert (figure.moonshot < figure.wanted) == (figure.better == "lower"), name
