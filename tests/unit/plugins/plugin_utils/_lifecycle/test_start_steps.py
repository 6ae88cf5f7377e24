"""Sessions start in step on all of their agents, despite failures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from ansible_collections.backendai.cluster.plugins.plugin_utils._lifecycle.start_result import combine_replies
from ansible_collections.backendai.cluster.plugins.plugin_utils._lifecycle.start_steps import (
    APPLY,
    CLAIM,
    COMMAND,
    COMMIT,
    ORDER,
    PULL,
    READY,
    REMOVE,
    UNREACHABLE,
    Start,
)
from tests.unit.builders import plan
from tests.unit.starts import AGENTS, KEYS, Run, decided, takes_part

# ---- all possible starts


@some.composite
def sessions(draw: some.DrawFn, number: int) -> dict[str, Any]:
    agents = draw(some.lists(some.sampled_from(AGENTS), min_size=1, max_size=3, unique=True))
    pulling = draw(some.lists(some.sampled_from(agents), max_size=2, unique=True))
    return decided(
        number,
        agents,
        missing_images={agent: ["lab/python:1"] for agent in pulling},
        public_keys=draw(some.sampled_from([{}, {}, KEYS])),
        command=draw(some.sampled_from(["", "train"])),
        scope=draw(some.sampled_from(["main", "all"])),
    )


FAULTS = some.dictionaries(
    some.tuples(some.sampled_from(["session-1", "session-2"]), some.sampled_from(ORDER), some.sampled_from(AGENTS)),
    some.just("failed"),
    max_size=3,
)
REFUSALS = some.dictionaries(
    some.tuples(some.sampled_from(["session-1", "session-2"]), some.just(CLAIM), some.sampled_from(AGENTS)),
    some.just("refused"),
    max_size=2,
)
LOST = some.dictionaries(
    some.tuples(some.sampled_from(ORDER), some.sampled_from(AGENTS)),
    some.sampled_from(["unreachable", "without a word"]),
    max_size=2,
)


@some.composite
def runs(draw: some.DrawFn) -> Run:
    started = [draw(sessions(number)) for number in range(1, draw(some.integers(1, 2)) + 1)]
    faults = {**draw(FAULTS), **draw(REFUSALS)}
    slow = draw(some.frozensets(some.tuples(some.sampled_from(["session-1", "session-2"]), some.sampled_from(AGENTS))))
    return Run(started, faults, draw(LOST), draw(some.integers(1, 3)), slow)


@given(runs())
def test_a_step_begins_after_all_agents_succeeded_in_the_previous_ones(run: Run) -> None:
    run.play()
    for session in run.sessions:
        of_session = [
            (agent, steps) for name, agent, steps in run.requests if name == session["id"] and steps != [REMOVE]
        ]
        for agent, steps in of_session:
            assert all(agent in takes_part(session, step) for step in steps)
            before = ORDER[: ORDER.index(steps[0])]
            assert {
                (session["id"], name, other) for name in before for other in takes_part(session, name)
            } <= run.completed
            # Several steps at once are only for a single agent, or if all agents work at the same time.
            together = [APPLY, COMMIT] if len(session["agents"]) <= run.forks else None
            assert len(steps) == 1 or session["agents"] == [agent] or steps == together


@given(runs())
def test_no_command_starts_if_the_check_failed_on_any_agent(run: Run) -> None:
    run.play()
    for session in run.sessions:
        if any(name == session["id"] and step == COMMAND for name, step, _agent in run.completed):
            assert {(session["id"], COMMIT, agent) for agent in session["agents"]} <= run.completed


@given(runs())
def test_only_failed_sessions_are_rolled_back_on_all_agents(run: Run) -> None:
    run.play()
    for session in run.sessions:
        all_done = {
            (session["id"], step, agent) for step in ORDER for agent in takes_part(session, step)
        } <= run.completed
        agents = {agent for name, agent, steps in run.requests if (name, steps) == (session["id"], [REMOVE])}
        assert agents == (set() if all_done else {*session["agents"]})


@given(runs())
def test_the_record_has_the_status_of_the_session(run: Run) -> None:
    run.play()
    for session in run.sessions:
        start = run.start(session)
        outcomes = {agent: start.outcome_on(agent) for agent in session["agents"]}
        status = combine_replies(plan(), outcomes, repairs=False).status
        assert (status == "RUNNING") is not start.failed
        assert (status == "PENDING") is bool(start.refusals)
        if status == "RUNNING":
            assert {*combine_replies(plan(), outcomes, repairs=False).containers} == {*session["agents"]}


@given(runs())
def test_a_session_on_one_agent_takes_all_steps_in_one_request(run: Run) -> None:
    run.play()
    for session in run.sessions:
        if len(session["agents"]) > 1 or takes_part(session, PULL):
            continue
        if (session["id"], *session["agents"]) in run.slow:
            continue
        steps_taken = [steps for name, _agent, steps in run.requests if name == session["id"] and steps != [REMOVE]]
        assert steps_taken == [[step for step in (CLAIM, APPLY, COMMIT, COMMAND) if takes_part(session, step)]]


def test_what_is_claimed_stays_claimed_while_other_sessions_pull() -> None:
    pulls, waits = decided(1, missing_images={"agent1": ["lab/python:1"]}), decided(2)
    others = [decided(3, public_keys=KEYS), decided(4, AGENTS[:1]), decided(5)]
    run = Run([pulls, waits, *others], {("session-5", CLAIM, "agent2"): "refused"}).play()
    assert run.renewed == ["session-2"]
    assert Run([waits, *others]).play().renewed == []


def test_the_check_is_repeated_only_where_it_failed_with_the_start() -> None:
    early = Run([decided()]).play()
    assert [steps for _name, _agent, steps in early.requests] == [[CLAIM]] * 2 + [[APPLY, COMMIT]] * 2
    late = Run([decided()], {("session-1", COMMIT, "agent2"): "failed"}).play()
    steps_taken = [(agent, steps) for _name, agent, steps in late.requests if COMMIT in steps]
    assert steps_taken == [("agent1", [APPLY, COMMIT]), ("agent2", [APPLY, COMMIT]), ("agent2", [COMMIT])]
    assert late.start(decided()).outcome_on("agent2")["failed"] == "commit on agent2"


def test_commit_is_a_step_of_its_own_if_agents_take_turns() -> None:
    run = Run([decided()], forks=1).play()
    steps_taken = [steps for _name, _agent, steps in run.requests]
    assert steps_taken == [[step] for step in (CLAIM, APPLY, COMMIT) for _agent in AGENTS[:2]]


@pytest.mark.parametrize("agents", [AGENTS[:1], AGENTS[:2]], ids=["one agent", "two agents"])
def test_slow_session_is_completed_after_the_others(agents: Sequence[str]) -> None:
    session, other = decided(agents=agents, command="train"), decided(2, agents, command="train")
    run = Run([session, other], slow=frozenset({("session-1", agents[0])})).play()
    steps_taken = {
        name: [(agent, steps) for of, agent, steps in run.requests if of == name] for name in ("session-1", "session-2")
    }
    last = [number for number, (name, _agent, _steps) in enumerate(run.requests) if name == "session-2"][-1]
    waits = [number for number, (_name, _agent, steps) in enumerate(run.requests) if READY in steps]
    assert min(waits) > last
    if len(agents) == 1:
        assert steps_taken["session-1"][-1] == ("agent1", [READY, COMMIT, COMMAND])
    else:
        assert steps_taken["session-1"][4:] == [("agent1", [READY]), ("agent1", [COMMIT]), ("agent1", [COMMAND])]
    assert [run.start(each).failed for each in (session, other)] == [False, False]


@given(runs())
def test_session_that_is_starting_is_neither_failed_nor_rolled_back(run: Run) -> None:
    run.starting.start()
    for session in run.sessions:
        start = run.start(session)
        if start.starting:
            assert not start.failed
            assert not [name for name, _agent, steps in run.requests if (name, steps) == (session["id"], [REMOVE])]


@given(runs())
def test_committed_sessions_make_no_claim(run: Run) -> None:
    run.play()
    committed = {session["id"] for session in run.sessions if session["public_keys"]}
    assert not [name for name, _agent, steps in run.requests if CLAIM in steps and name in committed]


@given(runs())
def test_sessions_do_not_stop_each_other(run: Run) -> None:
    both = Run(run.sessions, run.faults, {}, run.forks, run.slow).play()
    for session in run.sessions:
        alone = Run([session], run.faults, {}, run.forks, run.slow).play()
        assert {fault for fault in both.completed if fault[0] == session["id"]} == alone.completed


# ---- properties of a start


def test_keys_are_those_of_all_claims() -> None:
    session = decided()
    claims = {"agent1": {"public_keys": {"main1": {"user": "U1"}}}, "agent2": {"public_keys": {"sub1": {"user": "U2"}}}}
    assert Start(session, {CLAIM: claims}).public_keys == {"main1": {"user": "U1"}, "sub1": {"user": "U2"}}
    assert Start({**session, "public_keys": KEYS}, {}).public_keys == KEYS


def test_host_keys_are_those_that_the_agent_of_each_container_has() -> None:
    made = plan({"agent1": 1, "agent2": 1})
    claims = {
        "agent1": {"public_keys": {"main1": {"host": "H1"}, "sub1": {"host": "forged"}}},
        "agent2": {"public_keys": {"main1": {"host": "forged"}, "sub1": {"host": "H2"}}},
        "agent3": {"public_keys": {"main1": {"host": "forged"}}},
    }
    session = decided()
    assert Start(session, {CLAIM: claims}).host_keys(made.kernels) == {"main1": "H1", "sub1": "H2"}
    assert Start(session, {CLAIM: {"agent2": {}}}).host_keys(made.kernels) == {}
    before = {**session, "public_keys": {"main1": {"host": "H1"}, "sub1": {"host": "H2"}}}
    assert Start(before, {}).host_keys(made.kernels) == {"main1": "H1", "sub1": "H2"}


@pytest.mark.parametrize(
    ("replies", "reason"),
    [
        ({"agent1": {"failed": "agent1 is full."}}, "agent1 is full."),
        ({"agent1": {"failed": UNREACHABLE}}, "it became unreachable"),
        ({}, "it returned no result"),
    ],
)
@pytest.mark.parametrize("agents", [AGENTS[:1], AGENTS[:2]], ids=["one agent", "two agents"])
def test_the_outcome_contains_the_error_of_an_agent(
    agents: Sequence[str], replies: dict[str, Any], reason: str
) -> None:
    well = {agent: {"steps": [CLAIM]} for agent in agents[1:]}
    start = Start(decided(agents=agents)).after(CLAIM, {**replies, **well})
    nothing: dict[str, Any] = {"refused": "", "printed": [], "containers": {}}
    expected = {**nothing, "rollback_failed": not replies, "failed": reason}
    assert (start.outcome_on("agent1"), start.failed) == (expected, True)
    # No other agent has an error, and none has refused.
    assert [start.outcome_on(agent).get("failed") for agent in agents[1:]] == [None] * len(agents[1:])
    assert start.refusals == []


def test_outcome_has_the_containers_of_an_agent_that_succeeded() -> None:
    run = Run([decided(command="train", scope="all")]).play()
    assert run.start(run.sessions[0]).outcome_on("agent2") == {
        "refused": "",
        "printed": [],
        "containers": {"agent2": {"status": "running", "image_digest": None}},
        "rollback_failed": False,
    }


def test_refusal_is_no_failure() -> None:
    run = Run([decided()], {("session-1", CLAIM, "agent2"): "refused"}).play()
    start = run.start(run.sessions[0])
    assert (start.failed, start.refusals) == (True, ["claim on agent2"])
    assert [("failed" in start.outcome_on(agent)) for agent in AGENTS[:2]] == [False, False]


def test_refusal_beside_a_failure_is_not_tried_again() -> None:
    faults = {("session-1", CLAIM, "agent2"): "refused", ("session-1", CLAIM, "agent1"): "failed"}
    assert Run([decided()], faults).play().start(decided()).refusals == []


def test_removal_that_failed_may_have_left_something() -> None:
    fault = {("session-1", APPLY, "agent1"): "failed"}
    for lost, left in (({}, False), ({(REMOVE, "agent2"): "unreachable"}, True)):
        run = Run([decided()], fault, lost).play()
        assert [run.start(decided()).outcome_on(agent)["rollback_failed"] for agent in AGENTS[:2]] == [False, left]
