"""Write the last report's figures into README.md and docs/performance.md: ``python -m tests.bench.tables``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.bench import report
from tests.bench.figures import COMPARISON, FIGURES, PARTS

BEGIN, END = "<!-- benchmark: begin (written by tests/bench) -->", "<!-- benchmark: end -->"

# Units that the text of a figure already contains.
COUNTED = ("ratio", "lines", "modules", "sessions", "statements")

Figure = Mapping[str, Any]


def comparison(data: report.Report | None) -> Iterator[str]:
    """Yield the lines of the comparison, with the medians of the figures that they name."""
    medians = {name: _median(figure) for name, figure in _figures(data).items()}
    yield from (f"- {line.format_map(medians)}" for line in COMPARISON)


def full_tables(data: report.Report | None) -> Iterator[str]:
    """Yield the lines of a table for each part."""
    yield _context(data)
    figures = _figures(data)
    for part, title in PARTS.items():
        yield from ("", f"### {title}", "", "| | measured | wanted | moonshot |", "|---|---|---|---|")
        yield from (row(figures[name], data) for name, figure in FIGURES.items() if figure.part == part)


DOCUMENTS: dict[Path, Callable[[report.Report | None], Iterator[str]]] = {
    report.ROOT / "README.md": comparison,
    report.ROOT / "docs" / "performance.md": full_tables,
}


def row(figure: Figure, data: report.Report | None) -> str:
    """Return the row of a figure in the tables."""
    bounds = (_bound(figure, kind) for kind in ("wanted", "moonshot"))
    cells = [figure["what"].removesuffix("."), _value(figure, data), *bounds]
    return "".join(f"| {cell} " if cell else "| " for cell in cells) + "|"


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


def _figures(data: report.Report | None) -> dict[str, Figure]:
    """Return every figure; those that have not been measured have no value."""
    measured: Mapping[str, Figure] = data["figures"] if data else {}
    return {name: measured.get(name, figure.to_dict()) for name, figure in FIGURES.items()}


def _value(figure: Figure, data: report.Report | None) -> str:
    """Return the value with its unit, bold if it is as wanted, its confidence interval or its range, and its commit."""
    if "value" not in figure or not data:
        return "-"
    text = _median(figure)
    if "wanted" in figure:
        distance = figure["value"] - figure["wanted"]
        text = f"**{text}**" if (distance <= 0 if figure["better"] == "lower" else distance >= 0) else text
    if report.INTERVAL in figure:
        text += f" (95 %: {_span(figure[report.INTERVAL])})"
    elif "spread" in figure:
        text += f" ({_span(figure['spread'])})"
    return text + (f" at {_short(figure['commit'])}" if figure["commit"] != data["commit"] else "")


def _median(figure: Figure) -> str:
    return f"{_number(figure['value'])}{_unit(figure)}" if "value" in figure else "(not measured)"


def _bound(figure: Figure, kind: str) -> str:
    if kind not in figure:
        return ""
    return f"{'≤' if figure['better'] == 'lower' else '≥'} {_number(figure[kind])}{_unit(figure)}"


def _unit(figure: Figure) -> str:
    """Return the unit after a number; none if the text of the figure contains it."""
    return "" if figure["unit"] in COUNTED else f" {figure['unit']}"


def _number(value: float) -> str:
    """Return a number as text with three significant digits, or as an integer."""
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def _span(limits: Sequence[float]) -> str:
    return " to ".join(map(_number, limits))


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


if __name__ == "__main__":
    if last := report.load():
        report.save(last)
    write(last)
