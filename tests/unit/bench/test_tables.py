"""The tables of the benchmark in the documents."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.bench import report, tables
from tests.bench.figures import FIGURES, PARTS
from tests.bench.report import Context, Report, merge

CONTEXT = Context("0123456789abcdef", 0.5, {"cores": 2, "python": "3.11.2"}, 5)


def measured(**values: list[float]) -> Report:
    return merge(None, CONTEXT, values)


def row(of: Report, name: str) -> str:
    begin = f"| {FIGURES[name].what.removesuffix('.')} "
    (line,) = [line for line in tables.full_tables(of) if line.startswith(f"{begin}|")]
    return line.removeprefix(begin)


def test_tables_in_the_documents_are_those_of_the_report() -> None:
    assert tables.outdated_documents(report.load()) == {}, "run `python -m tests.bench.tables`"


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("create_one_agent", [1.6], "| **1.6** | ≤ 1.6 | ≤ 1.3 |"),
        ("create_one_agent", [4.51, 4.5, 4.4999], "| 4.5 (4.5 to 4.51) | ≤ 1.6 | ≤ 1.3 |"),
        ("tasks_one_agent", [2.5], "| **2.5** | ≥ 2 | ≥ 3 |"),
        ("ten_creates", [123.4], "| 123 s | ≤ 90 s | ≤ 45 s |"),
        ("lines_plugins", [22201], "| 22,201 | ≤ 20,000 | |"),
        ("cpu_ten_creates", [8.04], "| 8.04 s | | |"),
        ("firewall_stream", [0.9, *[0.98] * 4, *[0.99] * 3, 1.1], "| **0.98** (95 %: 0.98 to 0.99) | ≥ 0.98 | |"),
    ],
)
def test_row_has_value_range_and_bounds(name: str, values: list[float], expected: str) -> None:
    assert row(measured(**{name: values}), name) == expected


def test_figures_that_were_not_measured_are_in_the_table_without_a_value() -> None:
    assert row(measured(modules=[41]), "list") == "| - | ≤ 2 | ≤ 1.5 |"


def test_every_figure_is_in_one_table() -> None:
    lines = list(tables.full_tables(None))
    assert len([line for line in lines if line.startswith("### ")]) == len(PARTS)
    assert len([line for line in lines if line.startswith("| ")]) == len(FIGURES) + len(PARTS)


def test_changed_report_makes_documents_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{tables.BEGIN}\n{tables.END}\nafter\n")
    monkeypatch.setattr(tables, "DOCUMENTS", {page: tables.comparison})
    tables.write(measured(ten_creates=[3.0]))
    assert "with room for six: 3 s until all runs have ended" in page.read_text()
    assert page.read_text().startswith("before\n")
    assert page.read_text().endswith("\nafter\n")
    assert tables.outdated_documents(measured(ten_creates=[3.0])) == {}
    assert set(tables.outdated_documents(measured(ten_creates=[2.0]))) == {page}


def test_a_document_without_markers_is_an_error() -> None:
    with pytest.raises(ValueError, match="markers"):
        tables.with_table(f"text {tables.END}", [])


def test_a_dirty_commit_stays_recognisable() -> None:
    dirty: Report = {**measured(list=[2.0]), "commit": "0123456789abcdef-dirty"}
    assert "`0123456789-dirty`" in next(tables.full_tables(dirty))


def test_a_figure_of_another_commit_names_it() -> None:
    later = merge(measured(list=[2.0]), dataclasses.replace(CONTEXT, commit="f" * 40), {"modules": [41]})
    assert row(later, "list") == "| **2** at `0123456789` | ≤ 2 | ≤ 1.5 |"
    assert row(later, "modules") == "| 41 | ≤ 22 | |"
