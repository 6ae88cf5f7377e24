"""Reference placements: tries every assignment of containers to agents."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import strategies as st

from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.place import Group
from tests.unit.builders import agent_facts, bare_plan, bare_session

SELECTIONS = ("concentrated", "dispersed", "roundrobin")

agent_descriptions: st.SearchStrategy[list[dict[str, int]]] = st.lists(
    st.builds(
        dict,
        cpu=st.integers(0, 6),
        mem=st.integers(0, 6),
        gpu=st.integers(0, 3),
        online=st.integers(1, 4),
        containers=st.integers(0, 2),
        max_containers=st.sampled_from([0, 0, 0, 2, 4]),
        latest=st.integers(0, 3),
    ),
    min_size=1,
    max_size=4,
)
resource_requests: st.SearchStrategy[dict[str, int]] = st.fixed_dictionaries(
    {"cpu": st.integers(1, 3), "mem": st.integers(0, 3)},
    optional={"gpu": st.integers(0, 2), "shmem": st.integers(0, 9)},
)
uniform_groups: st.SearchStrategy[list[Group]] = st.builds(
    lambda request, size: [Group("main", request, 1), *([Group("sub", request, size - 1)] if size > 1 else [])],
    resource_requests,
    st.integers(1, 6),
)
mixed_groups: st.SearchStrategy[list[Group]] = st.builds(
    lambda main, *others: [Group("main", main, 1), *(Group(*other) for other in others)],
    resource_requests,
    st.tuples(st.just("worker"), resource_requests, st.integers(1, 2)),
    st.tuples(st.just("server"), resource_requests, st.integers(1, 2)),
)

gpu_groups: st.SearchStrategy[list[Group]] = st.builds(
    lambda gpus, servers: [
        Group("main", {"cpu": 1}, 1),
        Group("gpu", {"cpu": 1, "gpu": 1}, gpus),
        Group("server", {"cpu": 1, "mem": 2}, servers),
    ],
    st.integers(1, 3),
    st.integers(1, 2),
)


def build_agents(descriptions: Sequence[dict[str, int]], **changes: Any) -> list[AgentFacts]:
    """Return agents ``a``, ``b`` … from generated descriptions."""
    return [
        agent_facts(
            name,
            capacity={"cpu": description["cpu"], "mem": description["mem"], "gpu": description["gpu"]},
            online_cpus=list(range(description["online"])),
            containers=description["containers"],
            max_containers=description["max_containers"],
            sessions=[bare_session(bare_plan(f"old-{name}", description["latest"], {"elsewhere": [{}]}))],
            **changes,
        )
        for name, description in zip("abcd", descriptions, strict=False)
    ]


def can_hold(agent: AgentFacts, requests: Sequence[dict[str, int]]) -> bool:
    """Return whether an agent can hold these containers together, by the rules of the contract one by one."""
    if not requests:
        return True
    if agent.max_containers and agent.containers + len(requests) > agent.max_containers:
        return False
    if any(request.get("cpu", 0) > len(agent.online_cpus) for request in requests):
        return False
    slots = {slot for request in requests for slot, amount in request.items() if amount} - {"shmem"}
    return all(
        agent.allocated.get(slot, 0) + sum(request.get(slot, 0) for request in requests) <= agent.capacity.get(slot, 0)
        for slot in slots
    )


def list_requests(groups: Sequence[Group]) -> list[dict[str, int]]:
    """Return the request of each container, in rank order."""
    return [group.request for group in groups for _container in range(group.count)]


def placements(agents: Sequence[AgentFacts], groups: Sequence[Group]) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Yield every placement of some or all containers: how many of each group each agent has."""
    return _placements(agents, groups, tuple(group.count for group in groups))


def complete_placements(
    agents: Sequence[AgentFacts], groups: Sequence[Group], *, single_node: bool = False
) -> Iterator[tuple[str, ...]]:
    """Yield the agents that take part, for every placement of all containers."""
    for placement in placements(agents, groups):
        used = tuple(agent.name for agent, counts in zip(agents, placement, strict=True) if any(counts))
        if list(map(sum, zip(*placement, strict=True))) == [group.count for group in groups] and (
            len(used) == 1 or not single_node
        ):
            yield used


def _placements(
    agents: Sequence[AgentFacts], groups: Sequence[Group], remaining: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], ...]]:
    if not agents:
        yield ()
        return
    for counts in itertools.product(*(range(most + 1) for most in remaining)):
        placed = [group.request for group, count in zip(groups, counts, strict=True) for _container in range(count)]
        if can_hold(agents[0], placed):
            rest = tuple(most - count for most, count in zip(remaining, counts, strict=True))
            yield from ((counts, *others) for others in _placements(agents[1:], groups, rest))
