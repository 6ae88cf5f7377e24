"""The benchmark's report, ``docs/bench.json``: the medians of the last run of each part."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import statistics
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.bench.figures import FIGURES, reaches
from tests.bench.intervals import median_interval

ROOT = Path(__file__).resolve().parents[2]
PATH = ROOT / "docs" / "bench.json"
# Files that the benchmark writes do not make a checkout dirty.
GENERATED = ("docs/bench.json", "docs/performance.md", "README.md")

# The key of a figure's 95 % confidence interval of the median.
INTERVAL = "confidence_interval"

Report = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Context:
    """The commit, load and machine of a run; ``rounds`` is the default number."""

    commit: str
    load: float
    machine: dict[str, Any]
    rounds: int


def read_context(rounds: int) -> Context:
    """Return the context of a run that starts now."""
    machine = {
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30), 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }
    return Context(_commit(), round(os.getloadavg()[0], 2), machine, rounds)


def load(path: Path = PATH) -> Report | None:
    """Return the last report, or None if there is none."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def save(report: Report, path: Path = PATH) -> None:
    """Write a report."""
    path.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def merge(previous: Report | None, context: Context, samples: Mapping[str, Sequence[float]]) -> Report:
    """Return the report after a run that measured these figures, given the values of all rounds.

    A run of all figures replaces the report. A partial run replaces its figures, each with differences of its context.
    """
    head = dataclasses.asdict(context)
    kept: dict[str, Any] = {}
    if previous and not samples.keys() >= FIGURES.keys():
        head = {name: previous[name] for name in head}
        kept = previous["figures"]
    figures = {**kept, **{name: _entry(name, values, context, head) for name, values in samples.items()}}
    return {**head, "figures": {name: figures[name] for name in FIGURES if name in figures}}


def _entry(name: str, values: Sequence[float], context: Context, head: Mapping[str, Any]) -> dict[str, Any]:
    """Return a figure: the median of its values, their range, and with enough values the interval of the median."""
    ranges = {"spread": (min(values), max(values)) if len(values) > 1 else None, INTERVAL: median_interval(values)}
    known_ranges = {kind: list(map(_rounded, limits)) for kind, limits in ranges.items() if limits}
    context_of_entry = {"rounds": len(values), "commit": context.commit, "load": context.load}
    if context_of_entry["commit"] == head["commit"]:
        del context_of_entry["load"]
    differing = {key: value for key, value in context_of_entry.items() if value != head[key]}
    return {"value": _rounded(statistics.median(values)), **FIGURES[name].to_dict(), **known_ranges, **differing}


def lines(figures: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each figure, with its bounds and whether it reaches the first."""
    yield f"{'figure':<38}{'value':>10} {'unit':<9}{'95 % interval':<18}{'wanted':>10}{'moonshot':>10}"
    for name, figure in figures.items():
        bounds = "".join(f"{bound(figure, kind):>10}" for kind in ("wanted", "moonshot"))
        interval = span(figure[INTERVAL]) if INTERVAL in figure else ""
        verdict = "" if "wanted" not in figure else "  reached" if is_reached(figure) else "  MISSED"
        yield f"{name:<38}{number(figure['value']):>10} {figure['unit']:<9}{interval:<18}{bounds}{verdict}".rstrip()


def is_reached(figure: Mapping[str, Any]) -> bool:
    """Return whether a figure reaches its bound ``wanted``."""
    return reaches(figure["value"], figure["wanted"], figure["better"])


def bound(figure: Mapping[str, Any], kind: str) -> str:
    """Return a bound as text, such as ``<= 1.6``, or an empty text."""
    if kind not in figure:
        return ""
    return f"{'<=' if figure['better'] == 'lower' else '>='} {number(figure[kind])}"


def number(value: float) -> str:
    """Return a number as text with three significant digits, or as an integer."""
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def span(limits: Sequence[float]) -> str:
    """Return a range as text."""
    return " to ".join(map(number, limits))


def _rounded(value: float) -> float:
    """Round to four significant digits; integers stay exact."""
    return value if value == int(value) else float(f"{value:.4g}")


def _commit() -> str:
    excluded = [f":!{path}" for path in GENERATED]
    dirty = "-dirty" if _git("status", "--porcelain", "--", ".", *excluded) else ""
    return _git("rev-parse", "HEAD") + dirty


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
