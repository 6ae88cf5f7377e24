"""Sessions start in step on all of their agents, despite failures and results of earlier starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    read_start,
    result_variable,
)
from tests.unit.builders import plan
from tests.unit.starts import AGENTS, KEYS, TIMED_OUT, Run, decided, takes_part

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
    some.sampled_from(["unreachable", "failed"]),
    max_size=2,
)
# Results in an agent's variables of an earlier start, or of an earlier attempt of this one.
OF_BEFORE: list[Any] = [
    {"skipped": True},
    {"sessions": {"session-1": {"nonce": "nonce-0", "steps": [*ORDER]}}},
    {"sessions": {"session-1": {"nonce": "nonce-0", "failed": "no"}, "session-0": {"nonce": "nonce-0"}}},
    {"unreachable": True, "sessions": {"session-1": {"nonce": "nonce-0", "failed": UNREACHABLE}}},
]
WITHOUT_A_WORD: list[Any] = [TIMED_OUT, {"unreachable": True, "msg": "no route to host"}]


def leftovers(steps: Sequence[str], values: list[Any]) -> some.SearchStrategy[dict[tuple[str, str], Any]]:
    return some.dictionaries(
        some.tuples(some.sampled_from(AGENTS), some.sampled_from(steps)), some.sampled_from(values)
    )


@some.composite
def runs(draw: some.DrawFn) -> Run:
    started = [draw(sessions(number)) for number in range(1, draw(some.integers(1, 2)) + 1)]
    faults = {**draw(FAULTS), **draw(REFUSALS)}
    turns, one_by_one, forks = draw(some.integers(1, 3)), draw(some.booleans()), draw(some.integers(1, 3))
    slow = draw(some.frozensets(some.tuples(some.sampled_from(["session-1", "session-2"]), some.sampled_from(AGENTS))))
    return Run(started, faults, draw(LOST), turns, one_by_one, forks, slow=slow)


def with_leftovers(run: Run, leftovers: Mapping[tuple[str, str], Any]) -> Run:
    variables: dict[str, dict[str, Any]] = {agent: {} for agent in AGENTS}
    for (agent, step), value in leftovers.items():
        variables[agent][result_variable(step)] = value
    return Run(run.sessions, run.faults, run.lost, run.turns, run.one_by_one, run.forks, variables, slow=run.slow)


# The step ``ready`` is taken once in a run of Ansible, so it has no results of before.
EVERY = leftovers([step for step in (*ORDER, REMOVE) if step != READY], [*OF_BEFORE, *WITHOUT_A_WORD])


@given(runs(), EVERY)
def test_a_step_begins_after_all_agents_succeeded_in_the_previous_ones(run: Run, leftovers: Any) -> None:
    run = with_leftovers(run, leftovers).play()
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


@given(runs(), EVERY)
def test_no_command_starts_if_the_check_failed_on_any_agent(run: Run, leftovers: Any) -> None:
    run = with_leftovers(run, leftovers).play()
    for session in run.sessions:
        if any(name == session["id"] and step == COMMAND for name, step, _agent in run.completed):
            assert {(session["id"], COMMIT, agent) for agent in session["agents"]} <= run.completed


@given(runs(), EVERY)
def test_only_failed_sessions_are_rolled_back_on_all_agents(run: Run, leftovers: Any) -> None:
    run = with_leftovers(run, leftovers).play()
    for session in run.sessions:
        all_done = {
            (session["id"], step, agent) for step in ORDER for agent in takes_part(session, step)
        } <= run.completed
        agents = {agent for name, agent, steps in run.requests if (name, steps) == (session["id"], [REMOVE])}
        assert agents == (set() if all_done else {*session["agents"]})


@given(runs(), EVERY)
def test_the_record_has_the_status_of_the_session(run: Run, leftovers: Any) -> None:
    run = with_leftovers(run, leftovers).play()
    for session in run.sessions:
        start = run.start(session)
        outcomes = {agent: start.outcome_on(agent) for agent in session["agents"]}
        status = combine_replies(plan(), outcomes, repairs=False).status
        assert (status == "RUNNING") is not start.failed
        assert (status == "PENDING") is bool(start.refusals)
        if status == "RUNNING":
            assert {*combine_replies(plan(), outcomes, repairs=False).containers} == {*session["agents"]}


@given(
    runs(),
    leftovers([*ORDER, REMOVE], OF_BEFORE),
    leftovers([APPLY, COMMIT, COMMAND, CLAIM, REMOVE], WITHOUT_A_WORD),
)
def test_results_of_an_earlier_start_are_ignored(run: Run, leftovers: Any, without_a_word: Any) -> None:
    clean = Run(run.sessions, run.faults, run.lost, run.turns, run.one_by_one, run.forks, slow=run.slow).play()
    other = with_leftovers(run, {**leftovers, **without_a_word}).play()
    assert (other.requests, other.completed, other.removed) == (clean.requests, clean.completed, clean.removed)
    for session in run.sessions:
        for agent in session["agents"]:
            assert other.start(session).outcome_on(agent) == clean.start(session).outcome_on(agent)


@given(runs(), EVERY)
def test_a_session_on_one_agent_takes_all_steps_in_one_request(run: Run, leftovers: Any) -> None:
    run = with_leftovers(run, leftovers).play()
    for session in run.sessions:
        if len(session["agents"]) > 1 or takes_part(session, PULL):
            continue
        if (session["id"], *session["agents"]) in run.slow:
            continue
        steps_taken = [steps for name, _agent, steps in run.requests if name == session["id"] and steps != [REMOVE]]
        assert steps_taken == [[step for step in (CLAIM, APPLY, COMMIT, COMMAND) if takes_part(session, step)]]


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
    run._start()
    for session in run.sessions:
        start = run.start(session)
        if start.starting:
            assert not start.failed
            assert not [name for name, _agent, steps in run.requests if (name, steps) == (session["id"], [REMOVE])]


@given(runs(), EVERY)
def test_committed_sessions_make_no_claim(run: Run, leftovers: Any) -> None:
    run = with_leftovers(run, leftovers).play()
    committed = {session["id"] for session in run.sessions if session["public_keys"]}
    assert not [name for name, _agent, steps in run.requests if CLAIM in steps and name in committed]


@given(runs())
def test_sessions_do_not_stop_each_other(run: Run) -> None:
    both = Run(run.sessions, run.faults, {}, run.turns, run.one_by_one, run.forks, slow=run.slow).play()
    for session in run.sessions:
        alone = Run([session], run.faults, {}, run.turns, run.one_by_one, run.forks, slow=run.slow).play()
        assert {fault for fault in both.completed if fault[0] == session["id"]} == alone.completed


@pytest.mark.parametrize("fault", [*((step, "failed") for step in ORDER), (CLAIM, "refused")])
@pytest.mark.parametrize("agents", [AGENTS[:1], AGENTS[:2]], ids=["one agent", "two agents"])
def test_next_attempt_starts_from_nothing(agents: Sequence[str], fault: tuple[str, str]) -> None:
    step, error = fault
    pulls = {agent: ["x"] for agent in agents} if step == PULL else {}
    session = decided(agents=agents, command="train", missing_images=pulls)
    slow = frozenset({("session-1", agents[0])} if step == READY else ())
    first = Run([session], {("session-1", step, agents[0]): error}, slow=slow).play()
    assert first.start(session).failed
    variables = {agent: {**first.variables[agent], result_variable(READY): {"skipped": True}} for agent in AGENTS}
    again = Run([{**session, "nonce": "again"}], variables=variables).play()
    assert not again.start(again.sessions[0]).failed
    assert again.requests == Run([session]).play().requests


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
    ("result", "reason"),
    [
        ({"sessions": {"session-1": {"nonce": "nonce-1", "failed": "agent1 is full."}}}, "agent1 is full."),
        ({"unreachable": True, "msg": "no route"}, "it became unreachable"),
        ({"failed": True, "msg": "it took too long"}, "it took too long"),
        ({"failed": True}, "it failed without an error message"),
        ({"skipped": True}, "it returned no result"),
        (None, "it returned no result"),
        ({"sessions": {}}, "it returned no result"),
    ],
)
@pytest.mark.parametrize("agents", [AGENTS[:1], AGENTS[:2]], ids=["one agent", "two agents"])
def test_the_outcome_contains_the_error_of_an_agent(
    agents: Sequence[str], result: dict[str, Any] | None, reason: str
) -> None:
    session, well = decided(agents=agents), {"sessions": {"session-1": {"nonce": "nonce-1", "steps": [CLAIM]}}}
    variables: dict[str, Any] = {"agent1": {"__session_claim": result}, "agent2": {"__session_claim": well}}
    start = read_start(session, variables)
    nothing: dict[str, Any] = {"refused": "", "printed": [], "containers": {}}
    expected = {**nothing, "rollback_failed": reason == "it returned no result", "failed": reason}
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


@pytest.mark.parametrize("result", [{"failed": True, "msg": "no"}, {"unreachable": True}])
def test_removal_that_failed_may_have_left_something(result: dict[str, Any]) -> None:
    run = Run([decided()], {("session-1", APPLY, "agent1"): "failed"}).play()
    assert [run.start(decided()).outcome_on(agent)["rollback_failed"] for agent in AGENTS[:2]] == [False, False]
    run.variables["agent2"][result_variable(REMOVE)] = result
    assert [run.start(decided()).outcome_on(agent)["rollback_failed"] for agent in AGENTS[:2]] == [False, True]


def test_a_failed_pull_is_reported_after_the_next_turn() -> None:
    session = decided(missing_images={"agent1": ["x"], "agent2": ["x"]})
    run = Run([session], {("session-1", PULL, "agent1"): "failed"}, turns=3).play()
    assert run.start(session).outcome_on("agent1")["failed"] == "pull on agent1"
    assert [steps for _name, _agent, steps in run.requests].count([PULL]) == 2
