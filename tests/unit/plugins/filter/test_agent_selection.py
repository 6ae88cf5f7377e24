"""The filter agent_selection."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.backendai.cluster.plugins.filter.agent_selection import FilterModule, agent_selection

AGENTS = ["agent1", "agent2", "agent3"]


@pytest.mark.parametrize("names", ["agent1,agent2", " agent1 , agent2,", ["agent1", "agent2", "agent1"]])
def test_agents_are_named_in_a_list_or_with_commas(names: str | list[str]) -> None:
    assert agent_selection(names, AGENTS, confirmed=False) == ["agent1", "agent2"]


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        ("", "agent_names is required: one or more of agent1, agent2, agent3."),
        ("agnt1", "agent_names: 'agnt1' is not an agent of the inventory; did you mean agent1?"),
        ("x", "agent_names: 'x' is not an agent of the inventory; there are agent1, agent2, agent3."),
        (
            AGENTS,
            "agent_names: these are all agents, so no session could start; set agent_all_confirmed=true to confirm.",
        ),
    ],
)
def test_other_names_and_all_agents_at_once_are_refused(names: str | list[str], sentence: str) -> None:
    with pytest.raises(AnsibleFilterError) as refused:
        agent_selection(names, AGENTS, confirmed=False)
    assert str(refused.value) == sentence


def test_all_agents_are_selected_if_that_is_confirmed() -> None:
    assert agent_selection(AGENTS, AGENTS, confirmed=True) == AGENTS


def test_filter_is_registered_by_name() -> None:
    assert FilterModule().filters() == {"agent_selection": agent_selection}
