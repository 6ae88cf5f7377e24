"""A session is planned on the control node, from what the agents said."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.action.session_plan import ActionModule
from tests.unit.builders import POOLS, SESSION_ID, agent_data, plan, session_data, spec
from tests.unit.plugins.action.conftest import Run

ASKED: dict[str, Any] = {"cluster_size": 4, "cluster_mode": "multi-node", "env": {"TOKEN": "hunter2"}}


def arguments(**changes: Any) -> dict[str, Any]:
    asked = dataclasses.asdict(spec(**{**ASKED, **changes}))
    return {
        "spec": asked,
        "pools": dataclasses.asdict(POOLS),
        "agents": ["agent1", "agent2", "agent3"],
        "record_path": "",
    }


def answers(**said: dict[str, Any]) -> dict[str, Any]:
    """Return the variables of a run in which the agents answered like this; who is not named was not asked."""
    names = ("agent1", "agent2", "agent3")
    return {"hostvars": {name: {"__session_agent": said[name]} if name in said else {} for name in names}}


def fit(name: str, cpu: int = 8, **changes: Any) -> dict[str, Any]:
    return {"agent": agent_data(name, cpu, **changes), "unfit": None}


def test_a_plan_is_returned_with_what_the_agents_need(run: Run) -> None:
    result = run(ActionModule, arguments(), answers(agent1=fit("agent1", 2), agent2=fit("agent2", 2, images={})))
    assert result["agents"] == ["agent1", "agent2"]
    assert result["pull_on"] == ["agent2"]
    assert len(result["nonce"]) == 32
    assert (result["pending"], result["changed"]) == (None, False)
    assert result["plan"]["name"] == result["request"]["name"] == "train-llm"
    assert "hunter2" not in json.dumps(result)


def test_every_run_has_a_nonce_of_its_own(run: Run) -> None:
    there = answers(agent1=fit("agent1"))
    assert run(ActionModule, arguments(), there)["nonce"] != run(ActionModule, arguments(), there)["nonce"]


@pytest.mark.parametrize("check_mode", [True, False])
def test_check_mode_alone_calls_a_new_plan_a_change(run: Run, check_mode: bool) -> None:
    result = run(ActionModule, arguments(), answers(agent1=fit("agent1")), check_mode=check_mode)
    assert result["changed"] is check_mode
    assert result["diff"]["after"].startswith("session train-llm: single-node, 4 containers of lab/python:1\n")


def test_a_session_that_is_there_is_no_change_even_in_check_mode(run: Run) -> None:
    made = plan({"agent1": 4})
    there = fit("agent1", sessions=[session_data(made, "agent1", spec(**ASKED))])
    result = run(ActionModule, arguments(), answers(agent1=there), check_mode=True)
    assert (result["plan"]["id"], result["changed"], result["diff"]) == (SESSION_ID, False, {"before": "", "after": ""})


def test_no_room_is_pending_and_no_failure(run: Run) -> None:
    result = run(ActionModule, arguments(), answers(agent1=fit("agent1", 3)))
    assert (result["plan"], result["agents"]) == (None, [])
    assert result["pending"] == {
        "reason": "no room for 1 of 4 containers on one agent: short of cpu 1",
        "shortfall": {"cpu": 1},
    }


@pytest.mark.parametrize(
    ("said", "warning"),
    [
        ({"agent": None, "unfit": "start docker on this host."}, "agent2 is left out: start docker on this host."),
        (
            {"unreachable": True, "msg": "Failed to connect:\n  no route to host"},
            "agent2 is left out: Failed to connect: no route to host.",
        ),
        ({"failed": True}, "agent2 is left out: it gave no facts."),
    ],
    ids=["unfit", "unreachable", "silent"],
)
def test_an_agent_that_cannot_be_used_is_left_out_with_a_warning(run: Run, said: dict[str, Any], warning: str) -> None:
    result = run(ActionModule, arguments(), answers(agent1=fit("agent1"), agent2=said))
    assert result["warnings"] == [warning]
    assert result["agents"] == ["agent1"]


@pytest.mark.parametrize(
    ("changes", "said", "sentence"),
    [
        ({}, {}, "no agent can be used: the inventory has none."),
        ({}, {"agent1": {"agent": None, "unfit": "start docker."}}, "no agent can be used: agent1: start docker."),
        (
            {"resource_group": "gpu"},
            {"agent1": fit("agent1")},
            "session_resource_group: no agent belongs to 'gpu'; known are default.",
        ),
    ],
)
def test_what_can_never_be_met_fails_with_one_sentence_and_a_record(
    run: Run, tmp_path: Path, changes: dict[str, Any], said: dict[str, Any], sentence: str
) -> None:
    path = tmp_path / "record.json"
    with pytest.raises(AnsibleActionFail) as refused:
        run(ActionModule, {**arguments(**changes), "record_path": str(path)}, answers(**said))
    assert str(refused.value) == sentence
    record = json.loads(path.read_text())
    assert (record["name"], record["status"], record["error"]) == ("train-llm", "ERROR", sentence)


def test_check_mode_writes_no_record_of_a_failure(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    with pytest.raises(AnsibleActionFail):
        run(ActionModule, {**arguments(), "record_path": str(path)}, answers(), check_mode=True)
    assert not path.exists()
