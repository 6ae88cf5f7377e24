"""Run the gates of `make test` or `make test-all`, and print the result, the seconds and the CPU seconds of each.

Other gates run beside those on the lab, which wait for hosts as often as they compute. The lab is removed at
the end, unless the checkout had one before. After ``--minutes`` what still runs is stopped, and the run has failed.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.gates.processes import Outcome, Targets
from tests.lab.identity import labs_of
from tests.lab.leftovers import cpu_seconds

LOGS = Path(".cache/gates")
#: What a run of everything needs at most: tools, packages of two releases, images, disks of six hosts.
DISK = 12 << 30


class Level(NamedTuple):
    """The gates of a command: those that leave the lab alone, and those on the lab, each list in its order."""

    alone: Sequence[str]
    on_lab: Sequence[str]


#: `lab` sets up the tools as well: it builds the hosts meanwhile. Molecule has hosts of its own.
LEVELS = {
    "test": Level(("setup", "unit", "lint", "types", "docs", "changelog"), ("lab", "acceptance")),
    "test-all": Level(
        ("setup", "unit", "lint", "types", "docs", "changelog", "docs-site", "build", "sanity", "molecule"),
        ("lab", "acceptance", "integration"),
    ),
}
#: Without what these make, no later gate of their list is run.
NEEDED = ("setup", "lab")


class RefusedError(Exception):
    """Why nothing was run, as one sentence."""


def check_machine() -> None:
    """Raise :class:`RefusedError` if the machine cannot run the gates."""
    if os.geteuid() != 0:
        raise RefusedError("run it as root: it makes network namespaces and starts a Docker engine for its lab")
    free = shutil.disk_usage(".").free
    if free < DISK:
        raise RefusedError(f"{Path.cwd()} has {free >> 30} GiB of free disk: it needs {DISK >> 30} GiB")


@contextlib.contextmanager
def only_run(command: str, path: Path = LOGS / "running") -> Iterator[None]:
    """Hold the lock of the checkout, which the kernel gives back when this process ends; its file says who has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise RefusedError(
                f"{file.read().strip()} has not ended in this checkout: wait for it, or stop it"
            ) from None
        file.truncate(0)
        file.write(f"make {command} (process {os.getpid()}, since {time.strftime('%H:%M:%S')})\n")
        file.flush()
        yield


def run_level(level: Level, targets: Targets) -> Iterator[Outcome]:
    """Run the gates of a level; a failed one stops only those that need what it makes."""
    with ThreadPoolExecutor(2) as pool:
        try:
            alone = pool.submit(targets.lane, level.alone, NEEDED)
            on_lab = pool.submit(targets.lane, level.on_lab, NEEDED, counts_others=True)
            for lane in (alone, on_lab):
                yield from lane.result()
        finally:
            targets.end()


def summary(command: str, began: float, outcomes: Sequence[Outcome]) -> str:
    """Return the last lines of a run: the state of the checkout, begin and end, and a line for each gate."""
    shown = "%Y-%m-%d %H:%M:%S"
    lines = [
        f"make {command} of {_commit()}",
        f"begin {time.strftime(shown, time.localtime(began))}, end {time.strftime(shown)}, {time.time() - began:.0f} s",
    ]
    lines += [
        f"  {each.target:<12} {each.verdict:<8} {each.seconds:7.1f} s {each.cpu:7.1f} s of CPU" for each in outcomes
    ]
    failed = [outcome.target for outcome in outcomes if outcome.verdict != "ok"]
    lines.append(f"make {command}: {'not passed: ' + ', '.join(failed) if failed else 'every gate passed'}")
    return "\n".join(lines)


def _commit() -> str:
    """Return the commit of the checkout, and whether files differ from it."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    changed = subprocess.run(["git", "status", "--porcelain"], capture_output=True, text=True, check=False).stdout
    return f"{commit or 'no commit'}{' with changes' if changed else ''}"


def run(command: str, minutes: float) -> int:
    """Run the gates of a command; return the exit status."""
    began, outcomes = time.time(), list[Outcome]()
    had_lab = Path(".lab/inventory.yml").exists()
    targets = Targets(LOGS, other_cpu=lambda: sum(map(cpu_seconds, labs_of(Path.cwd()))))
    limit = threading.Timer(minutes * 60, targets.end)
    limit.daemon = True
    limit.start()
    try:
        outcomes.extend(run_level(LEVELS[command], targets))
    finally:
        limit.cancel()
        targets.end()
        if Path(".lab").exists() and not had_lab:
            outcomes.append(Targets(LOGS).run("lab-down"))
        print(f"\n{summary(command, began, outcomes)}", flush=True)
    return 0 if all(outcome.verdict == "ok" for outcome in outcomes) else 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m tests.gates.run", description=__doc__)
    parser.add_argument("command", choices=LEVELS)
    parser.add_argument("--minutes", type=float, default=float(os.environ.get("GATES_MINUTES", "600")))
    options = parser.parse_args()
    os.chdir(Path(__file__).parents[2])
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, lambda *_: sys.exit("terminated"))
    try:
        check_machine()
        with only_run(options.command):
            return run(options.command, options.minutes)
    except RefusedError as reason:
        print(f"make {options.command}: {reason}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
