"""Measure side by side, in turns, and print medians and ratios."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.bench.contenders import Floor, Session, Tasks
from tests.bench.measured import BenchError, Run
from tests.bench.other_ansible import ensure_other_ansible
from tests.bench.setting import COUNT, CPU, MEMORY, SETTINGS, Setting
from tests.integration.laboratory import AGENTS, INVENTORY, remains

Seconds = dict[str, list[float]]
STARTUP, FLOOR, TASKS = "start-up of Ansible", "docker run over SSH", "community.docker"
CREATE, AGAIN, TERMINATE = "create_session", "create_session again", "terminate_session"
ROWS = (STARTUP, FLOOR, TASKS, CREATE, AGAIN, TERMINATE)

RATIOS: tuple[tuple[str, Callable[[dict[str, float]], float], str], ...] = (
    ("(create - start-up) / docker run", lambda median: (median[CREATE] - median[STARTUP]) / median[FLOOR], "<= 2.0"),
    ("community.docker / create", lambda median: median[TASKS] / median[CREATE], ">= 2.0"),
    ("create again / create", lambda median: median[AGAIN] / median[CREATE], "<= 0.5"),
)


class Bench:
    """All contenders, and what was measured of them."""

    def __init__(self, folder: Path) -> None:
        self.floor, self.session = Floor(folder), Session(folder)
        self.tasks = Tasks(folder, ensure_other_ansible())
        self.seconds: dict[str, Seconds] = {setting.title: {row: [] for row in ROWS} for setting in SETTINGS}
        self.creations: dict[str, list[Run]] = {setting.title: [] for setting in SETTINGS}

    def clear(self) -> None:
        """Remove what the benchmark makes, also what an earlier one left that was killed."""
        self.session.terminate()
        self.floor.remove(AGENTS)

    def take_turns(self, setting: Setting) -> None:
        """Measure every contender once."""
        seconds = self.seconds[setting.title]
        seconds[STARTUP].append(self.tasks.startup())
        for row, contender in ((FLOOR, self.floor), (TASKS, self.tasks)):
            seconds[row].append(contender.create(setting))
            self.floor.remove(setting.agents)
        created = self.session.create(setting)
        self.creations[setting.title].append(created)
        seconds[CREATE].append(created.seconds)
        seconds[AGAIN].append(self.session.create(setting).seconds)
        seconds[TERMINATE].append(self.session.terminate().seconds)

    def medians(self, setting: Setting) -> dict[str, float]:
        """Return the median of each row, in seconds."""
        return {row: statistics.median(values) for row, values in self.seconds[setting.title].items()}

    def middle_creation(self, setting: Setting) -> Run:
        """Return the creation that took the median of the time."""
        return sorted(self.creations[setting.title], key=lambda run: run.seconds)[self._rounds(setting) // 2]

    def _rounds(self, setting: Setting) -> int:
        return len(self.creations[setting.title])


def table(bench: Bench) -> Iterable[str]:
    """Return the lines of medians and of ratios."""
    titles = [setting.title for setting in SETTINGS]
    medians = [bench.medians(setting) for setting in SETTINGS]
    yield _row("seconds", titles, "")
    yield from (_row(row, [f"{one[row]:.2f}" for one in medians], "") for row in ROWS)
    yield ""
    yield _row("ratios", titles, "wanted")
    yield from (_row(name, [f"{ratio(one):.2f}" for one in medians], wanted) for name, ratio, wanted in RATIOS)


def profile(run: Run) -> Iterable[str]:
    """Return a line for each part of a creation, with the time that each host took of it."""
    for part in run.parts:
        hosts = "  ".join(f"{host} {seconds:.2f}" for host, seconds in sorted(part.hosts.items()))
        name = part.name.removeprefix("backendai.cluster.session : ")
        yield f"{part.began:6.2f} {part.seconds:6.2f}  {name:<38} {hosts}".rstrip()


def _row(name: str, cells: Iterable[str], last: str) -> str:
    return f"{name:<34}{''.join(f'{cell:>14}' for cell in cells)}{last:>10}".rstrip()


def report(bench: Bench, rounds: int, load: float) -> None:
    """Print everything that was measured; ``load`` is what else the machine had to do when it began."""
    print(f"\n{COUNT} containers of cpu {CPU} and mem {MEMORY}; medians of {rounds} rounds")
    print(f"machine: {os.cpu_count()} cores, load average {load:.1f} before\n")
    print("\n".join(table(bench)))
    for setting in SETTINGS:
        print(f"\nWhere a creation on {setting.title} spends its time (began, took, and until each host was done)\n")
        print("\n".join(profile(bench.middle_creation(setting))))


def main() -> int:
    """Run the benchmark; its exit code says only whether everything worked."""
    parser = argparse.ArgumentParser(prog="tests/bench/run", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every measurement there")
    options = parser.parse_args()
    if not INVENTORY.exists():
        sys.exit("bench: the lab is not up: run `make lab`")
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        bench.clear()
        before = remains()
        try:
            for number in range(options.rounds):
                print(f"bench: round {number + 1} of {options.rounds}", flush=True)
                for setting in SETTINGS:
                    bench.take_turns(setting)
        finally:
            bench.clear()
        if before != remains():
            raise BenchError("something is left on the agents that was not there before")
    report(bench, options.rounds, load)
    if options.json:
        options.json.write_text(json.dumps(bench.seconds, indent=2))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BenchError as error:
        sys.exit(f"bench: {error}")
