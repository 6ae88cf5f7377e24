"""Search for slow decisions: half of the cases are new, the others are changes of the slowest ones until now.

Each is decided twice, and the shorter CPU time counts. A search that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import time
from pathlib import Path
from typing import Any

from tests.bench.figures import FIGURES
from tests.bench.lab import ROOT
from tests.bench.mixed import make, milliseconds

PROGRESS = ROOT / ".cache" / "slow_decisions.json"
KEPT, SAVED_EVERY = 20, 10.0


@dataclasses.dataclass
class Search:
    """What was found until now: the times of new cases, and the slowest cases by name."""

    seed: int
    seconds: float = 0.0
    decisions: int = 0
    times: list[float] = dataclasses.field(default_factory=list)
    slowest: list[tuple[float, str]] = dataclasses.field(default_factory=list)

    def step(self) -> None:
        """Decide one more case."""
        number, self.decisions = self.decisions, self.decisions + 1
        rng = random.Random(f"{self.seed}-{number}")
        origin = rng.choice(self.slowest)[1] if self.slowest and number % 2 else ""
        kind = rng.choice(("ordinary", "odd"))
        name = f"{origin}/{number}" if origin else f"{kind}-{self.seed}-{number}"
        case = make(name)
        needed = round(min(milliseconds(case), milliseconds(case)), 1)
        if not origin:
            self.times.append(needed)
        self.slowest = sorted([*self.slowest, (needed, name)], reverse=True)[:KEPT]

    def summary(self) -> str:
        """Return the percentiles of new cases, and the slowest of all."""
        times, (worst, name) = sorted(self.times), self.slowest[0]
        p50, p99 = (times[len(times) * part // 100] for part in (50, 99))
        return (
            f"decisions on mixed roles: {self.decisions:,} in {self.seconds:.0f} s, p50 {p50:.0f} ms, p99 {p99:.0f} ms,"
            f" worst {worst:.0f} ms ({name})"
        )


def run(search: Search, seconds: float, path: Path) -> None:
    """Search until it has taken so many seconds in all, and save the progress."""
    before, started_at, saved_at = search.seconds, time.monotonic(), time.monotonic()
    while search.seconds < seconds or not search.decisions:
        search.step()
        search.seconds = before + time.monotonic() - started_at
        if time.monotonic() - saved_at > SAVED_EVERY:
            saved_at = time.monotonic()
            print(search.summary(), flush=True)
            save(search, path)


def save(search: Search, path: Path) -> None:
    """Write the progress."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(dataclasses.asdict(search)))
    temporary.replace(path)


def load(path: Path, seed: int | None) -> Search:
    """Return the saved search, unless another seed is requested, or a new one."""
    saved: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    if saved and seed in (None, saved["seed"]):
        return Search(**{**saved, "slowest": list(map(tuple, saved["slowest"]))})
    return Search(random.randrange(1 << 32) if seed is None else seed)


def main() -> int:
    """Search, and fail if a decision takes longer than wanted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="how long to search")
    parser.add_argument("--seed", type=int, help="repeat an earlier search")
    parser.add_argument("--progress", type=Path, default=PROGRESS, help="file with the progress")
    options = parser.parse_args()
    search = load(options.progress, options.seed)
    print(f"search for slow decisions: --seed {search.seed}, {search.seconds:.0f} s passed before", flush=True)
    run(search, options.seconds, options.progress)
    print(search.summary(), flush=True)
    options.progress.unlink(missing_ok=True)
    return int(search.slowest[0][0] > (FIGURES["decision_mixed_worst"].wanted or 0))


if __name__ == "__main__":
    raise SystemExit(main())
