"""The benchmark's report, ``docs/bench.json``: the medians of the last run of each part."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from math import comb
from pathlib import Path
from typing import Any

from tests.bench.figures import FIGURES

ROOT = Path(__file__).resolve().parents[2]
PATH = ROOT / "docs" / "bench.json"
# Files that the benchmark writes do not make a checkout dirty.
GENERATED = ("docs/bench.json", "docs/performance.md", "README.md")

# The key of a figure's confidence interval of the median.
INTERVAL, CONFIDENCE = "confidence_interval", 0.95

# What a figure has only if it has a bound.
_BOUNDS = ("wanted", "moonshot")

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
    """Return the last report with today's bounds and without what is no figure any more, or None if there is none."""
    if not path.exists():
        return None
    report = json.loads(path.read_text(encoding="utf-8"))
    entries: dict[str, dict[str, Any]] = report["figures"]
    figures = {
        name: {**{key: value for key, value in entries[name].items() if key not in _BOUNDS}, **figure.to_dict()}
        for name, figure in FIGURES.items()
        # Another text is another figure.
        if name in entries and entries[name]["what"] == figure.what
    }
    return {**report, "figures": figures}


def save(report: Report, path: Path = PATH) -> None:
    """Write a report."""
    path.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def merge(previous: Report | None, context: Context, samples: Mapping[str, Sequence[float]]) -> Report:
    """Return the report after a run that measured these figures, given the values of all rounds; others are kept."""
    kept = previous["figures"] if previous else {}
    figures = {**kept, **{name: _entry(name, values, context) for name, values in samples.items()}}
    return {**dataclasses.asdict(context), "figures": {name: figures[name] for name in FIGURES if name in figures}}


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % confidence interval of the median of independent values; None for fewer than six.

    Each value is below the median with probability one half, so the number of values below it has a binomial
    distribution: of 20 values, the interval is from the 6th to the 15th in order.
    """
    count = len(values)
    # The probability that the median is below the smallest value, below the second smallest, ...
    outside, ranks = 0.5**count, 0
    while outside <= (1 - CONFIDENCE) / 2:
        ranks += 1
        outside += comb(count, ranks) * 0.5**count
    if not ranks:
        return None
    ordered = sorted(values)
    return ordered[ranks - 1], ordered[-ranks]


def _entry(name: str, values: Sequence[float], context: Context) -> dict[str, Any]:
    """Return a figure: the median of its values, their range, and with enough values the interval of the median."""
    ranges = {"spread": (min(values), max(values)) if len(values) > 1 else None, INTERVAL: median_interval(values)}
    return {
        "value": _rounded(statistics.median(values)),
        **FIGURES[name].to_dict(),
        **{kind: list(map(_rounded, limits)) for kind, limits in ranges.items() if limits},
        "rounds": len(values),
        "commit": context.commit,
        "load": context.load,
    }


def _rounded(value: float) -> float:
    """Round to four significant digits; integers stay exact."""
    return value if value == int(value) else float(f"{value:.4g}")


def _commit() -> str:
    excluded = [f":!{path}" for path in GENERATED]
    dirty = "-dirty" if _git("status", "--porcelain", "--", ".", *excluded) else ""
    return _git("rev-parse", "HEAD") + dirty


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
