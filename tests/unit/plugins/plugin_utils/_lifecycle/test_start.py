"""A run that ends while it starts sessions undoes them on all agents, and keeps what is complete."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from ansible_collections.backendai.cluster.plugins.plugin_utils._lifecycle.start import Starting
from ansible_collections.backendai.cluster.plugins.plugin_utils._lifecycle.start_result import combine_replies
from ansible_collections.backendai.cluster.plugins.plugin_utils._lifecycle.start_steps import (
    APPLY,
    CLAIM,
    COMMAND,
    COMMIT,
    READY,
    REMOVE,
)
from tests.unit.builders import plan
from tests.unit.starts import AGENTS, Run, decided


class EndError(KeyboardInterrupt):
    """What ends a run."""


class At:
    """Ends a run at a request."""

    def __init__(self, number: int) -> None:
        self.left = number

    def __call__(self, _step: str, _agent: str) -> None:
        self.left -= 1
        if self.left == 0:
            raise EndError("interrupted by SIGINT")


def session(number: int, agents: int = 2, **changes: Any) -> dict[str, Any]:
    return decided(number, AGENTS[:agents], **changes)


@given(
    some.integers(1, 40),
    some.lists(
        some.builds(dict, agents=some.integers(1, 3), command=some.sampled_from(["", "x"])), min_size=1, max_size=3
    ),
    some.frozensets(some.tuples(some.sampled_from(["session-1", "session-2"]), some.sampled_from(AGENTS))),
    some.integers(1, 3),
)
def test_a_run_that_ends_leaves_whole_sessions_or_none(
    at: int, sessions: list[dict[str, Any]], slow: frozenset[tuple[str, str]], forks: int
) -> None:
    made = [session(number, **each) for number, each in enumerate(sessions, 1)]
    run = Run(made, forks=forks, slow=slow, interrupt=At(at))
    try:
        run.play()
    except EndError:
        assert run.given_up == 1
    for each in made:
        start = run.start(each)
        removed = {agent for name, agent in run.removed if name == each["id"]}
        assert removed == (set() if start.complete else {*each["agents"]})
        outcomes = {agent: start.outcome_on(agent) for agent in each["agents"]}
        broken = "" if start.complete else start.broken
        status = combine_replies(plan(), outcomes, repairs=False, broken=broken).status
        assert status == ("RUNNING" if start.complete else "ERROR")


@pytest.mark.parametrize("step", [CLAIM, APPLY, COMMIT, COMMAND])
def test_an_interruption_in_any_step_is_rolled_back_on_all_agents(step: str) -> None:
    def interrupt(now: str, agent: str) -> None:
        if (now, agent) == (step, "agent1" if step == COMMAND else "agent2"):
            raise EndError("interrupted by SIGTERM")

    run = Run([session(1, command="train")], forks=1, interrupt=interrupt)
    with pytest.raises(EndError):
        run.play()
    assert run.removed == {("session-1", agent) for agent in AGENTS[:2]}
    start = run.start(run.sessions[0])
    assert start.broken == "interrupted by SIGTERM"
    assert [start.outcome_on(agent)["rollback_failed"] for agent in AGENTS[:2]] == [False, False]


def test_a_complete_session_stays_when_the_run_ends_with_another_one() -> None:
    def interrupt(step: str, _agent: str) -> None:
        if step == READY:
            raise EndError("interrupted by SIGHUP")

    made = [session(1), session(2)]
    run = Run(made, slow=frozenset({("session-2", "agent2")}), interrupt=interrupt)
    with pytest.raises(EndError):
        run.play()
    assert run.removed == {("session-2", agent) for agent in AGENTS[:2]}
    assert [run.start(each).complete for each in made] == [True, False]
    assert [run.start(each).broken for each in made] == ["", "interrupted by SIGHUP"]


def test_an_interruption_of_the_roll_back_repeats_it_and_keeps_the_reason_of_the_failure() -> None:
    ends = iter([EndError("interrupted by SIGINT")])

    def interrupt(step: str, agent: str) -> None:
        if (step, agent) == (REMOVE, "agent2"):
            for error in ends:
                raise error

    run = Run([session(1)], {("session-1", APPLY, "agent1"): "failed"}, interrupt=interrupt)
    with pytest.raises(EndError):
        run.play()
    assert run.removed == {("session-1", agent) for agent in AGENTS[:2]}
    start = run.start(run.sessions[0])
    assert (start.broken, start.outcome_on("agent1")["failed"]) == ("", "apply on agent1")


def test_any_other_error_is_rolled_back_as_well() -> None:
    def interrupt(step: str, _agent: str) -> None:
        if step == COMMIT:
            raise OSError("No space left on device")

    run = Run([session(1)], forks=1, interrupt=interrupt)
    with pytest.raises(OSError, match="No space left"):
        run.play()
    assert run.removed == {("session-1", agent) for agent in AGENTS[:2]}
    assert run.start(run.sessions[0]).broken == "No space left on device"


def test_what_was_not_undone_is_said() -> None:
    def interrupt(step: str, _agent: str) -> None:
        if step == COMMIT:
            raise EndError("interrupted by SIGINT")

    run = Run([session(1)], lost={(REMOVE, "agent2"): "unreachable"}, forks=1, interrupt=interrupt)
    with pytest.raises(EndError):
        run.play()
    start = run.start(run.sessions[0])
    outcomes = {agent: start.outcome_on(agent) for agent in AGENTS[:2]}
    result = combine_replies(plan({"agent1": 1, "agent2": 1}), outcomes, repairs=False, broken=start.broken)
    assert result.holding == ("agent2",)
    assert result.error == "the session 'train-llm' was not created: interrupted by SIGINT."
    assert "agent2 may still hold a part of it" in str(result.error_at_end)


def test_check_mode_has_nothing_to_undo() -> None:
    run = Run([session(1)], {("session-1", CLAIM, "agent1"): "refused"})
    Starting(run.sessions, run, 5, undo=False).start()
    assert [steps for _name, _agent, steps in run.requests] == [[CLAIM]] * 2


def test_a_session_that_failed_is_not_rolled_back_again_when_the_slow_ones_go_on() -> None:
    run = Run(
        [session(1), session(2)],
        {("session-1", APPLY, "agent1"): "failed"},
        slow=frozenset({("session-2", "agent1")}),
    ).play()
    removals = [name for name, _agent, steps in run.requests if steps == [REMOVE]]
    assert removals == ["session-1"] * 2
    assert run.start(run.sessions[1]).complete
