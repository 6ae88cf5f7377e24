"""The groups of a plan: all of its user, or of too many those that own its folders."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.backendai.cluster.plugins.module_utils._model.session import MAX_GROUPS, Mount, UserGroup
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.session_network import PlanningError
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.user_groups import Membership
from tests.unit.builders import agent_facts, plan

MOUNTS = tuple(Mount(f"/mnt/{number}", f"/{number}") for number in range(70))
MADE = replace(plan({"agent1": 1, "agent2": 1}), mounts=MOUNTS)
MANY = tuple(range(1000, 66_000))


def chosen(numbers: tuple[int, ...], **owners: dict[str, int]) -> list[int]:
    facts = {name: agent_facts(name, path_groups=owners.get(name, {})) for name in ("agent1", "agent2", "agent3")}
    return [group.number for group in Membership("alice", 1001, numbers).of_plan(MADE, facts)]


def test_up_to_64_groups_are_all_given_but_that_of_user_work() -> None:
    numbers = (MADE.gid, *range(2000, 2000 + MAX_GROUPS))
    assert chosen(numbers) == list(numbers[1:])


def test_groups_have_the_names_that_are_known() -> None:
    groups = Membership("alice", 1001, (2000, 2001), {2000: "project-a"}).of_plan(MADE, {})
    assert groups == (UserGroup(2000, "project-a"), UserGroup(2001))


def test_of_more_than_64_groups_those_are_kept_that_own_a_folder_of_the_plan() -> None:
    assert chosen(MANY, agent1={"/mnt/1": 5000, "/mnt/2": 0, "/mnt/other": 5001}, agent2={"/mnt/1": 6000}) == [
        5000,
        6000,
    ]


def test_an_agent_that_is_not_of_the_plan_has_no_say() -> None:
    assert chosen(MANY, agent3={f"/mnt/{number}": 2000 + number for number in range(70)}) == []


def test_more_than_64_that_own_a_folder_are_refused_with_what_the_operator_can_do() -> None:
    with pytest.raises(PlanningError) as refused:
        chosen(MANY, agent1={f"/mnt/{number}": 2000 + number for number in range(65)})
    assert str(refused.value) == (
        "alice is in 65 groups that own a folder of the session, and a container has at most 64: ask an operator to"
        " name those that count in the policy, groups: [names]"
    )


@given(st.sets(st.integers(990, 1120)), st.lists(st.integers(990, 1120), max_size=70))
def test_no_plan_has_a_group_that_its_user_has_not_nor_more_than_64(numbers: set[int], owners: list[int]) -> None:
    owning = {f"/mnt/{number}": owner for number, owner in enumerate(owners)}
    try:
        found = chosen(tuple(sorted(numbers)), agent1=owning)
    except PlanningError:
        assert len((numbers & {*owners}) - {MADE.gid}) > MAX_GROUPS
        return
    assert len(found) <= MAX_GROUPS
    assert {*found} <= numbers - {MADE.gid}
    if len(numbers - {MADE.gid}) <= MAX_GROUPS:
        assert {*found} == numbers - {MADE.gid}
