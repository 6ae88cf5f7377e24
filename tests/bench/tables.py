"""Write the benchmark's figures into README.md and docs/performance.md, or check that they are up to date."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.bench import report
from tests.bench.figures import COMPARISON, FIGURES, PARTS, of_part

BEGIN, END = "<!-- benchmark: begin (written by tests/bench) -->", "<!-- benchmark: end -->"

# Units that the text of a figure already contains.
COUNTED = ("ratio", "lines", "modules", "sessions")

Figures = Mapping[str, Mapping[str, Any]]


def comparison(data: report.Report | None) -> Iterator[str]:
    """Yield the lines of the comparison, with the medians of the figures that they name."""
    medians = {name: _median(figure) for name, figure in _figures(data).items()}
    yield from (f"- {line.format_map(medians)}" for line in COMPARISON)


def full_tables(data: report.Report | None) -> Iterator[str]:
    """Yield the lines of a table for each part."""
    yield _context(data)
    for part, title in PARTS.items():
        yield from ("", f"### {title}", "")
        names = of_part(part)
        yield from _table((name for name in FIGURES if name in names), _figures(data))


DOCUMENTS: dict[Path, Callable[[report.Report | None], Iterator[str]]] = {
    report.ROOT / "README.md": comparison,
    report.ROOT / "docs" / "performance.md": full_tables,
}


def with_table(text: str, lines: Iterable[str]) -> str:
    """Return a document with these lines between its markers. Raises :class:`ValueError` if it has none."""
    before, begin, rest = text.partition(BEGIN)
    _old, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the markers {BEGIN} and {END} are missing")
    return "\n".join([f"{before}{BEGIN}", "", *lines, "", f"{END}{after}"])


def outdated_documents(data: report.Report | None) -> dict[Path, str]:
    """Return the documents with outdated tables, with their new text."""
    texts = {path: with_table(path.read_text(encoding="utf-8"), render(data)) for path, render in DOCUMENTS.items()}
    return {path: text for path, text in texts.items() if text != path.read_text(encoding="utf-8")}


def write(data: report.Report | None) -> None:
    """Write the tables of a report into the documents."""
    for path, text in outdated_documents(data).items():
        path.write_text(text, encoding="utf-8")


def _figures(data: report.Report | None) -> Figures:
    """Return every figure; those that have not been measured have no value."""
    measured: Figures = data["figures"] if data else {}
    return {name: measured.get(name, figure.to_dict()) for name, figure in FIGURES.items()}


def _table(names: Iterable[str], figures: Figures) -> Iterator[str]:
    yield "| | measured | wanted | moonshot |"
    yield "|---|---|---|---|"
    for name in names:
        figure = figures[name]
        cells = [figure["what"].removesuffix("."), _value(figure), _bound(figure, "wanted"), _bound(figure, "moonshot")]
        yield "".join(f"| {cell} " if cell else "| " for cell in cells) + "|"


def _value(figure: Mapping[str, Any]) -> str:
    """Return the value with its unit, bold if it reaches its bound, and its confidence interval or its range."""
    if "value" not in figure:
        return "-"
    text = _median(figure)
    if "wanted" in figure and report.is_reached(figure):
        text = f"**{text}**"
    if report.INTERVAL in figure:
        text += f" (95 %: {report.span(figure[report.INTERVAL])})"
    elif "spread" in figure:
        text += f" ({report.span(figure['spread'])})"
    return text + (f" at {_short(figure['commit'])}" if "commit" in figure else "")


def _median(figure: Mapping[str, Any]) -> str:
    return f"{report.number(figure['value'])}{_unit(figure)}" if "value" in figure else "(not measured)"


def _bound(figure: Mapping[str, Any], kind: str) -> str:
    text = report.bound(figure, kind)
    return f"{text}{_unit(figure)}".replace("<=", "≤").replace(">=", "≥") if text else ""


def _unit(figure: Mapping[str, Any]) -> str:
    """Return the unit after a number; none if the text of the figure contains it."""
    return "" if figure["unit"] in COUNTED else f" {figure['unit']}"


def _context(data: report.Report | None) -> str:
    if not data:
        return "Not measured yet: `make bench` does that."
    machine = data["machine"]
    return (
        f"Commit {_short(data['commit'])}: medians of {data['rounds']} rounds (range), of six and more values with the"
        f" confidence interval of the median (95 %), on {machine['cores']} cores with Python {machine['python']}, load"
        f" average {data['load']} before. Bold: as wanted."
    )


def _short(commit: str) -> str:
    """Return the first digits of a commit, with the suffix of a dirty one."""
    digits, _dash, dirty = commit.partition("-")
    return f"`{digits[:10]}{'-' if dirty else ''}{dirty}`"


def main(arguments: list[str]) -> int:
    """Write the tables; with ``--check`` only report whether they are up to date, also by the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.tables", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, and fail if a table is out of date")
    options = parser.parse_args(arguments)
    last = report.load()
    if not options.check:
        write(last)
        return 0
    outdated = [str(path.relative_to(report.ROOT)) for path in outdated_documents(last)]
    if outdated:
        print(f"{', '.join(outdated)}: out of date; run `python -m tests.bench.tables`")
    return 1 if outdated else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
