"""Targets of the Makefile as processes: each ends with all that it started, and its CPU time is known."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

#: A target begins once it is told to: the guard knows it by then.
WHEN_TOLD = 'read -r _told && exec "$@" < /dev/null'

#: What make tells its own targets, and must not tell those of another make.
FROM_MAKE = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")


class Outcome(NamedTuple):
    """How a target has ended, with its seconds on the clock and of the CPU."""

    target: str
    verdict: str
    seconds: float = 0.0
    cpu: float = 0.0


class Targets:
    """Runs targets at the same time; all of them end when this process does, however it ends.

    ``other_cpu`` returns the CPU seconds of processes that targets use and have not started, such as those of a lab.
    """

    def __init__(self, logs: Path, other_cpu: Callable[[], float] = lambda: 0.0) -> None:
        self._logs, self._other_cpu = logs, other_cpu
        self._running: set[int] = set()
        self._lock = threading.Lock()
        self._ended = False
        self._guard = _start_guard()

    def run(self, target: str, *, counts_others: bool = False) -> Outcome:
        """Run one target to its end in a make of its own; then print its output."""
        log = self._logs / f"{target}.log"
        began, others = time.monotonic(), self._other_cpu()
        code, cpu = self._make(target, log)
        cpu += self._other_cpu() - others if counts_others else 0.0
        outcome = Outcome(
            target, "stopped" if self._ended else "failed" if code else "ok", time.monotonic() - began, cpu
        )
        with self._lock:
            print(f"\n=== {target} ===\n{log.read_text(errors='replace')}", end="")
            print(f"=== {target}: {outcome.verdict}, {outcome.seconds:.1f} s ===", flush=True)
        return outcome

    def lane(self, targets: Sequence[str], needed: Sequence[str] = (), *, counts_others: bool = False) -> list[Outcome]:
        """Run targets one after the other; none is run after one of ``needed`` has failed, or after :meth:`end`."""
        outcomes: list[Outcome] = []
        for target in targets:
            stopped = self._ended or any(outcome.target in needed and outcome.verdict != "ok" for outcome in outcomes)
            outcome = Outcome(target, "not run") if stopped else self.run(target, counts_others=counts_others)
            outcomes.append(outcome)
        return outcomes

    def end(self) -> None:
        """Stop what runs, and start no other target."""
        with self._lock:
            self._ended = True
            for pid in self._running:
                _terminate(pid)

    def _make(self, target: str, log: Path) -> tuple[int, float]:
        """Return the exit status of a target, and the CPU seconds of all its processes."""
        environment = {name: value for name, value in os.environ.items() if name not in FROM_MAKE}
        with log.open("wb") as output:
            with self._lock:
                if self._ended:
                    return 1, 0.0
                process = subprocess.Popen(
                    ["sh", "-c", WHEN_TOLD, "sh", "make", "--no-print-directory", target],
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
                self._running.add(process.pid)
                self._tell("+", process.pid)
                assert process.stdin
                with process.stdin as begin:
                    begin.write(b"\n")
            try:
                _pid, status, usage = os.wait4(process.pid, 0)
            finally:
                with self._lock:
                    self._running.discard(process.pid)
                    self._tell("-", process.pid)
                # Of what it has left behind, nothing stays.
                _terminate(process.pid)
        process.returncode = os.waitstatus_to_exitcode(status)
        return process.returncode, _seconds(usage)

    def _tell(self, sign: str, pid: int) -> None:
        os.write(self._guard, f"{sign}{pid}\n".encode())


def _seconds(usage: resource.struct_rusage) -> float:
    return usage.ru_utime + usage.ru_stime


def _terminate(pid: int) -> None:
    """Stop the processes of a target: it leads a process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGTERM)


def _start_guard() -> int:
    """Start a process that outlives this one, and then ends the targets that still run; return the pipe to it.

    It reads which targets begin (``+PID``) and end (``-PID``), until the pipe is closed, by a kill, too.
    """
    reading, writing = os.pipe()
    if os.fork() == 0:
        status = 1
        try:
            os.setsid()
            os.close(writing)
            with open(reading) as lines:
                running: set[int] = set()
                for line in lines:
                    (running.add if line[0] == "+" else running.discard)(int(line[1:]))
            for pid in running:
                _terminate(pid)
            status = 0
        finally:
            os._exit(status)
    os.close(reading)
    return writing
