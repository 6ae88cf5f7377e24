"""Kill -9 at random moments: ``python -m tests.integration.kills --rounds 30`` does it as often as is wanted.

A run, an engine, or an agent as a whole is killed while a session is created, then while it is ended. Once everything
is up again, one run makes the session whole, or takes it away; nothing remains in the end.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.integration.conftest import Sessions
from tests.integration.laboratory import AGENTS, BUSYBOX, ROOT, TIMEOUT, command, held, launch, on, queue, remains
from tests.lab.engine import Engine
from tests.lab.hosts import container_name
from tests.lab.identity import HOSTS, Lab, remembered

VICTIMS = ("run", "engine", "agent")
TASKS = 12
"""How many tasks a run has, about: the moment is within one of them."""

ASKED = {
    "image": BUSYBOX,
    "cluster_mode": "multi-node",
    "cluster_size": 3,
    "agent_selection": "dispersed",
    "resources": {"cpu": 1, "mem": "128m"},
    "failure_policy": "restart",
}


@dataclasses.dataclass(frozen=True)
class Moment:
    """When something is killed: that many seconds after a run comes to its n-th task, or else at its end."""

    task: int
    seconds: float

    def __str__(self) -> str:
        return f"task {self.task} + {self.seconds:.2f} s"

    @classmethod
    def some(cls, chance: random.Random) -> Moment:
        """Return any moment."""
        return cls(chance.randint(1, TASKS), chance.uniform(0, 1))


@dataclasses.dataclass(frozen=True)
class Victim:
    """What is killed: ``run``, or the ``engine`` of an agent, or the ``agent`` itself."""

    kind: str
    agent: str

    def kill(self, run: subprocess.Popen[str]) -> None:
        """Kill it, and bring it back where that takes more than another run."""
        if self.kind == "run":
            os.killpg(run.pid, signal.SIGKILL)
        elif self.kind == "engine":
            on(self.agent, "kill -KILL $(pidof dockerd containerd)")
        else:
            self._host("kill")
            self._host("start")
        if self.kind != "run":
            self._await()

    def _host(self, what: str) -> None:
        lab = Lab(ROOT)
        state = remembered(lab)
        assert state, "the lab is not up"
        host = next(one for one in HOSTS if one.name == self.agent)
        Engine(lab, state.docker_host).docker(what, container_name(state, lab, host))

    def _await(self) -> None:
        start = "systemctl reset-failed docker.service; systemctl start docker.service && echo it is back"
        deadline = time.monotonic() + TIMEOUT
        while "it is back" not in on(self.agent, start, check=False):
            assert time.monotonic() < deadline, f"{self.agent} did not come back"
            time.sleep(0.5)


def struck(victim: Victim, moment: Moment, line: list[str]) -> str:
    """Run a playbook, kill the victim at that moment, and return what the run printed until its end."""
    printed, tasks = [], 0
    with launch(line) as run:
        assert run.stdout
        for text in run.stdout:
            printed.append(text)
            tasks += text.startswith("TASK [")
            if tasks == moment.task:
                break
        time.sleep(moment.seconds)
        victim.kill(run)
        rest, _nothing = run.communicate(timeout=TIMEOUT)
    return "".join([*printed, rest])


def lives(starting: Victim, ending: Victim, chance: random.Random, folder: Path) -> Iterator[str]:
    """Kill one while a session is created, one while it is ended; yield what was done after each, once it holds."""
    sessions = Sessions(folder)
    before = remains()

    def killed(victim: Victim, playbook: str, wanted: str, **asked: Any) -> str:
        moment = Moment.some(chance)
        variables = {f"session_{key}": value for key, value in asked.items()}
        output = struck(victim, moment, command(playbook, folder, variables))
        again = chance.choice([playbook, "schedule_sessions"])
        said = f"{victim.kind} on {victim.agent} killed at {moment}, then one {again}"
        run = sessions.run(again, **(asked if again == playbook else {}))
        assert run.code == 0, f"{said}:\n{output}\n{run.output}"
        record = sessions.listed().get(sessions.name)
        status = record["status"] if record else "gone"
        assert status in ({wanted} if again == playbook else {"RUNNING", "gone"}), f"{said}: {record}\n{output}"
        return f"{playbook}: {said}: {status}"

    name = {"name": sessions.name}
    try:
        said = killed(starting, "create_session", "RUNNING", **name, **ASKED)
        whole = sessions.create(**name, **ASKED)
        assert whole.code == 0, f"{said}:\n{whole.output}"
        assert (whole.changed == 0) == said.endswith("RUNNING"), f"{said}:\n{whole.output}"
        yield said
        said = killed(ending, "terminate_session", "gone", **name)
        yield said
    finally:
        ended = sessions.terminate()
    assert ended.code == 0, f"{said}:\n{ended.output}"
    assert remains() == before, said
    assert not any(held().values()), said
    assert {one["state"] for one in queue().values()} <= {"ended"}, said


def main() -> int:
    """Kill as often as is asked, and say what came of each."""
    parser = argparse.ArgumentParser(prog="python -m tests.integration.kills", description="Kill at random moments.")
    parser.add_argument("--rounds", type=int, default=30, help="how many kills, two for each session (%(default)s)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="for the same moments again")
    parser.add_argument("--victims", nargs="+", choices=VICTIMS, default=VICTIMS, help="what is killed, in turn")
    asked = parser.parse_args()
    print(f"seed {asked.seed}")
    chance, done = random.Random(asked.seed), 0
    while done < asked.rounds:
        kinds = (asked.victims[number % len(asked.victims)] for number in (done, done + 1))
        starting, ending = (Victim(kind, chance.choice(AGENTS)) for kind in kinds)
        with tempfile.TemporaryDirectory() as folder:
            for said in lives(starting, ending, chance, Path(folder)):
                done += 1
                print(f"{done:3} {said}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
