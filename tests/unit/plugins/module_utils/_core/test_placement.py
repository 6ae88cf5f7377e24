"""Which agent holds how many containers, held against a search through all possibilities."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.backendai.cluster.plugins.module_utils._core.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.module_utils._core.placement import (
    NoRoom,
    Placement,
    place,
    room_for,
)
from tests.unit.builders import GIB, agent_facts

ONE_CORE = {"cpu": 1, "mem": GIB}
SELECTIONS = ("concentrated", "dispersed", "roundrobin")
MODES = pytest.mark.parametrize("single_node", [True, False], ids=["single-node", "multi-node"])

agents_of_a_cluster: st.SearchStrategy[list[dict[str, int]]] = st.lists(
    st.builds(
        dict,
        cpu=st.integers(0, 8),
        mem=st.integers(0, 8),
        gpu=st.integers(0, 3),
        online=st.integers(1, 6),
        taken_cpu=st.integers(0, 4),
        containers=st.integers(0, 2),
        max_containers=st.integers(0, 5),
        latest=st.integers(0, 3),
    ),
    min_size=1,
    max_size=4,
)
requests = st.fixed_dictionaries(
    {"cpu": st.integers(1, 4), "mem": st.integers(0, 4)},
    optional={"gpu": st.integers(0, 2), "shmem": st.integers(0, 9)},
)
sizes = st.integers(1, 7)


def cluster(described: list[dict[str, int]]) -> list[AgentFacts]:
    """Return agents ``a``, ``b`` … as they were drawn."""
    return [
        agent_facts(
            name,
            capacity={"cpu": one["cpu"], "mem": one["mem"], "gpu": one["gpu"]},
            taken={"cpu": one["taken_cpu"]},
            online_cpus=list(range(one["online"])),
            containers=one["containers"],
            max_containers=one["max_containers"],
            sessions=[{"plan": {"created_at": float(one["latest"])}}],
        )
        for name, one in zip("abcd", described, strict=False)
    ]


def holds(agent: AgentFacts, request: dict[str, int], count: int) -> bool:
    """Say whether an agent can hold that many containers: the rules of the contract, written out one by one."""
    if count == 0:
        return True
    if request["cpu"] > agent.online_cpus:
        return False
    if agent.max_containers and agent.containers + count > agent.max_containers:
        return False
    wanted = {slot: amount * count for slot, amount in request.items() if slot != "shmem" and amount}
    return all(agent.taken.get(slot, 0) + amount <= agent.capacity.get(slot, 0) for slot, amount in wanted.items())


def possible(
    agents: list[AgentFacts], request: dict[str, int], size: int, single_node: bool
) -> Iterator[tuple[tuple[str, int], ...]]:
    """Yield every way to place the session, found by trying all."""
    most = [max(count for count in range(size + 1) if holds(agent, request, count)) for agent in agents]
    for counts in itertools.product(*(range(limit + 1) for limit in most)):
        used = tuple((agent.name, count) for agent, count in zip(agents, counts, strict=True) if count)
        if sum(counts) == size and (len(used) == 1 or not single_node):
            yield used


@given(agents_of_a_cluster, requests, sizes, st.booleans(), st.sampled_from(SELECTIONS))
def test_a_session_is_placed_whole_and_within_capacity_whenever_that_is_possible(
    described: list[dict[str, int]], request: dict[str, int], size: int, single_node: bool, selection: str
) -> None:
    agents = cluster(described)
    ways = {frozenset(way) for way in possible(agents, request, size, single_node)}
    placed = place(agents, request, size, single_node=single_node, selection=selection)
    if isinstance(placed, Placement):
        assert frozenset(placed.counts) in ways
    else:
        assert not ways


@given(agents_of_a_cluster, requests, sizes, st.sampled_from(["concentrated", "roundrobin"]))
def test_a_multi_node_session_uses_the_fewest_agents_that_hold_it(
    described: list[dict[str, int]], request: dict[str, int], size: int, selection: str
) -> None:
    agents = cluster(described)
    fewest = min((len(way) for way in possible(agents, request, size, False)), default=0)
    placed = place(agents, request, size, single_node=False, selection=selection)
    assert (len(placed.counts) if isinstance(placed, Placement) else 0) == fewest


@given(agents_of_a_cluster, requests, sizes)
def test_roundrobin_takes_the_oldest_of_the_placements_that_are_as_small(
    described: list[dict[str, int]], request: dict[str, int], size: int
) -> None:
    agents = cluster([{**one, "latest": one["latest"] * 4 + position} for position, one in enumerate(described)])
    latest = {agent.name: agent.latest_session for agent in agents}
    ages = [sorted(latest[name] for name, _count in way) for way in possible(agents, request, size, False)]
    placed = place(agents, request, size, single_node=False, selection="roundrobin")
    if isinstance(placed, NoRoom):
        return
    taken = sorted(latest[name] for name, _count in placed.counts)
    assert taken == min(age for age in ages if len(age) == len(taken))


def test_roundrobin_passes_over_the_roomiest_agent_where_older_ones_do() -> None:
    agents = [
        agent_facts("agent1", 4, sessions=[{"plan": {"created_at": 30.0}}]),
        agent_facts("agent2", 3, sessions=[{"plan": {"created_at": 10.0}}]),
        agent_facts("agent3", 3, sessions=[{"plan": {"created_at": 20.0}}]),
    ]
    placed = place(agents, ONE_CORE, 6, single_node=False, selection="roundrobin")
    assert isinstance(placed, Placement)
    assert dict(placed.counts) == {"agent2": 3, "agent3": 3}


@given(agents_of_a_cluster, requests, sizes)
def test_dispersed_uses_as_many_agents_as_there_are_and_fills_them_evenly(
    described: list[dict[str, int]], request: dict[str, int], size: int
) -> None:
    agents = cluster(described)
    usable = [agent for agent in agents if holds(agent, request, 1)]
    placed = place(agents, request, size, single_node=False, selection="dispersed")
    if isinstance(placed, NoRoom):
        return
    counts = dict(placed.counts)
    assert len(counts) == min(size, len(usable))
    for agent in usable:
        if agent.name in counts and holds(agent, request, counts[agent.name] + 1):
            assert counts[agent.name] >= max(counts.values()) - 1


@given(
    agents_of_a_cluster, requests, sizes, st.booleans(), st.sampled_from(SELECTIONS), st.randoms(use_true_random=False)
)
def test_the_order_in_which_agents_are_listed_changes_nothing(
    described: list[dict[str, int]], request: dict[str, int], size: int, single_node: bool, selection: str, random: Any
) -> None:
    agents = cluster(described)
    shuffled = random.sample(agents, len(agents))
    wanted = (request, size)
    assert place(agents, *wanted, single_node=single_node, selection=selection) == place(
        shuffled, *wanted, single_node=single_node, selection=selection
    )


@given(agents_of_a_cluster, requests, sizes, st.booleans())
def test_the_shortfall_is_what_the_containers_without_a_place_ask(
    described: list[dict[str, int]], request: dict[str, int], size: int, single_node: bool
) -> None:
    agents = cluster(described)
    placed = place(agents, request, size, single_node=single_node, selection="concentrated")
    if isinstance(placed, Placement):
        return
    could = max(
        count
        for count in range(size)
        if count == 0 or any(True for _way in possible(agents, request, count, single_node))
    )
    assert placed.shortfall.items() <= {slot: (size - could) * amount for slot, amount in request.items()}.items()
    assert 0 not in placed.shortfall.values()
    assert "shmem" not in placed.shortfall
    if not any(agent.max_containers for agent in agents):
        assert placed.shortfall


@pytest.mark.parametrize("selection", SELECTIONS)
@MODES
def test_no_agents_at_all_is_no_room_that_says_so(selection: str, single_node: bool) -> None:
    assert place([], ONE_CORE, 2, single_node=single_node, selection=selection) == NoRoom(
        "no room for 2 of 2 containers: no agent that may hold them is schedulable", {}
    )


@pytest.mark.parametrize("selection", ["concentrated", "roundrobin"])
@MODES
def test_what_fits_on_one_agent_goes_on_one_agent(selection: str, single_node: bool) -> None:
    agents = [agent_facts("agent1", 2), agent_facts("agent2", 4), agent_facts("agent3", 2)]
    placed = place(agents, ONE_CORE, 4, single_node=single_node, selection=selection)
    assert placed == Placement((("agent2", 4),))


@pytest.mark.parametrize(
    ("selection", "single_node", "counts"),
    [
        ("concentrated", False, (("agent1", 2),)),
        ("concentrated", True, (("agent1", 2),)),
        ("roundrobin", False, (("agent2", 2),)),
        ("roundrobin", True, (("agent2", 2),)),
        ("dispersed", False, (("agent3", 1), ("agent2", 1))),
        ("dispersed", True, (("agent3", 2),)),
    ],
)
def test_each_selection_has_its_favourite(
    selection: str, single_node: bool, counts: tuple[tuple[str, int], ...]
) -> None:
    agents = [
        agent_facts("agent1", 4, sessions=[{"plan": {"created_at": 30.0}}]),
        agent_facts("agent2", 6, sessions=[{"plan": {"created_at": 10.0}}]),
        agent_facts("agent3", 8, sessions=[{"plan": {"created_at": 20.0}}]),
    ]
    assert place(agents, ONE_CORE, 2, single_node=single_node, selection=selection) == Placement(counts)


def test_dispersed_goes_on_with_the_others_when_one_agent_is_full() -> None:
    agents = [agent_facts("agent1", 1), agent_facts("agent2", 2), agent_facts("agent3", 5)]
    placed = place(agents, ONE_CORE, 7, single_node=False, selection="dispersed")
    assert isinstance(placed, Placement)
    assert dict(placed.counts) == {"agent1": 1, "agent2": 2, "agent3": 4}


def test_concentrated_leaves_accelerators_to_those_who_ask_for_them() -> None:
    plain, accelerated = (
        agent_facts("agent2", 8),
        agent_facts("agent1", 8, capacity={"cpu": 8, "mem": 16 * GIB, "cuda.device": 8}),
    )
    assert place([accelerated, plain], ONE_CORE, 2, single_node=True, selection="concentrated") == Placement(
        (("agent2", 2),)
    )


def test_the_last_containers_go_where_the_least_room_is_left_over() -> None:
    agents = [agent_facts("agent1", 8), agent_facts("agent2", 6), agent_facts("agent3", 2)]
    placed = place(agents, ONE_CORE, 10, single_node=False, selection="concentrated")
    assert placed == Placement((("agent1", 8), ("agent3", 2)))


@pytest.mark.parametrize(
    ("request_of_one", "changes", "room"),
    [
        (ONE_CORE, {}, 8),
        ({"cpu": 3, "mem": GIB}, {}, 2),
        ({"cpu": 1, "mem": 5 * GIB}, {}, 3),
        (ONE_CORE, {"taken": {"cpu": 5}}, 3),
        (ONE_CORE, {"taken": {"cpu": 99}}, 0),
        (ONE_CORE, {"max_containers": 3}, 3),
        (ONE_CORE, {"max_containers": 3, "containers": 2}, 1),
        (ONE_CORE, {"max_containers": 3, "containers": 5}, 0),
        (ONE_CORE, {"capacity": {"cpu": 64, "mem": 64 * GIB}}, 64),
        ({"cpu": 8, "mem": GIB}, {"capacity": {"cpu": 64, "mem": 64 * GIB}}, 8),
        ({"cpu": 9, "mem": GIB}, {"capacity": {"cpu": 64, "mem": 64 * GIB}}, 0),
        ({**ONE_CORE, "cuda.device": 1}, {}, 0),
        ({**ONE_CORE, "cuda.device": 0}, {}, 8),
        ({**ONE_CORE, "cuda.device": 1}, {"capacity": {"cpu": 8, "mem": 16 * GIB, "cuda.device": 2}}, 2),
        ({**ONE_CORE, "shmem": GIB}, {}, 8),
    ],
    ids=[
        "one core each",
        "three cores each",
        "memory binds",
        "some is taken",
        "more is taken than there is",
        "the limit of containers binds",
        "others count towards the limit",
        "the limit was lowered",
        "overcommitted",
        "as wide as the agent",
        "wider than the agent, whatever the overcommit",
        "a slot that the agent lacks",
        "a slot of amount zero that the agent lacks",
        "accelerators bind",
        "shared memory is a part of memory",
    ],
)
def test_room_is_how_many_more_containers_fit(
    request_of_one: dict[str, int], changes: dict[str, Any], room: int
) -> None:
    assert room_for(agent_facts("agent1", 8, **changes), request_of_one) == room


@pytest.mark.parametrize(
    ("agents", "request_of_one", "size", "single_node", "no_room"),
    [
        (
            {"agent1": {"cpu": 2}, "agent2": {"cpu": 2}},
            ONE_CORE,
            8,
            False,
            NoRoom("no room for 4 of 8 containers on 2 agents: short of cpu 4", {"cpu": 4}),
        ),
        (
            {"agent1": {"cpu": 2}, "agent2": {"cpu": 4}},
            ONE_CORE,
            6,
            True,
            NoRoom("no room for 2 of 6 containers on one agent: short of cpu 2", {"cpu": 2}),
        ),
        (
            {"agent1": {"cpu": 8, "mem": 2 * GIB}},
            ONE_CORE,
            4,
            True,
            NoRoom("no room for 2 of 4 containers on one agent: short of mem 2g", {"mem": 2 * GIB}),
        ),
        (
            {"agent1": {"cpu": 2, "mem": 2 * GIB}},
            ONE_CORE,
            3,
            True,
            NoRoom("no room for 1 of 3 containers on one agent: short of cpu 1, mem 1g", {"cpu": 1, "mem": GIB}),
        ),
        (
            {"agent1": {"max_containers": 2}, "agent2": {"max_containers": 1}},
            ONE_CORE,
            4,
            False,
            NoRoom("no room for 1 of 4 containers on 2 agents: the limit of containers per agent is reached", {}),
        ),
        (
            {"agent1": {"cpu": 4, "capacity": {"cpu": 32, "mem": 16 * GIB}}, "agent2": {"cpu": 2}},
            {"cpu": 6, "mem": GIB},
            1,
            True,
            NoRoom(
                "no room for 1 of 1 containers on 2 agents: short of cpu 6; one container asks for 6 cores and no agent"
                " has more than 4 online",
                {"cpu": 6},
            ),
        ),
        (
            {"agent1": {}},
            {**ONE_CORE, "cuda.device": 2},
            2,
            True,
            NoRoom("no room for 2 of 2 containers on one agent: short of cuda.device 4", {"cuda.device": 4}),
        ),
    ],
    ids=["cores", "cores of one agent", "memory", "both", "container limit", "too wide", "accelerators"],
)
def test_no_room_names_what_is_short_and_by_how_much(
    agents: dict[str, dict[str, Any]], request_of_one: dict[str, int], size: int, single_node: bool, no_room: NoRoom
) -> None:
    there = [agent_facts(name, **described) for name, described in agents.items()]
    assert place(there, request_of_one, size, single_node=single_node, selection="concentrated") == no_room
