"""The updates of gateways: routes, ended sessions, and whether there is a change."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.module_utils._model.network import Underlay
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.module_utils._model.session import PublishedPort
from ansible_collections.backendai.cluster.plugins.plugin_utils._lifecycle.routes import (
    build_gateway_update,
    find_unrouted,
    find_vacated,
    reachable_plans,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import QueueEntry
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.access import build_gateway_route
from tests.unit.builders import NOW, SESSION_ID, agent_facts, held_session, holders, plan, readings, requested

OTHER_ID = "00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
SSH = (PublishedPort("ssh", "tcp", 22, "192.0.2.1", 30001),)


def published(session_id: str = SESSION_ID, **changes: Any) -> SessionPlan:
    return dataclasses.replace(plan({"agent1": 1}), **{"id": session_id, "published": SSH, **changes})


def ended_entry(session_id: str = SESSION_ID, state: str = "TERMINATED", at: float = NOW) -> QueueEntry:
    """Return the entry of a session that ended at that time."""
    return requested(id=session_id, name="train-llm", state=state, spec=None, updated_at=at)


def ids(update: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the ids of the routed and of the ended sessions."""
    return [route["id"] for route in update["routes"]], update["ended"]


def list_reachable(**state: Any) -> list[str]:
    """Return the ids of the reachable sessions if one agent holds a session in this state."""
    facts = agent_facts("agent1", sessions=[held_session(published(), "agent1", **state)])
    return [session_plan.id for session_plan in reachable_plans(readings(agent1=facts, recorded=[published()]))]


# ---- routes


def test_a_session_that_was_started_is_routed() -> None:
    session_plan = published()
    assert build_gateway_update([session_plan], [], NOW) == {
        "routes": [build_gateway_route(session_plan)],
        "ended": [],
        "vacated": [],
        "changed": True,
    }


def test_without_anything_that_began_or_ended_there_is_no_news() -> None:
    assert build_gateway_update([], [], 0.0) == {
        "routes": [],
        "ended": [],
        "vacated": [],
        "changed": False,
    }


def test_a_session_that_publishes_nothing_is_not_routed() -> None:
    assert ids(build_gateway_update([published(published=()), published(OTHER_ID)], [], NOW)) == ([OTHER_ID], [])


def test_of_two_sessions_of_one_name_the_newer_one_is_routed() -> None:
    older = published()
    newer = published(OTHER_ID, created_at=older.created_at + 1)
    for plans in ([newer, older], [older, newer]):
        assert ids(build_gateway_update(plans, [], NOW)) == ([OTHER_ID], [])


def test_sessions_of_other_names_are_all_routed() -> None:
    plans = [published(), published(OTHER_ID, name="other")]
    assert sorted(ids(build_gateway_update(plans, [], NOW))[0]) == [OTHER_ID, SESSION_ID]


# ---- ended sessions


@pytest.mark.parametrize("state", ["TERMINATING", "TERMINATED"])
def test_a_session_that_is_over_is_not_routed(state: str) -> None:
    update = build_gateway_update([published(), published(OTHER_ID, name="other")], [ended_entry(state=state)], NOW)
    assert ids(update) == ([OTHER_ID], [SESSION_ID])


@pytest.mark.parametrize("state", ["PENDING", "CREATING"])
def test_a_session_that_is_to_begin_is_not_over(state: str) -> None:
    assert ids(build_gateway_update([published()], [requested(id=SESSION_ID, state=state)], 0.0)) == ([SESSION_ID], [])


@pytest.mark.parametrize(
    ("since", "ended"),
    [(NOW + 61, []), (NOW + 1, [OTHER_ID]), (NOW, [OTHER_ID, SESSION_ID]), (0.0, [OTHER_ID, SESSION_ID])],
)
def test_only_sessions_that_ended_since_then_are_sent(since: float, ended: list[str]) -> None:
    entries = [ended_entry(OTHER_ID, at=NOW + 60), ended_entry(SESSION_ID, at=NOW)]
    update = build_gateway_update([], entries, since)
    assert (update["ended"], update["changed"]) == (ended, bool(ended))


def test_what_was_over_before_is_not_routed_either() -> None:
    assert ids(build_gateway_update([published()], [ended_entry(at=NOW)], NOW + 1)) == ([], [])


# ---- updates that were sent before


@pytest.mark.parametrize(
    ("already_sent", "news"),
    [([], True), ([OTHER_ID], True), ([SESSION_ID], False), ([SESSION_ID, OTHER_ID], False)],
    ids=["nothing", "another one", "it", "it and another one"],
)
def test_an_end_that_was_sent_before_is_no_change(already_sent: list[str], news: bool) -> None:
    assert build_gateway_update([], [ended_entry()], 0.0, already_sent) == {
        "routes": [],
        "ended": [SESSION_ID],
        "vacated": [],
        "changed": news,
    }


def test_a_route_is_always_news() -> None:
    update = build_gateway_update([published(OTHER_ID)], [ended_entry()], 0.0, [SESSION_ID, OTHER_ID])
    assert (ids(update), update["changed"]) == (([OTHER_ID], [SESSION_ID]), True)


# ---- reachable sessions


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({}, True),
        ({"stopped": {"main1": ("exited", 1)}}, True),
        ({"committed": False}, False),
        ({"committed": False, "expired": True}, False),
    ],
    ids=["running", "degraded", "being made", "given up"],
)
def test_only_committed_sessions_are_reachable(state: dict[str, Any], expected: bool) -> None:
    assert list_reachable(**state) == [SESSION_ID] * expected


