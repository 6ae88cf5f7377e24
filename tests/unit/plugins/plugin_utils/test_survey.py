"""What the inventory decides of an agent is as it was sent to it, whatever it replies."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.plugin_utils.cluster_view import read_answers
from ansible_collections.backendai.cluster.plugins.plugin_utils.survey import survey
from tests.unit.builders import agent_facts, result
from tests.unit.plugins.action.asked_hosts import AskedHosts

ALL_ALLOWED = {"agent_allow_host_network": True, "agent_allow_infiniband": True}
LIE: dict[str, Any] = {
    "resource_group": "secret",
    "labels": ["h100"],
    "topology": ["row9"],
    "topology_levels": ["row"],
    "max_containers": 1000,
    "allow_host_network": True,
    "schedulable": True,
    "has_infiniband": True,
    "infiniband": True,
}


def surveyed(variables: dict[str, Any], **replied: Any) -> AgentFacts:
    """Return the facts of an agent with these variables that has replied these."""
    reply = result(agent_facts("agent1", **replied))
    return read_answers(survey(AskedHosts({"agent1": variables}, lambda _asked: reply), ["agent1"])).facts["agent1"]


def test_an_agent_has_no_say_about_what_the_inventory_decides() -> None:
    facts = surveyed({"agent_resource_group": "default", "agent_schedulable": False}, **LIE)
    assert (facts.resource_group, facts.labels, facts.max_containers) == ("default", frozenset(), 0)
    assert (facts.topology, facts.topology_levels) == ((), ())
    assert (facts.schedulable, facts.allow_host_network, facts.infiniband) == (False, False, False)
    assert (facts.has_infiniband, facts.kit) == (True, "0123456789ab")


def test_settings_of_the_inventory_count_in_whatever_form_they_are() -> None:
    variables = {
        **ALL_ALLOWED,
        "agent_labels": '["a100", "nvlink"]',
        "agent_topology": ["row1"],
        "agent_topology_levels": ["row"],
        "agent_max_containers": "7",
    }
    facts = surveyed(variables, **{**LIE, "allow_host_network": False})
    assert (facts.labels, facts.topology, facts.max_containers) == (frozenset({"a100", "nvlink"}), ("row1",), 7)
    assert (facts.schedulable, facts.allow_host_network, facts.infiniband) == (True, True, True)
    assert {type(label) for label in facts.labels} == {str}


@pytest.mark.parametrize("name", ["schedulable", "infiniband"])
def test_what_the_inventory_allows_the_host_may_lack(name: str) -> None:
    assert getattr(surveyed(ALL_ALLOWED, **{**LIE, name: False}), name) is False


def test_damaged_facts_stay_damaged() -> None:
    damaged = {"agent": {"schedulable": "yes"}, "error": None}
    state = read_answers(survey(AskedHosts({"agent1": ALL_ALLOWED}, lambda _asked: damaged), ["agent1"]))
    assert state.unavailable["agent1"].startswith("the facts of agent1 are damaged: ")
