"""Kills random components at random moments.

A run, an engine, or a whole agent is killed while a session is created, then while it is terminated. Once everything
is up again, one run repairs or removes the session; nothing is left behind in the end.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.integration.engines import start_engine
from tests.integration.internals import TASKS
from tests.integration.interruptions import await_task, kill_run
from tests.integration.laboratory import (
    AGENTS,
    BUSYBOX,
    LAB,
    TIMEOUT,
    agent_state,
    command,
    launch,
    queue_entries,
    run_on,
    stored_sessions,
)
from tests.integration.session_requests import THREE
from tests.integration.sessions import Sessions
from tests.integration.waiting import wait_until
from tests.lab.engine import Engine
from tests.lab.hosts import container_name
from tests.lab.identity import HOSTS, load_state

VICTIMS = ("run", "engine", "agent")
REQUEST = {**THREE, "image": BUSYBOX, "failure_policy": "restart"}

# An engine that was killed while it took a container off its network cleans up once a minute: until then, it holds the
# network namespace of the container, and with it a veth interface on the host.
CLEANED_WITHIN = 90


@dataclasses.dataclass(frozen=True)
class Moment:
    """The time of a kill: some seconds after the n-th task of a run starts, or at the end of the run."""

    task: int
    seconds: float

    def __str__(self) -> str:
        return f"task {self.task} + {self.seconds:.2f} s"

    @classmethod
    def choose(cls, rng: random.Random) -> Moment:
        """Return a random moment."""
        return cls(rng.randint(1, TASKS), rng.uniform(0, 1))


@dataclasses.dataclass(frozen=True)
class Victim:
    """The component to kill: ``run``, the ``engine`` of an agent, or the whole ``agent``."""

    kind: str
    agent: str

    def kill(self, run: subprocess.Popen[str], folder: Path) -> None:
        """Kill the component, and restart it if another run cannot do that; playbooks write to ``folder``."""
        if self.kind == "run":
            kill_run(run)
            return
        if self.kind == "engine":
            run_on(self.agent, "kill -KILL $(pidof dockerd containerd)")
        else:
            self._docker_host("kill")
            self._docker_host("start")
        start_engine(self.agent, folder)

    def _docker_host(self, command: str) -> None:
        state = load_state(LAB)
        assert state, "the lab is not up"
        host = next(host for host in HOSTS if host.name == self.agent)
        Engine(LAB, state.docker_host).docker(command, container_name(state, LAB, host))


def run_and_kill(victim: Victim, moment: Moment, line: list[str], folder: Path) -> str:
    """Run a playbook, kill the victim at that moment, and return the output of the run."""
    with launch(line) as run:
        printed = await_task(run, "", moment.task)
        time.sleep(moment.seconds)
        victim.kill(run, folder)
        rest, _nothing = run.communicate(timeout=TIMEOUT)
    return printed + rest


@dataclasses.dataclass(frozen=True)
class SessionLifecycle:
    """A session that is created and terminated while components are killed."""

    sessions: Sessions
    folder: Path
    rng: random.Random

    def kill_during(self, victim: Victim, playbook: str, expected: str, **request: Any) -> str:
        """Kill during a playbook; check that one more run leads to the expected status; return a description."""
        moment = Moment.choose(self.rng)
        variables = {f"session_{key}": value for key, value in request.items()}
        output = run_and_kill(victim, moment, command(playbook, self.folder, variables), self.folder)
        next_playbook = self.rng.choice([playbook, "schedule_sessions"])
        description = f"{playbook}: {victim.kind} on {victim.agent} killed at {moment}, then one {next_playbook}"
        run = self.sessions.run(next_playbook, **(request if next_playbook == playbook else {}))
        assert run.code == 0, f"{description}:\n{output}\n{run.output}"
        record = self.sessions.list_by_name().get(self.sessions.name)
        status = record["status"] if record else "gone"
        assert status in ({expected} if next_playbook == playbook else {"RUNNING", "gone"}), (
            f"{description}: {record}\n{output}"
        )
        return f"{description}: {status}"


def _differences(initial: dict[str, str], seconds: float) -> set[tuple[str, str]]:
    """Return what still differs on agents from their initial state after that time."""
    with contextlib.suppress(AssertionError):
        wait_until(lambda: agent_state() == initial, seconds)
    return {*agent_state().items()} ^ {*initial.items()}


def kill_at_start_and_end(rng: random.Random, folder: Path) -> Iterator[str]:
    """Kill once while a session is created and once while it is terminated; yield a description of each."""
    starting, ending = (Victim(kind, rng.choice(AGENTS)) for kind in rng.sample(VICTIMS, 2))
    with Sessions(folder) as sessions:
        lifecycle, name = SessionLifecycle(sessions, folder, rng), {"name": sessions.name}
        description = lifecycle.kill_during(starting, "create_session", "RUNNING", **name, **REQUEST)
        repaired = sessions.create(**REQUEST)
        assert repaired.code == 0, f"{description}:\n{repaired.output}"
        assert (repaired.changed == 0) == description.endswith("RUNNING"), f"{description}:\n{repaired.output}"
        yield description
        description = lifecycle.kill_during(ending, "terminate_session", "gone", **name)
        yield description
        ended = sessions.terminate()
        assert ended.code == 0, f"{description}:\n{ended.output}"
        engine_was_killed = "engine" in (starting.kind, ending.kind)
        left = _differences(sessions.initial_state, CLEANED_WITHIN if engine_was_killed else 0)
        assert not left, f"{description}: {left}"
        assert not any(stored_sessions().values()), description
        assert {entry["state"] for entry in queue_entries().values()} <= {"TERMINATED"}, description
