"""Kill -9 at random moments of what nobody chose.

A run, an engine, or an agent as a whole is killed while a session is created, then while it is ended. Once everything
is up again, one run makes the session whole, or takes it away; nothing remains in the end.
"""

from __future__ import annotations

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
from tests.integration.laboratory import AGENTS, BUSYBOX, ROOT, TIMEOUT, command, held, launch, on, queue, remains
from tests.integration.session_requests import THREE
from tests.integration.sessions import Sessions
from tests.lab.engine import Engine
from tests.lab.hosts import container_name
from tests.lab.identity import HOSTS, Lab, remembered

VICTIMS = ("run", "engine", "agent")
ASKED = {**THREE, "image": BUSYBOX, "failure_policy": "restart"}


@dataclasses.dataclass(frozen=True)
class Moment:
    """When something is killed: that many seconds after a run comes to its n-th task, or else at its end."""

    task: int
    seconds: float

    def __str__(self) -> str:
        return f"task {self.task} + {self.seconds:.2f} s"

    @classmethod
    def chosen(cls, chance: random.Random) -> Moment:
        """Return any moment."""
        return cls(chance.randint(1, TASKS), chance.uniform(0, 1))


@dataclasses.dataclass(frozen=True)
class Victim:
    """What is killed: ``run``, or the ``engine`` of an agent, or the ``agent`` itself."""

    kind: str
    agent: str

    def kill(self, run: subprocess.Popen[str], folder: Path) -> None:
        """Kill it, and bring it back where that takes more than another run; playbooks write to ``folder``."""
        if self.kind == "run":
            kill_run(run)
            return
        if self.kind == "engine":
            on(self.agent, "kill -KILL $(pidof dockerd containerd)")
        else:
            self._host("kill")
            self._host("start")
        start_engine(self.agent, folder)

    def _host(self, what: str) -> None:
        lab = Lab(ROOT)
        state = remembered(lab)
        assert state, "the lab is not up"
        host = next(host for host in HOSTS if host.name == self.agent)
        Engine(lab, state.docker_host).docker(what, container_name(state, lab, host))


def struck(victim: Victim, moment: Moment, line: list[str], folder: Path) -> str:
    """Run a playbook, kill the victim at that moment, and return what the run printed until its end."""
    with launch(line) as run:
        printed = await_task(run, "", moment.task)
        time.sleep(moment.seconds)
        victim.kill(run, folder)
        rest, _nothing = run.communicate(timeout=TIMEOUT)
    return printed + rest


@dataclasses.dataclass(frozen=True)
class Life:
    """A session that is killed at while it is created, and while it is ended."""

    sessions: Sessions
    folder: Path
    chance: random.Random

    def struck(self, victim: Victim, playbook: str, wanted: str, **asked: Any) -> str:
        """Kill during a playbook; check that one more run leaves the session as wanted; return what was done."""
        moment = Moment.chosen(self.chance)
        variables = {f"session_{key}": value for key, value in asked.items()}
        output = struck(victim, moment, command(playbook, self.folder, variables), self.folder)
        again = self.chance.choice([playbook, "schedule_sessions"])
        done = f"{playbook}: {victim.kind} on {victim.agent} killed at {moment}, then one {again}"
        run = self.sessions.run(again, **(asked if again == playbook else {}))
        assert run.code == 0, f"{done}:\n{output}\n{run.output}"
        record = self.sessions.listed().get(self.sessions.name)
        status = record["status"] if record else "gone"
        assert status in ({wanted} if again == playbook else {"RUNNING", "gone"}), f"{done}: {record}\n{output}"
        return f"{done}: {status}"


def killed_while_it_starts_and_ends(chance: random.Random, folder: Path) -> Iterator[str]:
    """Kill once while a session is created, once while it is ended; yield what was done after each, once it holds."""
    starting, ending = (Victim(kind, chance.choice(AGENTS)) for kind in chance.sample(VICTIMS, 2))
    with Sessions(folder) as sessions:
        life, name = Life(sessions, folder, chance), {"name": sessions.name}
        done = life.struck(starting, "create_session", "RUNNING", **name, **ASKED)
        whole = sessions.create(**ASKED)
        assert whole.code == 0, f"{done}:\n{whole.output}"
        assert (whole.changed == 0) == done.endswith("RUNNING"), f"{done}:\n{whole.output}"
        yield done
        done = life.struck(ending, "terminate_session", "gone", **name)
        yield done
        ended = sessions.terminate()
        assert ended.code == 0, f"{done}:\n{ended.output}"
        after = remains()
        assert after == sessions.before, f"{done}: {set(after.items()) ^ set(sessions.before.items())}"
        assert not any(held().values()), done
        assert {entry["state"] for entry in queue().values()} <= {"ended"}, done
