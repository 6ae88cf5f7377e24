"""What one user may have in a queue."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.validation import ValidationError
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import QueueEntry
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.limits import UserLimits, limits_from
from tests.unit.builders import plan, requested, spec

ALICE, BOB = ("alice", 1001), ("bob", 1002)
LIMITS = UserLimits(3, 2, 10, 4)


def entry(number: int, user: tuple[str, int] = ALICE, state: str = "PENDING", **changes: Any) -> QueueEntry:
    """Return a session that a user's command has made."""
    asked = changes.pop("asked", spec(name=f"session-{number}"))
    known = {"user": user[0], "user_uid": user[1], "state": state, "limited": True}
    return requested(number, asked, **{**known, **changes})


def refusal(entries: list[QueueEntry], containers: int = 1, *, waits: bool = False) -> str:
    """Return why a new request of alice is refused; empty if it is not."""
    try:
        LIMITS.check(ALICE, containers, entries, waits=waits)
    except ValidationError as error:
        return str(error)
    return ""


def test_who_has_as_many_sessions_as_allowed_gets_no_more() -> None:
    running = [entry(number, state=state) for number, state in enumerate(["RUNNING", "CREATING", "RUNNING"])]
    assert refusal(running) == "max_sessions: alice has 3 of 3 sessions; end one."
    assert refusal(running, waits=True) == "max_sessions: alice has 3 of 3 sessions; end one."
    assert refusal(running[:2]) == ""


def test_who_has_as_many_that_wait_as_allowed_may_only_ask_for_what_starts() -> None:
    waiting = [entry(1), entry(2)]
    assert refusal(waiting, waits=True) == (
        "max_waiting: alice has 2 of 2 sessions that wait; end one, or wait until one starts."
    )
    assert refusal(waiting) == ""


def test_containers_count_whether_they_run_or_wait() -> None:
    made = plan({"agent1": 4})
    roles = {"main": {}, "worker": {"replicas": 2}}
    held = [entry(1, state="RUNNING", plan=made), entry(2, asked=spec(name="session-2", roles=roles))]
    assert refusal(held, 3) == ""
    assert refusal(held, 4) == (
        "max_containers: 4 containers are requested, and alice has 7 of 10; end a session, or request fewer."
    )


def test_what_others_have_and_what_has_ended_does_not_count() -> None:
    of_others = [entry(number, BOB, "RUNNING") for number in range(9)]
    ended = [entry(number, state="TERMINATED", spec=None) for number in range(10, 19)]
    namesakes = [entry(number, ("alice", 1003)) for number in range(20, 23)]
    assert refusal([*of_others, *ended, *namesakes], waits=True) == ""


def test_all_users_together_have_a_limit_of_sessions_that_wait() -> None:
    waiting = [entry(number, BOB) for number in range(4)]
    assert refusal(waiting, waits=True) == (
        "the queue is full: 4 sessions of all users wait, and no more may; try again when some have started."
    )
    assert refusal(waiting) == ""
    assert refusal(waiting[:3], waits=True) == ""


def test_without_limits_nothing_is_refused() -> None:
    many = [entry(number, state="RUNNING") for number in range(20)]
    UserLimits().check(ALICE, 9999, many, waits=True)
    assert UserLimits().held_back(many) == {}


def test_of_what_waits_only_as_many_start_as_their_user_may_have() -> None:
    entries = [
        entry(1, state="RUNNING"),
        entry(2, priority=1),
        entry(3, priority=9),
        entry(4, priority=5),
        *(entry(number, BOB) for number in range(5, 8)),
        *(requested(number, user="operator") for number in range(8, 14)),
        *(entry(number, ("carol", 1003), limited=False) for number in range(14, 20)),
    ]
    assert LIMITS.held_back(entries) == {entries[1].id: "max_sessions: alice may have 3 that run"}


@pytest.mark.parametrize(
    ("data", "limits"),
    [
        ({}, UserLimits()),
        ({"max_sessions": 5, "max_waiting_in_all": "7", "other": 1}, UserLimits(5, 0, 0, 7)),
    ],
)
def test_limits_are_numbers_by_name(data: dict[str, Any], limits: UserLimits) -> None:
    assert limits_from(data) == limits
