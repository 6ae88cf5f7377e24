"""Whether the time of a session is up, from what its agents count."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.cordon import Cordon
from ansible_collections.backendai.cluster.plugins.plugin_utils._lifecycle.time_limits import end_time, time_reason
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.cluster_state import Session
from tests.unit.builders import NOW, held_session, plan

AGED = "it has lived for session_max_lifetime, 3600 seconds"
IDLE = "it was idle for session_idle_timeout, 600 seconds"
Count = tuple[Any, Any]


def session_of(*counts: Count, **limits: Any) -> Session:
    """Return a session on two agents with these (lived, idle) seconds; fewer counts are agents that do not answer."""
    made = plan({"agent1": 1, "agent2": 1}, **limits)
    names = made.agents[: len(counts)]
    parts = {
        name: held_session(made, name, lived=lived, idle=idle)
        for name, (lived, idle) in zip(names, counts, strict=True)
    }
    return Session(made, parts)


@pytest.mark.parametrize(
    ("counts", "limits", "reason"),
    [
        (((3600, 0), (3590, 0)), {"max_lifetime": 3600}, AGED),
        (((3599, 0), (3590, 0)), {"max_lifetime": 3600}, ""),
        (((3600, 0),), {"max_lifetime": 3600}, AGED),
        (((3600, 900), (3600, 900)), {}, ""),
        (((0, 600), (0, 601)), {"idle_timeout": 600}, IDLE),
        (((0, 600), (0, 599)), {"idle_timeout": 600}, ""),
        (((0, 600),), {"idle_timeout": 600}, ""),
        (((0, 600), (None, None)), {"idle_timeout": 600}, ""),
        (((3600, 600), (3600, 600)), {"max_lifetime": 3600, "idle_timeout": 600}, AGED),
    ],
)
def test_the_time_of_a_session_is_up(counts: tuple[Count, ...], limits: dict[str, int], reason: str) -> None:
    assert time_reason(session_of(*counts, **limits), NOW) == reason


@pytest.mark.parametrize("now", [0.0, NOW, NOW * 2])
def test_a_clock_that_jumps_ends_nothing(now: float) -> None:
    assert time_reason(session_of((60, 0), (60, 0), max_lifetime=3600, idle_timeout=600), now) == ""


@pytest.mark.parametrize(("after", "reason"), [(3599, ""), (3600, AGED)])
def test_without_a_count_of_agents_the_clock_decides(after: int, reason: str) -> None:
    session = session_of((None, None), (None, None), max_lifetime=3600)
    assert time_reason(session, session.plan.created_at + after) == reason


@pytest.mark.parametrize(
    ("counts", "limits", "left"),
    [
        (((600, 0), (500, 0)), {"max_lifetime": 3600}, 3000),
        (((600, 0), (500, 0)), {"max_lifetime": 3600, "idle_timeout": 600}, 3000),
        (((600, 90), (500, 60)), {"max_lifetime": 3600, "idle_timeout": 600}, 540),
        (((600, 90), (500, 0)), {"idle_timeout": 600}, None),
        (((600, 90), (500, 60)), {}, None),
    ],
)
def test_the_end_is_the_nearest_one_and_a_used_session_has_no_idle_end(
    counts: tuple[Count, ...], limits: dict[str, int], left: int | None
) -> None:
    assert end_time(session_of(*counts, **limits), NOW) == (None if left is None else NOW + left)


@pytest.mark.parametrize(
    ("after", "reason"),
    [(-1, ""), (0, "agent2 is cordoned by carol (disk), its sessions end by 2027-01-15 08:00 UTC")],
)
def test_a_session_ends_when_one_of_its_agents_is_drained(after: int, reason: str) -> None:
    made = plan({"agent1": 1, "agent2": 1})
    cordon = Cordon("disk", "carol", NOW - 60, NOW)
    parts = {"agent1": held_session(made, "agent1"), "agent2": held_session(made, "agent2", cordon=cordon)}
    session = Session(made, parts)
    assert time_reason(session, NOW + after) == reason
    assert end_time(session, NOW - 60) == NOW
