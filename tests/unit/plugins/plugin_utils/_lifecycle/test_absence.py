"""Agents that do not answer, counted from run to run."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.backendai.cluster.plugins.plugin_utils._lifecycle.absence import (
    STEP_SECONDS,
    Absence,
    Absences,
    describe_cut_off,
    end_lost,
    is_cut_off,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.cluster_state import ClusterState
from tests.unit.builders import NOW, SESSION_ID, holders, plan, requested

AWAY, OTHERS = ["agent2"], ["agent1", "agent3"]
MINUTE = 60.0


def tried(*times: float, before: Absences | None = None) -> Absences:
    """Return the state after runs at these times in which agent2 did not answer."""
    state = before or Absences()
    for now in times:
        state = state.after(AWAY, OTHERS, now, now)
    return state


def test_one_failed_look_counts_no_time() -> None:
    state = tried(NOW)
    assert state.agents == {"agent2": Absence(NOW, NOW, 0.0)}
    assert state.lost(AWAY, OTHERS, 600) == []


@pytest.mark.parametrize("began", [NOW, NOW - 1])
def test_a_run_that_is_here_twice_counts_once(began: float) -> None:
    state = Absences().after(AWAY, OTHERS, began, NOW).after(AWAY, OTHERS, began, NOW + MINUTE)
    assert state.agents["agent2"].seconds == 0.0
    assert tried(NOW + 2 * MINUTE, before=state).agents["agent2"].seconds == MINUTE


def test_an_agent_is_lost_after_enough_runs() -> None:
    times = [NOW + MINUTE * run for run in range(11)]
    assert tried(*times[:10]).lost(AWAY, OTHERS, 600) == []
    assert tried(*times).lost(AWAY, OTHERS, 600) == ["agent2"]
    assert tried(*times).agents["agent2"].since == NOW


@pytest.mark.parametrize("later", [NOW + 86400 * 365, NOW - 86400, 0.0])
def test_a_gap_between_runs_and_a_clock_that_jumps_lose_no_agent(later: float) -> None:
    state = tried(NOW, later)
    assert state.agents["agent2"].seconds <= STEP_SECONDS
    assert state.lost(AWAY, OTHERS, 600) == []


def test_an_agent_that_answers_once_is_counted_anew() -> None:
    state = tried(NOW, NOW + MINUTE).after([], ["agent2"], NOW + 2 * MINUTE, NOW + 2 * MINUTE)
    assert (state, tried(NOW + 3 * MINUTE, before=state).agents["agent2"].since) == (Absences(), NOW + 3 * MINUTE)


def test_agents_that_were_not_asked_are_neither_counted_nor_forgotten() -> None:
    state = tried(NOW, NOW + MINUTE)
    assert state.after([], OTHERS, NOW + 2 * MINUTE, NOW + 2 * MINUTE) == state
    assert state.lost([], OTHERS, 1) == []


def test_nothing_is_counted_and_no_agent_is_lost_while_most_do_not_answer() -> None:
    old = Absences({"agent2": Absence(NOW - 3600, NOW - MINUTE, 3600.0)})
    away, answered = ["agent2", "agent3"], ["agent1"]
    assert old.lost(away, answered, 600) == []
    assert old.after(away, answered, NOW, NOW).agents["agent2"] == Absence(NOW - 3600, NOW, 3600.0)
    (sentence,) = describe_cut_off(away, answered)
    assert sentence == (
        "2 of 3 agents do not answer (agent2, agent3), so this control node may be cut off from them: no agent counts"
        " as lost until most answer; check the network of this host."
    )
    assert describe_cut_off(AWAY, OTHERS) == []


@pytest.mark.parametrize(
    ("away", "answered", "cut_off"),
    [
        (0, 0, False),
        (0, 3, False),
        (1, 0, True),
        (1, 1, False),
        (2, 2, False),
        (2, 1, True),
        (3, 2, True),
        (1, 9, False),
    ],
)
def test_more_than_half_of_the_other_agents_have_to_answer(away: int, answered: int, cut_off: bool) -> None:
    names = [f"agent{number}" for number in range(away + answered)]
    assert is_cut_off(names[:away], names[away:]) is cut_off


@given(st.lists(st.floats(0, 4e9), min_size=1, max_size=20))
def test_no_clock_counts_more_than_the_runs(times: list[float]) -> None:
    assert 0 <= tried(*times).agents["agent2"].seconds <= STEP_SECONDS * (len(times) - 1)


def test_the_explanation_says_since_when_and_what_to_do() -> None:
    remedy = "switch it on and connect it; only if it never comes back, end the session with session_force=true"
    assert tried(NOW).explain(AWAY) == f"agent2 does not answer since 2027-01-15 08:00 UTC: {remedy}"
    assert Absences().explain(AWAY) == f"agent2 does not answer: {remedy}"
    assert tried(NOW).explain([]) == ""


def lost_session(policy: str, **changes: Any) -> Any:
    made = plan({"agent1": 1, "agent2": 1}, failure_policy=policy)
    entry = requested(id=SESSION_ID, state="RUNNING", plan=made, **changes)
    here = ClusterState({"agent1": holders(made)["agent1"]}, {}).sessions
    return end_lost([entry], here, AWAY, 600, NOW)


def test_a_session_whose_policy_is_terminate_ends_everywhere() -> None:
    (entry,) = lost_session("terminate")
    assert (entry.state, entry.agents, entry.spec) == ("TERMINATING", ("agent1", "agent2"), None)
    assert entry.record["status"] == "TERMINATED"
    assert entry.record["reason"] == "agent2 did not answer for 600 seconds and session_failure_policy is terminate"


@pytest.mark.parametrize("policy", ["keep", "restart"])
def test_other_sessions_go_on(policy: str) -> None:
    assert lost_session(policy) == []


def test_sessions_on_other_agents_and_those_that_do_not_run_go_on() -> None:
    made = plan({"agent1": 1, "agent3": 1}, failure_policy="terminate")
    entry = requested(id=SESSION_ID, state="RUNNING", plan=made)
    pending = dataclasses.replace(entry, state="PENDING", plan=plan({"agent2": 1}, failure_policy="terminate"))
    assert end_lost([entry, pending], {}, AWAY, 600, NOW) == []
