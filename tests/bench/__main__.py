"""Measure everything in one run, and write docs/bench.json and the tables generated from it."""

from __future__ import annotations

import argparse
import dataclasses
import signal
import sys
import time
from collections.abc import Callable, Sequence

from tests.bench import code_size, creation, figures, lab, network, planner, playbooks, report, start_up, tables
from tests.bench.timing import BenchError

ROUNDS = 3

Samples = dict[str, list[float]]


@dataclasses.dataclass(frozen=True)
class Part:
    """The function that measures the figures of a part, given a number of rounds, and the default of that number.

    Ratios of network paths have more, whatever the number.
    """

    measure: Callable[[int], Samples]
    rounds: int = ROUNDS
    needs_lab: bool = True


# Parts without rounds are measured once, as is the part whose round takes a minute.
PARTS = {
    "code": Part(lambda _rounds: code_size.measure(), needs_lab=False),
    "planner": Part(lambda _rounds: planner.measure(), needs_lab=False),
    "create": Part(creation.measure),
    "list": Part(creation.measure_list),
    "command": Part(playbooks.measure_command),
    "long_queue": Part(playbooks.measure_long_queue),
    "ten_creates": Part(playbooks.measure_ten_creates, rounds=1),
    "start_up": Part(start_up.measure),
    "network": Part(network.measure),
}


def measure(names: Sequence[str], rounds: int | None, samples: Samples) -> list[str]:
    """Add the figures of parts to ``samples`` and return the errors; a failed part does not stop the others."""
    failures: list[str] = []
    for name in names:
        part, started_at = PARTS[name], time.monotonic()
        print(f"\nbench: {figures.PARTS[name]}", flush=True)
        try:
            values = part.measure(rounds or part.rounds)
            if values.keys() != figures.of_part(name):
                raise BenchError(f"{sorted(values.keys() ^ figures.of_part(name))} are unexpected or missing")
            samples |= values
        except (BenchError, AssertionError) as error:
            failures.append(f"{name}: {error}")
        print(f"bench: {name} took {time.monotonic() - started_at:.0f} s", flush=True)
    return failures


def write(context: report.Context, samples: Samples) -> None:
    """Write the measured figures into the report and the tables, and print them."""
    merged = report.merge(report.load(), context, samples)
    report.save(merged)
    tables.write(merged)
    print()
    for name in filter(samples.__contains__, merged["figures"]):
        print(f"{name:<30}{tables.row(merged['figures'][name], merged)}")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options; ``only`` is a list of parts, by default all of them."""
    parser = argparse.ArgumentParser(prog="tests/bench/run", description=__doc__)
    parts = ", ".join(PARTS)
    parser.add_argument("--only", metavar="PART,…", help=f"measure only these and keep all other figures: {parts}")
    parser.add_argument("--rounds", type=int, help=f"number of rounds (default: {ROUNDS}, of ten_creates 1)")
    options = parser.parse_args(arguments)
    options.only = options.only.split(",") if options.only else list(PARTS)
    unknown = [name for name in options.only if name not in PARTS]
    if unknown:
        parser.error(f"--only: {', '.join(unknown)} is not one of {parts}")
    if options.rounds is not None and options.rounds < 1:
        parser.error("--rounds: at least 1")
    return options


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark; the exit code is 1 if a part failed, regardless of whether figures reach their bounds."""
    options = parse(arguments)
    if any(PARTS[name].needs_lab for name in options.only) and not lab.is_up():
        sys.exit("bench: the lab is not up: run `make lab`")
    # Everything is removed after SIGTERM too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    context = report.read_context(options.rounds or ROUNDS)
    print(f"bench: {context.machine['cores']} cores, load average {context.load} before")
    samples: Samples = {}
    try:
        failures = measure(options.only, options.rounds, samples)
    finally:
        # Also after an interrupt.
        if samples:
            write(context, samples)
    for failure in failures:
        print(f"bench: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
