"""A session is found on the agents by its name or id."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.action.session_find import ActionModule
from tests.unit.builders import SESSION_ID, agent_data, plan, session_data
from tests.unit.plugins.action.conftest import Run

MADE = plan({"agent1": 2, "agent2": 2})


def answers(**said: dict[str, Any]) -> dict[str, Any]:
    return {"hostvars": {name: {"__session_agent": answer} for name, answer in said.items()}}


def holding(name: str) -> dict[str, Any]:
    return {"agent": agent_data(name, sessions=[session_data(MADE, name)])}


EVERYWHERE = answers(agent1=holding("agent1"), agent2=holding("agent2"), agent3={"agent": agent_data("agent3")})


@pytest.mark.parametrize(
    "wanted",
    [{"name": "train-llm"}, {"name": "train-llm", "id": ""}, {"id": SESSION_ID}, {"name": "", "id": SESSION_ID}],
    ids=["name", "name, empty id", "id", "id, empty name"],
)
def test_a_session_is_found_with_the_agents_that_hold_it(run: Run, wanted: dict[str, str]) -> None:
    result = run(ActionModule, {**wanted, "agents": ["agent1", "agent2", "agent3"]}, EVERYWHERE)
    assert (result["plan"]["id"], result["agents"]) == (SESSION_ID, ["agent1", "agent2"])
    assert result["changed"] is False


@pytest.mark.parametrize("wanted", [{"name": "other"}, {"id": "other"}, {"name": "train", "id": ""}])
def test_a_session_that_nobody_holds_is_nothing_to_end(run: Run, wanted: dict[str, str]) -> None:
    result = run(ActionModule, {**wanted, "agents": ["agent1", "agent2", "agent3"]}, EVERYWHERE)
    assert (result["plan"], result["agents"]) == (None, [])


def test_an_id_that_belongs_to_another_name_ends_neither(run: Run) -> None:
    with pytest.raises(AnsibleActionFail) as refused:
        run(ActionModule, {"name": "other", "id": SESSION_ID, "agents": ["agent1", "agent2"]}, EVERYWHERE)
    assert str(refused.value) == f"session_id: {SESSION_ID!r} is the id of 'train-llm', not of 'other'."


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        ({"unreachable": True, "msg": "Failed to connect"}, "Failed to connect"),
        ({"unfit": "start docker."}, "start docker"),
    ],
    ids=["unreachable", "unfit"],
)
def test_a_session_is_not_ended_by_half(run: Run, second: dict[str, Any], reason: str) -> None:
    with pytest.raises(AnsibleActionFail) as refused:
        run(
            ActionModule,
            {"name": "train-llm", "agents": ["agent1", "agent2"]},
            answers(agent1=holding("agent1"), agent2=second),
        )
    assert str(refused.value) == (
        f"the session 'train-llm' has containers on agents that cannot be used, so nothing was ended: agent2: {reason}."
    )


def test_an_agent_that_left_the_inventory_is_named(run: Run) -> None:
    with pytest.raises(AnsibleActionFail, match=r"agent2: not in the inventory, or hidden by --limit\.$"):
        run(ActionModule, {"name": "train-llm", "agents": ["agent1"]}, answers(agent1=holding("agent1")))
