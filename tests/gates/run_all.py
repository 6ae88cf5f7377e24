"""Run every gate, and print the result and the duration of each at the end.

Tests against the lab take longest, and wait for their hosts as often as they compute: the gates without a lab run
in parallel, with a smaller share of the processor. The lab is removed at the end, unless it existed before.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ALONE = ("lint", "types", "unit", "docs", "docs-site", "changelog", "build", "sanity")
ON_THE_LAB = ("lab", "integration", "molecule")
NICE = ("nice", "-n", "15")
# Where Linux schedules the processes of a session as one group, a niceness counts within its group only, and the hosts
# of the lab are groups of their own.
GROUP_NICE = "5"
LOGS = Path(".cache/gates")
FROM_MAKE = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")


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

    def run(self, gate: str) -> Outcome:
        """Run one target to completion in its own make; then print its output."""
        log = LOGS / f"{gate}.log"
        started_at = time.monotonic()
        verdict = "failed" if self._make(gate, log) else "ok"
        seconds = time.monotonic() - started_at
        with self._lock:
            print(f"\n=== {gate} ===\n{log.read_text(errors='replace')}", end="")
            print(f"=== {gate}: {verdict}, {seconds:.1f} s ===", flush=True)
        return Outcome(gate, verdict, seconds)

    def lane(self, gates: Sequence[str]) -> list[Outcome]:
        """Run gates one after the other; skip those on the lab if it could not be built."""
        outcomes: list[Outcome] = []
        for gate in gates:
            ready = all(outcome.verdict == "ok" for outcome in outcomes if outcome.gate == "lab")
            outcomes.append(self.run(gate) if ready else Outcome(gate, "not run", 0.0))
        return outcomes

    def end(self) -> None:
        """Stop all running targets and start no others."""
        with self._lock:
            self._ended = True
            for process in self._running:
                terminate(process)

    def _make(self, gate: str, log: Path) -> int:
        environment = {name: value for name, value in os.environ.items() if name not in FROM_MAKE}
        with log.open("w") as output:
            with self._lock:
                if self._ended:
                    return 1
                process = subprocess.Popen(
                    [*(NICE if gate in ALONE else ()), "make", "--no-print-directory", gate],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
                self._running.add(process)
            if gate in ALONE:
                lower_priority(process.pid)
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


def lower_priority(session: int) -> None:
    """Lower the priority of a session, where the kernel has a group for it; the session may have ended."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{session}/autogroup").write_text(GROUP_NICE)


def run_all(gates: Gates) -> Iterator[Outcome]:
    """Run every gate; a failed one stops only those that depend on it."""
    setup = gates.run("setup")
    yield setup
    if setup.verdict != "ok":
        return
    with ThreadPoolExecutor() as pool:
        try:
            for lane in [pool.submit(gates.lane, lane) for lane in (ALONE, ON_THE_LAB)]:
                yield from lane.result()
        finally:
            gates.end()


def main() -> None:
    os.chdir(Path(__file__).parents[2])
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, lambda *_: sys.exit("terminated"))
    was_up = Path(".lab/inventory.yml").exists()
    LOGS.mkdir(parents=True, exist_ok=True)
    outcomes: list[Outcome] = []
    try:
        outcomes.extend(run_all(Gates()))
    finally:
        if Path(".lab").exists() and not was_up:
            outcomes.append(Gates().run("lab-down"))
        print("\nSummary")
        for outcome in outcomes:
            print(f"  {outcome.gate:<32} {outcome.verdict:<8} {outcome.seconds:7.1f} s")
    if any(outcome.verdict != "ok" for outcome in outcomes):
        sys.exit("make test: failed")
    print("make test: every gate passed")


if __name__ == "__main__":
    main()
