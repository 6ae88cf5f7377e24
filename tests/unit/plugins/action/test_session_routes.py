"""Which ways in gateways open, and which they close."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.action.session_routes import ActionModule
from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.module_utils._model.session import PublishedPort
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.folder import QueueFolder
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.access import route_of
from tests.unit.builders import NOW, SESSION_ID, agent_facts, held_session, holders, plan, requested, result
from tests.unit.plugins.action.conftest import Run

OTHER_ID = "00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
SSH = (PublishedPort("ssh", "tcp", 22, "192.0.2.1", 30001),)


def published(session_id: str = SESSION_ID, **changes: Any) -> SessionPlan:
    return dataclasses.replace(plan({"agent1": 1}), **{"id": session_id, "published": SSH, **changes})


def over(queue: QueueFolder, session_id: str = SESSION_ID, state: str = "ended", at: float = NOW) -> None:
    """Save that a session is over since then."""
    queue.save(requested(id=session_id, name="train-llm", state=state, spec=None, updated_at=at))


def said(**agents: AgentFacts) -> dict[str, Any]:
    """Return the variables of a run that has read these agents."""
    return {"hostvars": {name: {"__session_agent": result(facts)} for name, facts in agents.items()}}


def ways(run: Run, *plans: SessionPlan, **args: Any) -> tuple[list[str], list[str]]:
    """Return the ids of the sessions that are routed, and of those that are over."""
    result = run(ActionModule, {"plans": [one.to_dict() for one in plans], **args}, {})
    return [one["id"] for one in result["routes"]], result["ended"]


def held(run: Run, agents: dict[str, AgentFacts], **args: Any) -> list[str]:
    """Return the ids of the sessions that are routed because agents hold them."""
    result = run(ActionModule, {"agents": sorted(agents), **args}, said(**agents))
    return [one["id"] for one in result["routes"]]


def test_a_session_that_was_started_gets_a_way_in(run: Run) -> None:
    made = published()
    result = run(ActionModule, {"plans": [made.to_dict()]}, {})
    assert (result["routes"], result["ended"], result["changed"]) == ([route_of(made)], [], False)


def test_without_anything_to_do_there_is_no_way_in(run: Run) -> None:
    result = run(ActionModule, {}, {})
    assert (result["routes"], result["ended"], result["news"], result["changed"]) == ([], [], False, False)


def test_what_gateways_have_been_told_is_no_news(run: Run, queue: QueueFolder) -> None:
    over(queue, OTHER_ID)
    made = {"plans": [published().to_dict()]}
    first = run(ActionModule, made, {})
    assert first["news"]
    assert not run(ActionModule, {**made, "told": first}, {})["news"]
    assert not run(ActionModule, {"told": first}, {})["news"], "a way in goes because its session ends"
    over(queue)
    again = run(ActionModule, {**made, "told": first}, {})
    assert (again["routes"], again["ended"], again["news"]) == ([], [OTHER_ID, SESSION_ID], True)


def test_a_session_that_publishes_nothing_has_no_way_in(run: Run) -> None:
    assert ways(run, published(published=()), published(OTHER_ID)) == ([OTHER_ID], [])


@pytest.mark.parametrize("state", ["ending", "ended"])
def test_a_session_that_is_over_loses_its_way_in(run: Run, queue: QueueFolder, state: str) -> None:
    over(queue, state=state)
    assert ways(run, published(), published(OTHER_ID)) == ([OTHER_ID], [SESSION_ID])


@pytest.mark.parametrize("state", ["waiting", "starting"])
def test_a_session_that_is_to_begin_is_not_over(run: Run, queue: QueueFolder, state: str) -> None:
    queue.save(requested(id=SESSION_ID, state=state))
    assert ways(run, published()) == ([SESSION_ID], [])


def test_what_was_over_before_is_not_closed_again(run: Run, queue: QueueFolder) -> None:
    over(queue, OTHER_ID, at=NOW + 60)
    over(queue, SESSION_ID, at=NOW)
    assert ways(run, since=NOW + 1) == ([], [OTHER_ID])
    assert ways(run, since=str(NOW)) == ([], [OTHER_ID, SESSION_ID])
    assert ways(run, since=0) == ways(run) == ([], [OTHER_ID, SESSION_ID])


def test_what_was_over_before_is_not_opened_either(run: Run, queue: QueueFolder) -> None:
    over(queue, at=NOW)
    assert ways(run, published(), since=NOW + 1) == ([], [])
    agents = {"agent1": agent_facts("agent1", sessions=[held_session(published(), "agent1")])}
    assert held(run, agents, since=NOW + 1) == []


def test_what_agents_hold_has_its_ways_in_once(run: Run) -> None:
    across = dataclasses.replace(plan({"agent1": 1, "agent2": 1}), published=SSH)
    agents = holders(across)
    other = dataclasses.replace(published(OTHER_ID), name="other-one")
    sessions = (*agents["agent2"].sessions, held_session(other, "agent2"))
    agents["agent2"] = dataclasses.replace(agents["agent2"], sessions=sessions)
    assert sorted(held(run, agents)) == [OTHER_ID, SESSION_ID]
    assert held(run, agents, plans=[across.to_dict()]) == [SESSION_ID, OTHER_ID]


def test_of_two_sessions_of_one_name_the_newer_one_has_it(run: Run) -> None:
    newer = dataclasses.replace(published(OTHER_ID), created_at=published(SESSION_ID).created_at + 1)
    plans = [newer.to_dict(), published(SESSION_ID).to_dict()]
    assert held(run, {}, plans=plans) == [OTHER_ID]


def test_what_agents_hold_is_read_only_where_it_is_asked_for(run: Run) -> None:
    agents = {"agent1": agent_facts("agent1", sessions=[held_session(published(), "agent1")])}
    assert run(ActionModule, {}, said(**agents))["routes"] == []
    assert held(run, agents) == [SESSION_ID]


@pytest.mark.parametrize(
    ("changes", "routed"),
    [
        ({}, True),
        ({"stopped": {"main1": ("exited", 1)}}, True),
        ({"committed": False}, False),
        ({"committed": False, "expired": True}, False),
    ],
    ids=["running", "degraded", "being made", "given up"],
)
def test_users_come_in_once_a_session_is_proven(run: Run, changes: dict[str, Any], routed: bool) -> None:
    agents = {"agent1": agent_facts("agent1", sessions=[held_session(published(), "agent1", **changes)])}
    assert held(run, agents) == ([SESSION_ID] if routed else [])


def test_what_agents_hold_although_it_is_over_is_not_opened_again(run: Run, queue: QueueFolder) -> None:
    over(queue, state="ending")
    agents = {"agent1": agent_facts("agent1", sessions=[held_session(published(), "agent1")])}
    assert held(run, agents) == []


@pytest.mark.usefixtures("queue")
def test_check_mode_finds_the_same(run: Run) -> None:
    made = published().to_dict()
    assert run(ActionModule, {"plans": [made]}, {}, check_mode=True)["routes"] == [route_of(published())]
