"""How many cores, and how much memory, GPUs bring with them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.cordon import Cordon
from ansible_collections.backendai.cluster.plugins.module_utils._model.devices import Device
from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.shares import amounts_by_gpus
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.defaults import Defaults
from tests.unit.builders import GIB, NOW, agent_facts, readings, spec

MIB = 1 << 20


def agent(name: str, gpus: int = 4, cpu: int = 32, mem: int = 256 * GIB, **changes: Any) -> AgentFacts:
    slot = changes.pop("slot", "cuda.device")
    capacity = {"cpu": changes.pop("capacity_cpu", cpu), "mem": mem, slot: gpus}
    return agent_facts(name, cpu, capacity=capacity, **changes)


def amounts(*agents: AgentFacts, gpus: int = 2, defaults: Defaults | None = None, **asked: Any) -> dict[str, int]:
    """Return what a container with so many GPUs gets."""
    request = spec(**{"resources": {"cuda.device": gpus}, **asked})
    cluster = readings(**{each.name: each for each in agents})
    return amounts_by_gpus(request, cluster, defaults or Defaults())(request.effective_roles[-1])


def test_it_is_the_smallest_share_of_the_agents_of_the_group() -> None:
    other = agent("agent3", cpu=4, mem=4 * GIB, resource_group="other")
    assert amounts(agent("agent1"), agent("agent2", cpu=8), other) == {"cpu": 4, "mem": 128 * GIB}


def test_an_agent_that_could_not_hold_it_does_not_count() -> None:
    small = agent("agent1", gpus=2, cpu=4)
    assert amounts(small, agent("agent2"), gpus=4) == {"cpu": 32, "mem": 256 * GIB}
    # All containers of a single-node session are on one.
    assert amounts(small, agent("agent2"), gpus=1, cluster_size=4) == {"cpu": 8, "mem": 64 * GIB}
    assert amounts(small, agent("agent2"), gpus=1, cluster_size=4, cluster_mode="multi-node") == {
        "cpu": 2,
        "mem": 64 * GIB,
    }


def test_what_is_taken_now_and_who_is_in_service_make_no_difference() -> None:
    busy = agent("agent1", allocated={"cpu": 31, "cuda.device": 4})
    cordoned = agent("agent2", cpu=8, schedulable=False, cordon=Cordon("", "carol", NOW))
    assert amounts(busy) == {"cpu": 16, "mem": 128 * GIB}
    assert amounts(busy, cordoned) == {"cpu": 4, "mem": 128 * GIB}


def test_gpus_of_another_kind_have_their_share_as_well() -> None:
    devices = [Device("cuda.device", f"GPU-{at}", model="H100" if at < 2 else "T4") for at in range(4)]
    assert amounts(agent("agent1", devices=devices), gpu={"model": "H100"}) == {"cpu": 16, "mem": 128 * GIB}


@pytest.mark.parametrize("slot", ["cuda.mig-1g.10gb", "rocm.device"])
def test_every_kind_of_gpu_counts(slot: str) -> None:
    assert amounts(agent("agent1", slot=slot), resources={slot: 1}) == {"cpu": 8, "mem": 64 * GIB}


@pytest.mark.parametrize(
    ("changes", "gpus", "expected"),
    [
        ({"cpu": 2}, 1, {"cpu": 1, "mem": 64 * GIB}),
        ({"capacity_cpu": 256}, 4, {"cpu": 32, "mem": 256 * GIB}),
        ({"mem": 7 * GIB + 5}, 2, {"cpu": 16, "mem": 3 * GIB}),
        ({"mem": GIB}, 1, {"cpu": 8, "mem": 256 * MIB}),
        ({"mem": 20 * MIB}, 1, {"cpu": 8, "mem": 16 * MIB}),
    ],
    ids=["a core at least", "no more cores than are online", "whole GiB", "whole MiB", "16 MiB at least"],
)
def test_amounts_are_those_that_a_container_can_have(
    changes: dict[str, Any], gpus: int, expected: dict[str, int]
) -> None:
    assert amounts(agent("agent1", **changes), gpus=gpus) == expected


def test_memory_has_room_for_the_shared_memory_that_was_named() -> None:
    request = dataclasses.replace(spec(), resources={"cpu": 1, "mem": GIB, "shmem": 90 * GIB, "cuda.device": 1})
    found = amounts_by_gpus(request, readings(agent1=agent("agent1")), Defaults())
    assert found(request.effective_roles[0]) == {"cpu": 8, "mem": 90 * GIB}


def test_the_policy_wins_as_far_as_it_says_something() -> None:
    assert amounts(agent("agent1"), defaults=Defaults(per_gpu={"mem": GIB})) == {"cpu": 16, "mem": 2 * GIB}


def test_who_waits_for_larger_agents_has_all_of_one_that_there_is() -> None:
    assert amounts(agent_facts("agent1"), agent("agent2", gpus=4), gpus=8) == {"cpu": 32, "mem": 256 * GIB}


def test_nothing_is_said_without_gpus_or_an_agent_for_them() -> None:
    assert amounts(agent("agent1"), resources={"cpu": 1}) == {}
    assert amounts(agent_facts("agent1")) == {}
