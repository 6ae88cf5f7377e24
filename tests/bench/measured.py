"""A command and how long it took, and when it printed what."""

from __future__ import annotations

import dataclasses
import itertools
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

_HEADING = re.compile(r"^(?P<kind>PLAY|TASK|RUNNING HANDLER) (?:\[(?P<name>.*)\]|RECAP) \**$")
_HOST = re.compile(r"^(?:ok|changed|skipping|fatal): \[(?P<host>[^\]]+)\]")


class BenchError(Exception):
    """Something that is measured does not work; the message holds what it said."""


@dataclasses.dataclass(frozen=True)
class Part:
    """One task of a playbook: when it began and how long it took, and for each host when it was done, in seconds."""

    name: str
    began: float
    seconds: float
    hosts: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Run:
    """A command that succeeded: its wall time in seconds, and every line of its output with the time it came at."""

    seconds: float
    lines: list[tuple[float, str]]

    @property
    def parts(self) -> list[Part]:
        """What a playbook spent its time with: its start-up, each task, and its end."""
        headings = [(when, _name(line)) for when, line in self.lines if _HEADING.match(line)]
        marks = [(0.0, "(start-up)"), *headings, (self.seconds, "")]
        parts = []
        for (began, name), (ended, _next) in itertools.pairwise(marks):
            within = ((when, _HOST.match(line)) for when, line in self.lines if began <= when < ended)
            parts.append(
                Part(name, began, ended - began, {match["host"]: when - began for when, match in within if match})
            )
        return parts


def measured(command: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> Run:
    """Run a command to its end. Raises :class:`BenchError` when it fails."""
    began = time.monotonic()
    lines = []
    with subprocess.Popen(
        command,
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        lines = [(time.monotonic() - began, line.rstrip("\n")) for line in process.stdout or ()]
    seconds = time.monotonic() - began
    if process.returncode:
        said = "\n".join(line for _when, line in lines)
        raise BenchError(f"{' '.join(command)} ended with {process.returncode}:\n{said}")
    return Run(seconds, lines)


def _name(heading: str) -> str:
    match = _HEADING.match(heading)
    if not match or match["name"] is None:
        return "(end)"
    return match["name"] if match["kind"] != "PLAY" else f"(play: {match['name']})"
