"""Starts of sessions with what agents replied to each step, and what a run makes of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.plugin_utils._lifecycle.start_steps import (
    UNREACHABLE,
    Start,
    start_arguments,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.decision import Decision
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import QueueEntry
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.owner import current_owner
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.store import QueueStore
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.record import unplanned_record
from ansible_collections.backendai.cluster.plugins.plugin_utils._run.outcome import Outcome
from ansible_collections.backendai.cluster.plugins.plugin_utils._run.session_run import SessionRun
from ansible_collections.backendai.cluster.plugins.plugin_utils._run.site import Site
from ansible_collections.backendai.cluster.plugins.plugin_utils.session_action import SessionAction, TaskEdge
from tests.unit.builders import NONCE, SESSION_ID, plan, public_keys, requested, spec
from tests.unit.plugins.action.conftest import Run
from tests.unit.plugins.action.stages import request_of, run_options

Steps = Mapping[str, Mapping[str, Any]]
"""The replies of agents, by step, then by agent."""

OTHER_ID = "00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
MADE = plan({"agent1": 1, "agent2": 1})
OTHER = dataclasses.replace(plan({"agent1": 1}, name="other"), id=OTHER_ID)
GONE: dict[str, Any] = {"failed": UNREACHABLE}
CLAIMED: Steps = {"claim": {"agent1": {}, "agent2": {}}, "apply": {"agent1": {}, "agent2": {}}}
RUNS = {"status": "running", "image_digest": "sha256:1"}
COMMITTED: Steps = {
    **CLAIMED,
    "commit": {
        "agent1": {"containers": {"main1": RUNS}},
        "agent2": {"containers": {"sub1": {"status": "running", "image_digest": "sha256:2"}}},
    },
}
REMOVED: Steps = {"remove": {"agent1": {}, "agent2": {}}}
REFUSED: Steps = {"claim": {"agent1": {}, "agent2": {"refused": "no room"}}, **REMOVED}
FAILED: Steps = {
    **CLAIMED,
    "apply": {"agent1": {"failed": "no image."}, "agent2": GONE},
    "remove": {"agent1": {}, "agent2": GONE},
}
WHY = "the session 'train-llm' was not created: agent1: no image; agent2: it became unreachable."
WHY_AT_END = (
    f"{WHY[:-1]}; agent2 may still hold a part of it: the next run of backendai.cluster.schedule_sessions removes it"
    " once the agent can be used again."
)
NO_ROOM = {"reason": "no room for 1 of 4 containers", "shortfall": {"cpu": 1}}
PENDING = {**unplanned_record(spec(), "train-llm", "PENDING", SESSION_ID), "pending": NO_ROOM}


def decided(of: SessionPlan = MADE, *, committed: bool = False, partly: bool = False) -> dict[str, Any]:
    """Return a start of a session as it is planned; ``committed`` is one that was committed before, or ``partly``."""
    keys = {hostname: dataclasses.asdict(both) for hostname, both in public_keys(of).items()} if committed else {}
    return start_arguments(
        Decision(of, committed or partly, {}, keys, committed=committed or partly),
        [],
        nonce=NONCE,
        never_completed=False,
    )


def replied(start: dict[str, Any], steps: Steps) -> Start:
    """Return a start with these replies."""
    made = Start(start)
    for step, by_agent in steps.items():
        replies = {
            agent: {"steps": [step], **reply} if reply is not GONE else GONE for agent, reply in by_agent.items()
        }
        made = made.after(step, replies)
    return made


class Settling(SessionAction):
    """An action that settles starts, whose replies are known."""

    def run(self, _tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        variables, args = task_vars or {}, self._task.args
        options = run_options(record_path=args.get("path", ""))
        request = dataclasses.replace(request_of({"agents": [], **args}), run=options)
        site = Site(request, self.queue({}), variables["hostvars"], check_mode=self._task.check_mode)
        outcome = Outcome(self.tell)
        hosts: Any = SimpleNamespace(sent=set(args.get("sent") or ()))
        starting: Any = SimpleNamespace(starts=args["starts"])
        run = SessionRun(site, hosts, TaskEdge(self, site, variables), outcome)
        settled = run._settle(starting, {})
        for session in settled[:1]:
            run.write_record(session.record)
        return {"sessions": settled, "routes": run.routes_to(settled), "waits": run.anything_waits()}


def settle(
    run: Run, steps: Steps, start: dict[str, Any] | None = None, *, check_mode: bool = False, **args: Any
) -> dict[str, Any]:
    """Return what becomes of a session with these replies."""
    return settle_all(run, [replied(start or decided(), steps)], check_mode=check_mode, **args)


def settle_all(run: Run, starts: list[Start], *, check_mode: bool = False, **args: Any) -> dict[str, Any]:
    """Return what becomes of several sessions."""
    return run(Settling, {"starts": starts, **args}, {}, check_mode=check_mode)


def starts(queue: QueueStore, **changes: Any) -> QueueEntry:
    """Save that this run is starting the session, which was pending."""
    entry = requested(1, spec(), **{"id": SESSION_ID, "state": "CREATING", "owner": current_owner(), **changes})
    queue.save(entry)
    return entry