def test_what_several_agents_hold_is_one_session() -> None:
    made, other = plan({"agent1": 1, "agent2": 1}), plan({"agent2": 1}, name="other")
    other = dataclasses.replace(other, id=OTHER_ID)
    agents: dict[str, AgentFacts] = holders(made)
    held_too = (*agents["agent2"].sessions, held_session(other, "agent2"))
    agents["agent2"] = dataclasses.replace(agents["agent2"], sessions=held_too)
    reachable = reachable_plans(readings(recorded=[made, other], **agents))
    assert sorted(session_plan.id for session_plan in reachable) == [OTHER_ID, SESSION_ID]


def test_without_the_agent_of_main1_there_is_no_route() -> None:
    made = plan({"agent1": 1, "agent2": 1})
    assert reachable_plans(readings(agent2=holders(made)["agent2"], recorded=[made])) == []


def test_without_sessions_on_agents_there_are_no_routes() -> None:
    assert reachable_plans(readings("agent1", "agent2", recorded=[published()])) == []


def test_what_agents_hold_although_it_is_over_is_not_routed() -> None:
    facts = agent_facts("agent1", sessions=[held_session(published(), "agent1")])
    plans = reachable_plans(readings(agent1=facts, recorded=[published()]))
    update = build_gateway_update(plans, [ended_entry(state="TERMINATING")], 0.0)
    assert ids(update) == ([], [SESSION_ID])


def test_the_route_of_a_session_is_that_of_the_record_and_one_without_a_record_gets_none() -> None:
    facts = agent_facts("agent1", sessions=[held_session(published(), "agent1")])
    assert reachable_plans(readings(agent1=facts)) == []
    recorded = published(name="recorded")
    assert reachable_plans(readings(agent1=facts, recorded=[recorded])) == [recorded]


def test_a_session_at_the_address_of_another_agent_gets_no_route() -> None:
    facts = {"agent1": agent_facts("agent1", sessions=[held_session(published(), "agent1")])}
    (address,) = {port.address for port in published().published}
    cluster = readings(recorded=[published()], **facts)
    assert reachable_plans(dataclasses.replace(cluster, addresses={"agent2": [address]})) == []
    also = dataclasses.replace(cluster, addresses={"agent1": [address], "agent2": [address]})
    assert [plan_of_it.id for plan_of_it in reachable_plans(also)] == [SESSION_ID]


# ---- ports of ended sessions


def test_sessions_that_this_run_is_about_to_end_are_sent() -> None:
    update = build_gateway_update([], [ended_entry()], NOW + 1, ending=[OTHER_ID])
    assert (update["ended"], update["changed"]) == ([OTHER_ID], True)


def test_a_session_that_this_run_is_about_to_end_gets_no_route() -> None:
    update = build_gateway_update([published()], [], NOW, ending=[SESSION_ID])
    assert (update["routes"], update["ended"]) == ([], [SESSION_ID])


def test_ports_reserved_at_the_address_of_another_agent_are_not_sent() -> None:
    taken = Underlay("192.0.2.1", "eth0", 1500)
    agents = {
        "agent1": agent_facts("agent1"),
        "agent2": agent_facts("agent2", reserved_ports={SESSION_ID: [30001]}, underlay=taken, addresses=["192.0.2.1"]),
    }
    assert find_vacated(readings(**agents)) == {}
    unread = readings(agent2=agents["agent2"])
    assert find_vacated(dataclasses.replace(unread, addresses={"agent1": ["192.0.2.1"]})) == {}
    assert [*find_vacated(dataclasses.replace(unread, addresses={"agent2": ["192.0.2.1"]}))] == ["agent2"]


def test_reserved_ports_are_sent_with_the_address_of_their_agent() -> None:
    cluster = readings(
        agent1=agent_facts("agent1", reserved_ports={SESSION_ID: [30001]}),
        agent2=agent_facts("agent2", reserved_ports={OTHER_ID: [30001]}, underlay=None),
        agent3=agent_facts("agent3"),
    )
    vacated = find_vacated(cluster)
    assert vacated == {"agent1": [{"id": SESSION_ID, "address": "192.0.2.1"}]}
    update = build_gateway_update([], [], 0.0, vacated=vacated["agent1"])
    assert (update["vacated"], update["changed"]) == (vacated["agent1"], True)


def test_the_address_of_an_agent_without_reserved_ports_is_not_looked_up() -> None:
    class Unread(dict[str, Any]):
        def get(self, *_arguments: Any) -> Any:
            raise AssertionError("an address was looked up")

    assert find_vacated(dataclasses.replace(readings("agent1", "agent2"), addresses=Unread())) == {}


UPDATE = {"ended": [SESSION_ID], "vacated": [{"id": OTHER_ID, "address": "192.0.2.1"}]}


@pytest.mark.parametrize(
    ("gateways", "confirmed", "expected"),
    [
        ([], {}, [OTHER_ID, SESSION_ID]),
        (["gateway1"], {"gateway1": {SESSION_ID}}, [SESSION_ID]),
        (["gateway1"], {"gateway1": {SESSION_ID, OTHER_ID, "more"}}, [OTHER_ID, SESSION_ID]),
        (["gateway1"], {}, []),
        (["gateway1", "gateway2"], {"gateway1": {SESSION_ID, OTHER_ID}, "gateway2": {OTHER_ID}}, [OTHER_ID]),
    ],
    ids=["no gateway", "one of two", "both", "not reached", "two gateways"],
)
def test_only_what_all_gateways_confirmed_is_unrouted(
    gateways: list[str], confirmed: dict[str, set[str]], expected: list[str]
) -> None:
    assert find_unrouted(UPDATE, gateways, confirmed) == expected
    assert find_unrouted({}, gateways, confirmed) == []
