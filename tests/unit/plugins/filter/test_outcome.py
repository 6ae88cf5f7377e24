"""What came of a start on one agent, summed up from the results of its steps."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.filter.outcome import FilterModule, outcome

SKIPPED: dict[str, Any] = {"changed": False, "skipped": True}
CLAIMED: dict[str, Any] = {"changed": True, "failed": False, "refused": None, "public_keys": {}}
REFUSED: dict[str, Any] = {"changed": False, "failed": False, "refused": "agent1 has no room"}
APPLIED: dict[str, Any] = {"changed": True, "failed": False}
PROVEN: dict[str, Any] = {"changed": False, "containers": {"main1": {"status": "running"}}}


def failure(**result: Any) -> dict[str, Any]:
    return {"changed": False, "failed": True, **result}


def test_a_part_that_was_made_has_the_states_of_its_containers() -> None:
    assert outcome(iter([CLAIMED, SKIPPED, APPLIED, PROVEN, SKIPPED]), SKIPPED) == {
        "refused": "",
        "containers": {"main1": {"status": "running"}},
        "left": False,
    }


def test_a_refused_claim_is_no_failure() -> None:
    assert outcome([REFUSED, SKIPPED, SKIPPED, SKIPPED, SKIPPED], APPLIED) == {
        "refused": "agent1 has no room",
        "containers": {},
        "left": False,
    }


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (failure(msg="no image."), "no image."),
        (failure(msg=""), "it failed without a word"),
        (failure(), "it failed without a word"),
        ({"unreachable": True, "msg": "Failed to connect"}, "it became unreachable"),
        (failure(msg="One or more items failed", results=[APPLIED, failure(msg="no a"), failure(msg="no b")]), "no a"),
        (failure(msg="All items failed", results=[]), "All items failed"),
        (failure(msg="x", results=[APPLIED, failure()]), "it failed without a word"),
    ],
    ids=["said", "empty", "silent", "unreachable", "an item of a loop", "a loop", "a silent item"],
)
def test_the_step_that_failed_says_why(step: dict[str, Any], why: str) -> None:
    assert outcome([CLAIMED, step, SKIPPED, SKIPPED, SKIPPED], APPLIED) == {
        "refused": "",
        "containers": {},
        "left": False,
        "failed": why,
    }


def test_the_first_failure_is_told() -> None:
    assert outcome([failure(msg="first"), SKIPPED, failure(msg="second")], SKIPPED)["failed"] == "first"


@pytest.mark.parametrize("rollback", [failure(msg="engine down"), failure(), {"unreachable": True}])
def test_a_rollback_that_failed_may_have_left_something(rollback: dict[str, Any]) -> None:
    assert outcome([CLAIMED, failure(msg="no image.")], rollback)["left"] is True


def test_the_filter_is_offered_under_its_name() -> None:
    assert FilterModule().filters() == {"outcome": outcome}
