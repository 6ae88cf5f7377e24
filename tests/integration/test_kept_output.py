"""Whatever ends a session, nothing is lost of the last MiB that its job had printed."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.integration.containers import wait_for_exit
from tests.integration.counted_use import HOUR, await_idle, use
from tests.integration.internals import OUTPUT, TASK_REMOVE
from tests.integration.interruptions import await_task
from tests.integration.kills import Victim
from tests.integration.laboratory import AGENTS, TIMEOUT, Kernel, agent_state, command, launch, run_in, run_on
from tests.integration.reconciliation import reconcile_paused
from tests.integration.session_requests import SMALL
from tests.integration.sessions import Sessions
from tests.integration.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.soak]

#: Ends of a session: by its command, by terminate_session, by its time, and by one during which a component is killed.
KINDS = ("command", "terminate", "force", "lifetime", "idle", "run", "engine", "agent")
#: The option of a session that ends by its time.
LIMITS = {"lifetime": {"max_lifetime": HOUR}, "idle": {"idle_timeout": HOUR}}

LINES = [f"{number:08} {'x' * 60}" for number in range(20_000)]
PRINTS_ALL = f"""python3 -c '
for number in range({len(LINES)}):
    print(f"{{number:08}} " + "x" * 60)
'"""
PRINTS = f"{PRINTS_ALL}\nuntil [ -e /tmp/end ]; do sleep 0.1; done"


def has_printed_all(main: Kernel) -> bool:
    """Return whether the engine has the last line."""
    return LINES[-1] in run_on(main["agent"], f"docker logs --tail 1 {main['container']}")


def end(sessions: Sessions, main: Kernel, kind: str, rng: random.Random, folder: Path) -> None:
    """End a session in one way; where a component is killed meanwhile, at a random moment, end it once more."""
    session = {"id": main["id"]}
    if kind == "command":
        run_in(main, "touch", "/tmp/end")
        wait_for_exit(main)
        ended = sessions.run("schedule_sessions")
    elif kind in LIMITS:
        with reconcile_paused(main["agent"]):
            if kind == "idle":
                await_idle(main)
            else:
                use(main, lived=2.0 * HOUR)
            ended = sessions.run("schedule_sessions")
        assert agent_state() == sessions.initial_state
    elif kind in ("terminate", "force"):
        ended = sessions.terminate(**session, force=kind == "force")
    else:
        with launch(command("terminate_session", folder, {"session_id": main["id"]})) as run:
            await_task(run, TASK_REMOVE)
            time.sleep(rng.uniform(0, 2))
            Victim(kind, main["agent"]).kill(run, folder)
            run.communicate(timeout=TIMEOUT)
        ended = sessions.terminate(**session)
    assert ended.code == 0, ended.output


def kept_lines(main: Kernel) -> list[str]:
    """Return the lines that the agent has kept of a session with one container, without timestamps."""
    kept = run_on(main["agent"], f"zcat {OUTPUT}/{main['id']}/main1@*@.gz").splitlines()
    return [line.partition(" ")[2] for line in kept]


def test_output_of_the_last_mib_outlives_every_end(rounds: Iterator[random.Random], tmp_path: Path) -> None:
    for rng in rounds:
        kind, agent = rng.choice(KINDS), rng.choice(AGENTS)
        with Sessions(tmp_path) as sessions:
            # A command that runs is use.
            job = {} if kind == "idle" else {"command": PRINTS}
            (main,) = sessions.start(designated_agents=[agent], **job, **LIMITS.get(kind, {}), **SMALL).kernels
            if not job:
                run_in(main, "sh", "-c", f"({PRINTS_ALL}) > /proc/1/fd/1")
            wait_until(partial(has_printed_all, main))
            end(sessions, main, kind, rng, tmp_path)
            kept = {*kept_lines(main)}
            lost = sum(len(line) + 1 for line in LINES if line not in kept)
            print(f"{kind} on {agent}: {lost} bytes lost", flush=True)
            assert lost == 0
        assert agent_state() == sessions.initial_state
