"""Times of a playbook's tasks, derived from the times of its output lines."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator

from tests.bench.timing import Run

_HEADING = re.compile(r"^(?P<kind>PLAY|TASK|RUNNING HANDLER) (?:\[(?P<name>.*)\]|RECAP) \**$")
_RESULT = re.compile(r"^(?:ok|changed|skipping|fatal): \[(?P<host>[^\]]+)\]")


@dataclasses.dataclass(frozen=True)
class TaskTime:
    """One task: its start, its duration, and the time until each host was done, in seconds."""

    name: str
    began: float
    seconds: float
    hosts: dict[str, float]


def task_times(run: Run) -> list[TaskTime]:
    """Return the start-up, each task and the end of a playbook, in order."""
    headings = [(when, _name(match)) for when, line in run.lines if (match := _HEADING.match(line))]
    marks = [(0.0, "(start-up)"), *headings, (run.cost.wall, "")]
    times = []
    for (began, name), (ended, _next) in itertools.pairwise(marks):
        results = ((when, _RESULT.match(line)) for when, line in run.lines if began <= when < ended)
        hosts = {match["host"]: when - began for when, match in results if match}
        times.append(TaskTime(name, began, ended - began, hosts))
    return times


def table(run: Run) -> Iterator[str]:
    """Yield a line for each task: its start, its duration, and the time until each host was done."""
    for task in task_times(run):
        hosts = "  ".join(f"{host} {seconds:.2f}" for host, seconds in sorted(task.hosts.items()))
        yield f"{task.began:6.2f} {task.seconds:6.2f}  {task.name:<38} {hosts}".rstrip()


def _name(heading: re.Match[str]) -> str:
    if heading["name"] is None:
        return "(end)"
    return heading["name"] if heading["kind"] != "PLAY" else f"(play: {heading['name']})"
