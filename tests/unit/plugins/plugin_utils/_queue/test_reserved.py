"""A CREATING entry reserves its capacity before any agent reports its claim."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import (
    CorruptEntryError,
    Owner,
    QueueEntry,
    reserved_plans,
)
from tests.unit.builders import plan, queued

OWNER = Owner("manager1 boot", 4711, "123456")
PLAN = plan({"agent1": 2})
NOTED: dict[str, Any] = {"state": "CREATING", "owner": OWNER, "plan": PLAN}


@pytest.mark.parametrize(
    ("changes", "is_held", "own", "counts"),
    [
        ({}, False, False, True),
        ({"spec": None}, False, False, True),
        ({}, True, False, False),
        ({}, False, True, False),
        ({"owner": None}, False, False, False),
        ({"plan": None}, False, False, False),
        ({"state": "PENDING"}, False, False, False),
        ({"state": "TERMINATING", "spec": None}, False, False, False),
        ({"state": "TERMINATED", "spec": None}, False, False, False),
    ],
    ids=[
        "a run starts it",
        "a run starts its own",
        "agents hold it already",
        "it is what is planned",
        "its run is gone",
        "a run of another version starts it",
        "it waits",
        "it goes",
        "it is gone",
    ],
)
def test_plan_counts_that_a_live_run_carries_out_and_no_agent_shows(
    changes: dict[str, Any], is_held: bool, own: bool, counts: bool
) -> None:
    entry = queued(1, **{**NOTED, **changes})
    other = queued(2, **{**NOTED, "plan": plan({"agent2": 1})})
    plans = reserved_plans([entry, other], {entry.id} if is_held else set(), entry.id if own else "")
    assert plans == [*([PLAN] if counts else []), other.plan]


def test_entry_of_an_older_version_has_no_plan() -> None:
    written = json.loads(queued(1, **NOTED).to_json())
    assert written.pop("plan") == PLAN.to_dict()
    assert QueueEntry.from_json(json.dumps(written), "x.json") == queued(1, **{**NOTED, "plan": None})


@pytest.mark.parametrize("damaged", [{"id": "x"}, {**PLAN.to_dict(), "kernels": 1}], ids=["parts", "types"])
def test_entry_with_a_damaged_plan_is_a_damaged_entry(damaged: dict[str, Any]) -> None:
    written = {**json.loads(queued(1, **NOTED).to_json()), "plan": damaged}
    with pytest.raises(CorruptEntryError, match=r"^x\.json is corrupt \(.*\): move it to another folder"):
        QueueEntry.from_json(json.dumps(written), "x.json")
