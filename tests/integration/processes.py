"""Looks at the processes of containers from their agent: the kernel says whose they are, not the container."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.integration.laboratory import TIMEOUT, Kernel, run_on, ssh
from tests.integration.programs import run_line


@dataclasses.dataclass(frozen=True)
class Process:
    """What a process is: its name, all of its users, groups and capabilities, and whether it can gain any."""

    name: str
    users: frozenset[int]
    groups: frozenset[int]
    capabilities: int
    gains_nothing: bool


def _parse(printed: str) -> set[Process]:
    return {
        Process(name, frozenset(users), frozenset([*groups, *others]), capabilities, gains_nothing)
        for name, users, groups, others, capabilities, gains_nothing in json.loads(printed)
    }


def container_processes(kernel: Kernel) -> set[Process]:
    """Return what the processes of a running container are now."""
    pid = run_on(kernel["agent"], f"docker inspect --format '{{{{.State.Pid}}}}' {kernel['container']}").strip()
    return _parse(run_on(kernel["agent"], run_line("processes", pid)))


@contextmanager
def watched_processes(agent: str) -> Iterator[set[Process]]:
    """Collect what the processes of all containers of an agent are, each few milliseconds, until the end."""
    seen: set[Process] = set()
    line = ssh(agent, run_line("processes"))
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout
        assert program.stdout.readline() == "ready\n"
        try:
            yield seen
        finally:
            seen |= _parse(program.communicate(timeout=TIMEOUT)[0])
