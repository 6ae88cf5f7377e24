"""What came of a start on one agent, from what its steps registered."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.filter.outcome import FilterModule, outcome

SKIPPED: dict[str, Any] = {"skipped": True, "changed": False}
RUNNING = {"main1": {"status": "running"}}


def test_what_went_well_tells_the_containers() -> None:
    steps = [{"refused": None, "public_keys": {}}, SKIPPED, {"changed": True}, {"containers": RUNNING}]
    assert outcome(steps, SKIPPED) == {"refused": "", "containers": RUNNING, "left": False}


def test_a_claim_that_was_refused_is_no_failure() -> None:
    assert outcome([{"refused": "no room"}, SKIPPED], {"changed": False}) == {
        "refused": "no room",
        "containers": {},
        "left": False,
    }


@pytest.mark.parametrize(
    ("step", "why"),
    [
        ({"failed": True, "msg": "the engine refused"}, "the engine refused"),
        ({"unreachable": True, "msg": "Connection timed out"}, "it became unreachable"),
        ({"failed": True}, "it failed without a word"),
        ({"failed": True, "results": [{"failed": False}, {"failed": True, "msg": "no such image"}]}, "no such image"),
    ],
    ids=["failed", "unreachable", "without a message", "an item of a loop"],
)
def test_the_first_step_that_failed_says_why(step: dict[str, Any], why: str) -> None:
    steps = [{"refused": None}, step, {"failed": True, "msg": "because of that"}]
    assert outcome(steps, {"changed": True})["failed"] == why


@pytest.mark.parametrize("rollback", [{"failed": True, "msg": "no"}, {"unreachable": True}])
def test_a_rollback_that_failed_may_have_left_something(rollback: dict[str, Any]) -> None:
    assert outcome([{"failed": True, "msg": "no"}], rollback)["left"] is True


def test_it_is_a_filter() -> None:
    assert FilterModule().filters() == {"outcome": outcome}
