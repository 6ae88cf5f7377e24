"""Run every gate, and say at the end how each went and how long it took.

Tests against the lab take longest. So two runs share them, each on a lab of its own, the second in a copy of the
checkout; beside them run the gates that need no lab. Labs are taken down at the end, but one that was there before.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ALONE = ("lint", "types", "unit", "docs", "changelog", "build", "sanity")
ROOT = Path(__file__).resolve().parents[2]
COPY = Path(".cache/second")
LOGS = Path(".cache/gates")
SHARE = Path(".cache/share")
INTEGRATION = f"integration SHARE={ROOT / SHARE}"
FIRST_LAB = ("lab", "molecule", INTEGRATION)
SECOND_LAB = ("setup", "lab", INTEGRATION)
FROM_MAKE = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")


@dataclass(frozen=True)
class Outcome:
    gate: str
    verdict: str
    seconds: float


class Gates:
    """Targets of the Makefile that run; none goes on when this program ends."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._ended = False

    def run(self, gate: str, folder: Path = Path()) -> Outcome:
        """Run one target, as a make of its own, to its end; then show what it printed."""
        target = gate.split(maxsplit=1)[0]
        name = f"{target} in {folder.name}" if folder.name else target
        log = LOGS / f"{name}.log"
        began = time.monotonic()
        verdict = "failed" if self._make(gate, folder, log) else "ok"
        seconds = time.monotonic() - began
        with self._lock:
            print(f"\n=== {name} ===\n{log.read_text(errors='replace')}", end="")
            print(f"=== {name}: {verdict}, {seconds:.1f} s ===", flush=True)
        return Outcome(name, verdict, seconds)

    def lane(self, gates: Sequence[str], folder: Path = Path()) -> list[Outcome]:
        """Run gates one after the other; after one that the next ones need, they are not run if it failed."""
        outcomes: list[Outcome] = []
        for gate in gates:
            needed = [one for one in outcomes if one.gate.split(maxsplit=1)[0] in ("setup", "lab")]
            ready = all(one.verdict == "ok" for one in needed)
            outcomes.append(self.run(gate, folder) if ready else Outcome(gate.split(maxsplit=1)[0], "not run", 0.0))
        return outcomes

    def end(self) -> None:
        """Take down what runs, and start nothing more."""
        with self._lock:
            self._ended = True
            for process in self._running:
                process.terminate()

    def _make(self, gate: str, folder: Path, log: Path) -> int:
        environment = {name: value for name, value in os.environ.items() if name not in FROM_MAKE}
        with log.open("w") as output:
            with self._lock:
                if self._ended:
                    return 1
                process = subprocess.Popen(
                    ["make", "--no-print-directory", *gate.split()],
                    cwd=folder,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
                self._running.add(process)
            try:
                return process.wait()
            finally:
                self._running.discard(process)


def copy_checkout(to: Path) -> None:
    """Copy what is in the checkout, committed or not, and nothing that make has made."""
    shutil.rmtree(to, ignore_errors=True)
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    for name in filter(os.path.lexists, listed.split("\0")):
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(name, to / name, follow_symlinks=False)


def run_all(gates: Gates) -> Iterator[Outcome]:
    """Run every gate; one that fails does not stop the others, save those that need it."""
    setup = gates.run("setup")
    yield setup
    if setup.verdict != "ok":
        return
    copy_checkout(COPY)
    with ThreadPoolExecutor() as pool:
        try:
            lanes = [(ALONE, Path()), (FIRST_LAB, Path()), (SECOND_LAB, COPY)]
            for lane in [pool.submit(gates.lane, *lane) for lane in lanes]:
                yield from lane.result()
        finally:
            gates.end()


def main() -> None:
    os.chdir(ROOT)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    found_up = Path(".lab/inventory.yml").exists()
    LOGS.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(SHARE, ignore_errors=True)
    outcomes: list[Outcome] = []
    try:
        outcomes.extend(run_all(Gates()))
    finally:
        left = [folder for folder in (Path(), COPY) if (folder / ".lab").exists() and not (found_up and folder != COPY)]
        outcomes.extend(Gates().run("lab-down", folder) for folder in left)
        shutil.rmtree(COPY, ignore_errors=True)
        print("\nSummary")
        for outcome in outcomes:
            print(f"  {outcome.gate:<32} {outcome.verdict:<8} {outcome.seconds:7.1f} s")
    if any(outcome.verdict != "ok" for outcome in outcomes):
        sys.exit("make test: failed")
    print("make test: every gate passed")


if __name__ == "__main__":
    main()
