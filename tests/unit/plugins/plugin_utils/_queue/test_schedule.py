"""Schedules: the sessions that start now, and why the others stay PENDING."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.place import Unschedulable
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.cluster_state import ClusterState
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.decision import Decision, is_feasible
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.answers import Answers
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import Owner, QueueEntry
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.policy import (
    count_skips,
    dominant_shares,
    due_sessions,
    sort_pending,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.schedule import (
    QueuePolicy,
    schedule,
    still_first,
    usage,
    waits_behind,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.spec import check_stored, spec_from_dict
from ansible_collections.backendai.cluster.plugins.plugin_utils.session_options import specification
from tests.unit.builders import (
    GIB,
    NOW,
    POOLS,
    agent_facts,
    held_session,
    holders,
    occupied,
    plan,
    readings,
    requested,
    spec,
)

POLICIES = specification()["session_queue_policy"]["choices"]
FIFO = QueuePolicy("fifo", 2)
OWNER = Owner("manager1 boot", 4711, "123456")


def waits(number: int, cpu: int = 1, **options: Any) -> QueueEntry:
    """Return a PENDING session of one container with so many cores, the ``number``-th to arrive."""
    session_spec = spec(**{"name": f"session-{number}", "resources": {"cpu": cpu, "mem": "64m"}, **options})
    return requested(number, session_spec)


def passed(times: int, after: int = 1) -> list[QueueEntry]:
    """Return so many sessions that run, and came after that number of those that wait: they have skipped these."""
    arrived = NOW + after + 0.5
    return [requested(1000 + n, state="RUNNING", has_started=True, enqueued_at=arrived) for n in range(times)]


def cluster(*cores: int) -> ClusterState:
    """Return the state of empty agents with so many cores."""
    return readings(**{f"agent{number}": agent_facts(f"agent{number}", cpu) for number, cpu in enumerate(cores, 1)})


def outcomes(
    entries: Sequence[QueueEntry], cluster_state: ClusterState, rules: QueuePolicy = FIFO
) -> list[tuple[str, str]]:
    """Return (name, its agents or what is missing) of each session in the order of the schedule."""
    answers = schedule(entries, Answers(cluster_state, POOLS, NOW), rules)
    return [
        (entry.name, " ".join(decision.plan.agents) if isinstance(decision, Decision) else lack(decision))
        for entry, decision in answers
    ]


def lack(answer: Unschedulable) -> str:
    """Return why a session waits, without the remedy."""
    return answer.reason.partition("; it fits when these end: ")[0]


def short_of(cores: int, agents: int = 1) -> str:
    where = "on one agent" if agents == 1 else f"on {agents} agents"
    return f"no room for 1 of 1 containers {where}: short of cpu {cores}"


def test_nothing_waits_in_an_empty_queue() -> None:
    assert schedule([], Answers(cluster(8), POOLS, NOW), FIFO) == []


def test_each_start_is_planned_on_what_the_ones_before_it_leave() -> None:
    started = schedule([waits(number, 2) for number in range(1, 5)], Answers(cluster(4, 2), POOLS, NOW), FIFO)
    plans = [answer.plan for _entry, answer in started if isinstance(answer, Decision)]
    assert [(planned.name, planned.agents) for planned in plans] == [
        ("session-1", ["agent2"]),
        ("session-2", ["agent1"]),
        ("session-3", ["agent1"]),
    ]
    assert [(entry.name, answer.reason) for entry, answer in started if isinstance(answer, Unschedulable)] == [
        ("session-4", f"{short_of(2, 2)}; it fits when these end: session-1")
    ]


def test_plans_of_one_schedule_share_no_network() -> None:
    pools = dataclasses.replace(POOLS, network="10.0.0.0/28")
    answers = schedule([waits(number, cluster_size=4) for number in (1, 2, 3)], Answers(cluster(12), pools, NOW), FIFO)
    networks = [answer.plan.network for _entry, answer in answers if isinstance(answer, Decision)]
    assert sorted(network.subnet for network in networks if network and network.subnet) == [
        "10.0.0.0/29",
        "10.0.0.8/29",
    ]
    assert [answer.reason for _entry, answer in answers if isinstance(answer, Unschedulable)] == [
        "session_network_pool: 10.0.0.0/28 has no subnet left for 4 containers"
    ]


def test_a_start_has_the_id_and_user_of_its_entry() -> None:
    entry = dataclasses.replace(waits(1), user="bob")
    ((_entry, answer),) = schedule([entry], Answers(cluster(8), POOLS, NOW + 9), FIFO)
    assert isinstance(answer, Decision)
    assert (answer.plan.id, answer.plan.user, answer.plan.created_at, answer.existing) == (
        entry.id,
        "bob",
        NOW + 9,
        False,
    )


def test_what_fits_starts_past_what_does_not() -> None:
    assert outcomes([waits(1, 4), waits(2, 1)], cluster(2)) == [
        ("session-1", f"{short_of(4)}; one container requests 4 cores and no agent has more than 2 online"),
        ("session-2", "agent1"),
    ]


def test_the_highest_priority_goes_first() -> None:
    entries = [waits(1, 2), waits(2, 2, priority=90), waits(3, 2, priority=50)]
    assert outcomes(entries, cluster(4)) == [
        ("session-2", "agent1"),
        ("session-3", "agent1"),
        ("session-1", short_of(2)),
    ]


@pytest.mark.parametrize(("policy", "first"), [("fifo", "session-1"), ("lifo", "session-3"), ("drf", "session-2")])
def test_each_policy_has_its_first(policy: str, first: str) -> None:
    running = dataclasses.replace(plan({"agent1": 2}, resources={"cpu": 1, "mem": "64m"}), user="rich")
    cluster_state = readings(
        recorded=[running],
        agent1=agent_facts("agent1", 6, allocated={"cpu": 2}, sessions=[held_session(running, "agent1")]),
    )
    users = ["rich", "poor", "rich"]
    entries = [dataclasses.replace(waits(number, 4), user=user) for number, user in enumerate(users, 1)]
    listed = outcomes(entries, cluster_state, QueuePolicy(policy, 16))
    assert listed[0] == (first, "agent1")
    assert {answer for _name, answer in listed[1:]} == {short_of(4)}


def test_shares_follow_the_starts_so_that_users_take_turns() -> None:
    users = ["alice", "alice", "alice", "bob", "bob", "bob"]
    entries = [dataclasses.replace(waits(number), user=user) for number, user in enumerate(users, 1)]
    names = [name for name, _answer in outcomes(entries, cluster(8), QueuePolicy("drf", 16))]
    assert [users[int(name[-1]) - 1] for name in names] == ["alice", "bob", "alice", "bob", "alice", "bob"]


def test_sessions_of_other_states_are_not_started() -> None:
    owned = requested(2, state="CREATING", owner=OWNER)
    finished = [requested(number, state=state, spec=None) for number, state in ((3, "TERMINATING"), (4, "TERMINATED"))]
    assert outcomes([waits(1), owned, *finished], cluster(8)) == [("session-1", "agent1")]


# ---- no starvation


def test_what_was_passed_often_enough_goes_first_and_others_wait_behind_it() -> None:
    busy = agent_facts("agent1", 4, allocated={"cpu": 2})
    entries = [waits(1, 4), waits(2, 1), waits(3, 1, priority=90), waits(4, 1, resource_group="gpu"), *passed(2)]
    cluster_state = occupied(agent1=busy, agent2=agent_facts("agent2", 2, resource_group="gpu"))
    assert outcomes(entries, cluster_state) == [
        ("session-1", short_of(4)),
        ("session-3", "agent1"),
        ("session-2", "it waits behind session-1, which 2 later sessions have skipped"),
        ("session-4", "agent2"),
    ]


def test_a_session_becomes_due_in_the_midst_of_a_schedule() -> None:
    busy = occupied(agent1=agent_facts("agent1", 4, allocated={"cpu": 1}))
    entries = [waits(1, 4), waits(2, 1), waits(3, 1), waits(4, 1)]
    assert outcomes(entries, busy) == [
        ("session-1", short_of(4)),
        ("session-2", "agent1"),
        ("session-3", "agent1"),
        ("session-4", "it waits behind session-1, which 2 later sessions have skipped"),
    ]


@pytest.mark.parametrize(
    "options",
    [
        {"cpu": 5},
        {"cluster_size": 5},
        {"designated_agents": ["agent9"]},
        {"architecture": "arm64"},
    ],
    ids=["too wide", "too many", "an agent that is gone", "an architecture that is gone"],
)
def test_an_infeasible_session_blocks_no_other(options: dict[str, Any]) -> None:
    busy = occupied(agent1=agent_facts("agent1", 4, allocated={"cpu": 2}))
    answers = dict(outcomes([waits(1, **options), waits(2, 1), *passed(9)], busy))
    assert answers["session-2"] == "agent1"
    assert answers["session-1"] != "agent1"


def test_a_creating_session_blocks_others_until_it_is_claimed() -> None:
    starts = requested(1, spec(name="session-1", resources={"cpu": 4}), state="CREATING", owner=OWNER)
    cluster_state = cluster(4)
    assert outcomes([starts, waits(2), *passed(2)], cluster_state) == [
        ("session-2", "it waits behind session-1, which 2 later sessions have skipped")
    ]
    claimed = dataclasses.replace(plan({"agent1": 1}, name="session-1"), id=starts.id)
    assert outcomes([starts, waits(2), *passed(2)], cluster_state.with_plan(claimed)) == [("session-2", "agent1")]


def test_a_creating_session_without_a_stored_request_blocks_others() -> None:
    starts = requested(1, state="CREATING", spec=None, owner=OWNER)
    assert [name for name, _answer in outcomes([starts, waits(2), *passed(2)], cluster(4))] == ["session-2"]
    assert waits_behind([starts, *passed(2)], waits(2), Answers(cluster(4), POOLS, NOW).blocks, FIFO) == Unschedulable(
        "it waits behind session-1, which 2 later sessions have skipped", {}
    )


def test_those_that_may_not_start_have_skipped_others_and_are_not_waited_for() -> None:
    busy = occupied(agent1=agent_facts("agent1", 4, allocated={"cpu": 2}))
    # They have failed and wait again, and one more is held back that is due itself.
    failed = [dataclasses.replace(waits(number), has_started=True) for number in (3, 4)]
    entries, barred = [waits(1, 4), waits(2, 4), *failed, waits(5)], {entry.id for entry in failed}
    behind = "it waits behind session-{}, which 2 later sessions have skipped"

    def found(barred: set[str]) -> list[tuple[str, str]]:
        answers = schedule(entries, Answers(busy, POOLS, NOW), FIFO, barred)
        return [(entry.name, "" if isinstance(answer, Decision) else lack(answer)) for entry, answer in answers]

    assert found(barred) == [
        ("session-1", short_of(4)),
        ("session-2", behind.format(1)),
        ("session-5", behind.format(1)),
    ]
    assert found({*barred, entries[0].id})[-1] == ("session-5", behind.format(2))
    assert found({*barred, entries[0].id, entries[1].id}) == [("session-5", "")]


def test_before_starts_are_saved_those_are_left_out_that_would_skip_one_too_often() -> None:
    large, chosen = waits(1, 4), [waits(number) for number in (5, 6, 7)]

    def first(*others: QueueEntry, patience: int = 2, **changes: Any) -> list[str]:
        kept: dict[str, Any] = {"blocks": lambda _entry: True, "barred": (), **changes}
        left = still_first([large, *others, *chosen], chosen, rules=QueuePolicy("fifo", patience), **kept)
        return [entry.name for entry in chosen if entry.id in left]

    assert first() == ["session-5", "session-6"]
    assert first(patience=3) == ["session-5", "session-6", "session-7"]
    assert first(*passed(1)) == ["session-5"]
    assert first(*passed(2)) == []
    assert (
        first(*passed(2), blocks=lambda _entry: False)
        == first(*passed(2), barred={large.id})
        == [
            "session-5",
            "session-6",
            "session-7",
        ]
    )
    assert still_first([large], chosen, lambda _entry: True, FIFO) == set()


def test_a_new_session_waits_behind_what_is_due_and_not_behind_itself() -> None:
    due = waits(1)
    queue = [due, *passed(2)]
    assert waits_behind(queue, waits(2), Answers(cluster(4), POOLS, NOW).blocks, FIFO) is not None
    assert waits_behind(queue, waits(2, priority=90), Answers(cluster(4), POOLS, NOW).blocks, FIFO) is None
    assert waits_behind(queue, due, Answers(cluster(4), POOLS, NOW).blocks, FIFO) is None
    assert waits_behind(queue, waits(2), Answers(cluster(4), POOLS, NOW).blocks, QueuePolicy("fifo", 3)) is None


# ---- obstacles


@pytest.mark.parametrize(
    ("options", "unavailable", "reason"),
    [
        (
            {"resource_group": "gpu"},
            {},
            "session_resource_group: no agent belongs to 'gpu'; known are default",
        ),
        (
            {"designated_agents": ["agent2"]},
            {"agent2": "unreachable"},
            "session_designated_agents: 'agent2' cannot be used: unreachable",
        ),
    ],
)
def test_a_session_that_can_never_be_met_waits_on_and_says_why(
    options: dict[str, Any], unavailable: dict[str, str], reason: str
) -> None:
    cluster_state = dataclasses.replace(cluster(8), unavailable=unavailable)
    assert outcomes([waits(1, **options), waits(2)], cluster_state) == [("session-1", reason), ("session-2", "agent1")]


def test_without_any_agent_all_wait() -> None:
    nothing = ClusterState({}, {"agent1": "engine down"})
    assert outcomes([waits(1)], nothing) == [("session-1", "no agent can be used: agent1: engine down")]


def test_a_claimed_session_is_resumed_without_more_capacity() -> None:
    entry = waits(1, 4)
    session_spec = spec(name="session-1", resources={"cpu": 4, "mem": "64m"})
    session_plan = dataclasses.replace(
        plan({"agent1": 1}, name="session-1", resources=session_spec.resources), id=entry.id
    )
    facts = agent_facts(
        "agent1",
        5,
        allocated={"cpu": 4},
        sessions=[held_session(session_plan, "agent1", committed=False)],
    )
    cluster_state = readings(recorded=[session_plan], agent1=facts)
    ((_entry, first), (_other, second)) = schedule([entry, waits(2)], Answers(cluster_state, POOLS, NOW), FIFO)
    assert isinstance(first, Decision)
    assert (first.plan, first.existing) == (session_plan, True)
    assert isinstance(second, Decision)


def test_a_namesake_that_agents_hold_is_not_started_in_its_place() -> None:
    session_spec = spec(name="session-1", resources={"cpu": 1, "mem": "64m"})
    session_plan = plan({"agent1": 1}, name="session-1", resources=session_spec.resources)
    cluster_state = readings(recorded=[session_plan], **holders(session_plan))
    reason = "is the name of another session that lives; end that one, or choose another name"
    assert outcomes([waits(1)], cluster_state) == [("session-1", f"session_name: 'session-1' {reason}")]


def test_an_agent_cannot_keep_a_session_from_starting_elsewhere_by_its_name() -> None:
    liars = holders(plan({"agent1": 1}, name="session-1"))
    cluster_state = readings(agent2=agent_facts("agent2", 1), **liars)
    assert outcomes([waits(1), waits(2), waits(3)], cluster_state)[:2] == [
        ("session-1", "agent2"),
        ("session-2", "agent1"),
    ]


# ---- shares


def test_usage_is_what_users_hold_and_what_all_agents_have() -> None:
    alices = plan({"agent1": 2, "agent2": 1})
    bobs = dataclasses.replace(
        plan({"agent2": 1}, resources={"cpu": 3}), user="bob", id="00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
    )
    eves = dataclasses.replace(alices, user="eve", id="11111111-3c0e-4f5e-9d0a-0f3c1d2e4b6a")
    cluster_state = readings(
        recorded=[alices, bobs],
        agent1=agent_facts("agent1", 4, sessions=[held_session(alices, "agent1"), held_session(eves, "agent1")]),
        agent2=agent_facts("agent2", 8, sessions=[held_session(alices, "agent2"), held_session(bobs, "agent2")]),
    )
    assert usage(cluster_state) == (
        {"alice": {"cpu": 3, "mem": 3 * GIB}, "bob": {"cpu": 3, "mem": GIB}},
        {"cpu": 12, "mem": 32 * GIB},
    )


def test_expired_claims_count_for_no_share() -> None:
    made = plan({"agent1": 1})
    assert usage(readings(recorded=[made], **holders(made, committed=False, expired=True)))[0] == {}


# ---- properties of all schedules


described: st.SearchStrategy[list[dict[str, Any]]] = st.lists(
    st.builds(
        dict,
        cpu=st.integers(1, 5),
        priority=st.integers(0, 2),
        cluster_size=st.integers(1, 3),
        cluster_mode=st.sampled_from(["single-node", "multi-node"]),
        resource_group=st.sampled_from(["default", "default", "gpu"]),
    ),
    max_size=6,
)
some_waiting = described.map(lambda listed: [waits(number, **fields) for number, fields in enumerate(listed, 1)])
some_passed = st.builds(passed, st.integers(0, 3), st.integers(0, 6))


some_cores = st.lists(st.integers(1, 6), min_size=1, max_size=3)


@given(some_waiting, some_cores, st.builds(QueuePolicy, st.sampled_from(POLICIES), st.integers(0, 3)))
def test_whatever_starts_fits_and_everything_is_answered_once(
    entries: list[QueueEntry], cores: list[int], rules: QueuePolicy
) -> None:
    cluster_state = cluster(*cores)
    answers = schedule(entries, Answers(cluster_state, POOLS, NOW), rules)
    assert sorted(entry.id for entry, _answer in answers) == [entry.id for entry in entries]
    for _entry, answer in answers:
        if isinstance(answer, Decision):
            cluster_state = cluster_state.with_plan(answer.plan)
    for facts in cluster_state.facts.values():
        assert facts.allocated.get("cpu", 0) <= facts.capacity["cpu"]


def one_by_one(
    entries: list[QueueEntry], cluster_state: ClusterState, rules: QueuePolicy, barred: set[str]
) -> list[tuple[QueueEntry, list[str]]]:
    """Return each session with its agents as the rules say, everything sorted anew after each decision."""
    remaining = {entry.id: entry for entry in entries}
    tried: dict[str, tuple[QueueEntry, list[str]]] = {}
    while True:
        shares = dominant_shares(*usage(cluster_state))
        waiting = [entry for entry in remaining.values() if entry.id not in {*tried, *barred}]
        due = due_sessions(waiting, count_skips(remaining.values()), rules.max_skips)
        ordered = sort_pending(waiting, rules.policy, shares, due)
        if not ordered:
            return [*tried.values()]
        entry, answers = ordered[0], Answers(cluster_state, POOLS, NOW)
        answer = waits_behind(remaining.values(), entry, answers.blocks, rules, barred) or answers.decide(entry)
        tried[entry.id] = entry, answer.plan.agents if isinstance(answer, Decision) else []
        if isinstance(answer, Decision):
            cluster_state = cluster_state.with_plan(answer.plan)
            remaining[entry.id] = dataclasses.replace(entry, state="RUNNING", has_started=True)


@settings(max_examples=60)
@given(
    some_waiting,
    some_passed,
    some_cores,
    st.builds(QueuePolicy, st.sampled_from(POLICIES), st.integers(0, 3)),
    st.randoms(),
)
def test_a_pass_is_what_the_rules_say_one_by_one(
    entries: list[QueueEntry], others: list[QueueEntry], cores: list[int], rules: QueuePolicy, random: Any
) -> None:
    entries = [*(dataclasses.replace(entry, user=random.choice("ab")) for entry in entries), *others]
    barred = {entry.id for entry in entries if random.random() < 0.2}
    found = schedule(entries, Answers(cluster(*cores), POOLS, NOW), rules, barred)
    assert [
        (entry, answer.plan.agents if isinstance(answer, Decision) else []) for entry, answer in found
    ] == one_by_one(entries, cluster(*cores), rules, barred)


@given(some_waiting, some_cores)
def test_without_patience_nothing_passes_what_could_ever_fit(entries: list[QueueEntry], cores: list[int]) -> None:
    answers = schedule(entries, Answers(cluster(*cores), POOLS, NOW), QueuePolicy("fifo", 0))
    started = {entry.id for entry, answer in answers if isinstance(answer, Decision)}
    for early, late in itertools.combinations(entries, 2):
        kept = early.resource_group == late.resource_group and early.priority >= late.priority
        feasible = is_feasible(spec_from_dict(early.spec or {}), cluster(*cores), POOLS, early.id)
        if kept and early.id not in started and feasible:
            assert late.id not in started


CHANGED: dict[str, tuple[dict[str, Any], str]] = {
    "a path": ({"mounts": [{"source": "/a/../etc", "target": "/b", "read_only": False}]}, "session_mounts[0].source"),
    "bind options": ({"mounts": [{"source": "/a", "target": "/b:z", "read_only": False}]}, "session_mounts[0].target"),
    "a reserved target": (
        {"mounts": [{"source": "/a", "target": "/opt/backendai/bin", "read_only": False}]},
        "session_mounts[0].target",
    ),
    "a size": ({"cluster_size": 10**9}, "session_cluster_size: 1000000000 must be a whole number from 1 to 1024"),
    "a slot": ({"resources": {"cpu": -1, "mem": 1 << 26}}, "session_resources.cpu: -1 "),
    "a user id": ({"uid": 0}, "session_uid: 0 must be a whole number from 1 to"),
    "a variable": ({"env": {"LD PRELOAD": "x"}}, "session_env: 'LD PRELOAD' is not the name of"),
    "a choice": ({"network_driver": "bridge"}, "session_network_driver: 'bridge' must be one of "),
    "a protocol": (
        {"apps": [{"name": "x", "port": 80, "protocol": "udp", "command": ""}]},
        "session_apps[0].protocol: 'udp' must be one of http, tcp",
    ),
    "a spelling": (
        {"mounts": [{"source": "/a/", "target": "/b", "read_only": False}]},
        "the stored request is not what its own options mean: cancel the session, and create it again",
    ),
}


@pytest.mark.parametrize(("changes", "reason"), CHANGED.values(), ids=CHANGED)
def test_request_that_was_changed_in_the_queue_is_judged_as_if_it_were_made(
    changes: dict[str, Any], reason: str
) -> None:
    good, other = waits(1), waits(2)
    changed = dataclasses.replace(good, spec={**(good.spec or {}), **changes})
    answers = Answers(cluster(8), POOLS, NOW)
    refused, started = (decision for _entry, decision in schedule([changed, other, *passed(9)], answers, FIFO))
    assert isinstance(refused, Unschedulable)
    assert refused.reason.startswith(reason)
    assert isinstance(started, Decision)


def test_roles_are_judged_again_as_they_were_meant() -> None:
    check_stored(
        spec(
            resources={"cpu": 2, "mem": "64m", "cuda.device": 1},
            env={"A": "1"},
            roles={"main": {"resources": {"cuda.device": 0}}, "worker": {"replicas": 2, "env": {"A": "2", "B": "3"}}},
        )
    )
