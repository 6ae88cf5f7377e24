"""Run every gate, and print the result and the duration of each at the end.

Tests against the lab take longest, and wait for their hosts as often as they compute. So there are two labs, each for
half of the tests, and the gates without a lab run in parallel. The second lab is that of a copy of the checkout. Labs
are removed at the end, unless the checkout had one before.
"""

from __future__ import annotations

import contextlib
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

LOGS = Path(".cache/gates")
COPY = Path(".cache/second-checkout")
FROM_MAKE = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")


@dataclass(frozen=True)
class Gate:
    """A target of the Makefile in a checkout, with its variables for make."""

    target: str
    checkout: Path = Path()
    variables: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name in the summary and of the log."""
        return "-".join([self.target, *(["second"] if self.checkout == COPY else [])])


SETUP = Gate("setup")
ALONE = tuple(map(Gate, ("lint", "types", "unit", "docs", "docs-site", "changelog", "build", "sanity")))
FIRST_LAB = (Gate("lab"), Gate("integration", variables=("PART=1/2",)), Gate("molecule"))
SECOND_LAB = (Gate("lab", COPY), Gate("integration", COPY, ("PART=2/2",)))


@dataclass(frozen=True)
class Outcome:
    gate: str
    verdict: str
    seconds: float


class Gates:
    """Running targets of the Makefile; all are stopped when this program exits."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._ended = False

    def run(self, gate: Gate) -> Outcome:
        """Run one target to completion in its own make; then print its output."""
        log = LOGS / f"{gate.name}.log"
        started_at = time.monotonic()
        verdict = "failed" if self._make(gate, log) else "ok"
        seconds = time.monotonic() - started_at
        with self._lock:
            print(f"\n=== {gate.name} ===\n{log.read_text(errors='replace')}", end="")
            print(f"=== {gate.name}: {verdict}, {seconds:.1f} s ===", flush=True)
        return Outcome(gate.name, verdict, seconds)

    def lane(self, gates: Sequence[Gate]) -> list[Outcome]:
        """Run gates one after the other; skip those on the lab if it could not be built."""
        outcomes: list[Outcome] = []
        ready = True
        for gate in gates:
            outcomes.append(self.run(gate) if ready else Outcome(gate.name, "not run", 0.0))
            ready = ready and (gate.target != "lab" or outcomes[-1].verdict == "ok")
        return outcomes

    def end(self) -> None:
        """Stop all running targets and start no others."""
        with self._lock:
            self._ended = True
            for process in self._running:
                terminate(process)

    def _make(self, gate: Gate, log: Path) -> int:
        environment = {name: value for name, value in os.environ.items() if name not in FROM_MAKE}
        with log.open("w") as output:
            with self._lock:
                if self._ended:
                    return 1
                process = subprocess.Popen(
                    ["make", "--no-print-directory", gate.target, *gate.variables],
                    cwd=gate.checkout,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
                self._running.add(process)
            try:
                return process.wait()
            finally:
                with self._lock:
                    self._running.discard(process)
                terminate(process)


def terminate(process: subprocess.Popen[bytes]) -> None:
    """Stop the processes of a running gate, if it has not ended."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)


def copy_checkout() -> None:
    """Copy the files of the checkout, with their times, so that make finds nothing to do; its tools are linked."""
    if COPY.exists():
        sys.exit(f"make test: the second lab of an earlier run is still there; run `make lab-down` in {COPY.resolve()}")
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"]
    names = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split("\0")
    for path in map(Path, filter(os.path.lexists, names)):
        (COPY / path.parent).mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, COPY / path, follow_symlinks=False)
    (COPY / ".venv").symlink_to(Path(".venv").resolve())


def run_all(gates: Gates) -> Iterator[Outcome]:
    """Run every gate; a failed one stops only those that depend on it."""
    setup = gates.run(SETUP)
    yield setup
    if setup.verdict != "ok":
        return
    copy_checkout()
    with ThreadPoolExecutor() as pool:
        try:
            for lane in [pool.submit(gates.lane, lane) for lane in (ALONE, FIRST_LAB, SECOND_LAB)]:
                yield from lane.result()
        finally:
            gates.end()


def remove_copy() -> Iterator[Outcome]:
    """Remove the second lab, and the copy of the checkout unless that failed."""
    if (COPY / ".lab").exists():
        yield Gates().run(Gate("lab-down", COPY))
    if not (COPY / ".lab").exists():
        shutil.rmtree(COPY, ignore_errors=True)


def main() -> None:
    os.chdir(Path(__file__).parents[2])
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, lambda *_: sys.exit("terminated"))
    was_up = Path(".lab/inventory.yml").exists()
    LOGS.mkdir(parents=True, exist_ok=True)
    outcomes: list[Outcome] = list(remove_copy())
    try:
        outcomes.extend(run_all(Gates()))
    finally:
        outcomes.extend(remove_copy())
        if Path(".lab").exists() and not was_up:
            outcomes.append(Gates().run(Gate("lab-down")))
        print("\nSummary")
        for outcome in outcomes:
            print(f"  {outcome.gate:<32} {outcome.verdict:<8} {outcome.seconds:7.1f} s")
    if any(outcome.verdict != "ok" for outcome in outcomes):
        sys.exit("make test: failed")
    print("make test: every gate passed")


if __name__ == "__main__":
    main()
