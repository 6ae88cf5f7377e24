"""Starts of sessions with what agents replied to each step, and what `session_result` makes of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ansible_collections.backendai.cluster.plugins.action.session_result import ActionModule
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.decision import Decision
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import QueueEntry
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.owner import current_owner
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.store import QueueStore
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.record import unplanned_record
from ansible_collections.backendai.cluster.plugins.plugin_utils.control import start_arguments
from tests.unit.builders import SESSION_ID, plan, public_keys, requested, spec
from tests.unit.plugins.action.conftest import Run

Steps = Mapping[str, Mapping[str, Any]]
"""The replies of agents, by step, then by agent."""

OTHER_ID = "00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
MADE = plan({"agent1": 1, "agent2": 1})
OTHER = dataclasses.replace(plan({"agent1": 1}, name="other"), id=OTHER_ID)
GONE: dict[str, Any] = {"unreachable": True, "msg": "Failed to connect"}
CLAIMED: Steps = {"claim": {"agent1": {}, "agent2": {}}, "apply": {"agent1": {}, "agent2": {}}}
RUNS = {"status": "running", "image_digest": "sha256:1"}
COMMITTED: Steps = {
    **CLAIMED,
    "commit": {
        "agent1": {"containers": {"main1": RUNS}},
        "agent2": {"containers": {"sub1": {"status": "running", "image_digest": "sha256:2"}}},
    },
}
REFUSED: Steps = {"claim": {"agent1": {}, "agent2": {"refused": "no room"}}, "remove": {"agent1": {}, "agent2": {}}}
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
    return {
        **start_arguments(
            Decision(of, committed or partly, {}, keys, committed=committed or partly),
            [],
            never_completed=False,
        ),
        "nonce": f"nonce of {of.name}",
    }


def replies(*of: tuple[SessionPlan, Steps], **localhost: Any) -> dict[str, Any]:
    """Return the variables of a run with these replies about these sessions."""
    hostvars: dict[str, dict[str, Any]] = {"localhost": localhost, "agent1": {}, "agent2": {}}
    for created, steps in of:
        for step, by_agent in steps.items():
            for agent, reply in by_agent.items():
                result = hostvars[agent].setdefault(f"__session_{step}", {"sessions": {}})
                if reply is GONE:
                    hostvars[agent][f"__session_{step}"] = GONE
                else:
                    result["sessions"][created.id] = {"nonce": f"nonce of {created.name}", "steps": [step], **reply}
    return {"hostvars": hostvars}


def settle(run: Run, steps: Steps | None, *, check_mode: bool = False, **args: Any) -> dict[str, Any]:
    """Return the result for a session with these replies; without steps, for one that was not started."""
    arguments = {"starts": [decided()] if steps else [], "pending": None if steps else PENDING}
    hostvars = replies((MADE, steps or {}))
    return run(
        ActionModule, {"state": "settled", "started_at": 0.0, **arguments, **args}, hostvars, check_mode=check_mode
    )


def starts(queue: QueueStore, **changes: Any) -> QueueEntry:
    """Save that this run is starting the session, which was pending."""
    entry = requested(1, spec(), **{"id": SESSION_ID, "state": "CREATING", "owner": current_owner(), **changes})
    queue.save(entry)
    return entry
