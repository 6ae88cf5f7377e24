"""The session that has to go is found by its name or id, and that is noted before anything is touched."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.action.session_find import ActionModule
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.folder import QueueFolder
from tests.unit.builders import SESSION_ID, agent_facts, holders, plan, requested, result
from tests.unit.plugins.action.conftest import Run, keep

MADE = plan()
OTHER_ID = "00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
AGENTS = ["agent1", "agent2", "agent3"]


def answers(**said: dict[str, Any]) -> dict[str, Any]:
    """Return the variables of a run in which agents hold the session, unless they said this."""
    there = {**holders(MADE), "agent3": agent_facts("agent3")}
    return {"hostvars": {name: {"__session_agent": said.get(name, result(facts))} for name, facts in there.items()}}


AWAY = answers(agent2={"unreachable": True, "msg": "Failed to connect"})


@pytest.mark.parametrize(
    "wanted",
    [{"name": "train-llm"}, {"name": "train-llm", "id": ""}, {"id": SESSION_ID}, {"name": "", "id": SESSION_ID}],
    ids=["name", "name, empty id", "id", "id, empty name"],
)
def test_a_session_is_found_with_the_agents_that_hold_it_and_noted(
    run: Run, queue: QueueFolder, wanted: dict[str, str]
) -> None:
    result = run(ActionModule, {**wanted, "agents": AGENTS}, answers())
    assert (result["plan"]["id"], result["agents"], result["away"]) == (SESSION_ID, ["agent1", "agent2"], [])
    assert (result["changed"], result["record"]["status"]) == (False, "TERMINATED")
    (entry,) = queue.entries()
    assert (entry.id, entry.state, entry.agents) == (SESSION_ID, "ending", ("agent1", "agent2"))


@pytest.mark.parametrize("wanted", [{"name": "other"}, {"id": OTHER_ID}, {"name": "train", "id": ""}])
def test_a_session_that_nobody_holds_is_nothing_to_end(run: Run, queue: QueueFolder, wanted: dict[str, str]) -> None:
    result = run(ActionModule, {**wanted, "agents": AGENTS}, answers())
    assert (result["plan"], result["agents"], result["changed"]) == (None, [], False)
    assert queue.entries() == []


def test_an_id_that_belongs_to_another_name_ends_neither(run: Run, queue: QueueFolder) -> None:
    with pytest.raises(AnsibleActionFail) as refused:
        run(ActionModule, {"name": "other", "id": SESSION_ID, "agents": AGENTS}, answers())
    assert str(refused.value) == f"session_id: {SESSION_ID!r} is the id of 'train-llm', not of 'other'."
    assert queue.entries() == []


def test_a_session_is_not_ended_by_half(run: Run, queue: QueueFolder) -> None:
    with pytest.raises(AnsibleActionFail) as refused:
        run(ActionModule, {"name": "train-llm", "agents": AGENTS}, AWAY)
    assert str(refused.value) == (
        "the session 'train-llm' has containers on agents that cannot be used, so nothing was ended:"
        " agent2: Failed to connect; with session_force it ends without them, and they are cleared when they return."
    )
    assert queue.entries() == []


def test_with_force_it_is_ended_without_the_agents_that_are_away(run: Run, queue: QueueFolder) -> None:
    result = run(ActionModule, {"name": "train-llm", "force": True, "agents": AGENTS}, AWAY)
    assert (result["agents"], result["away"]) == (["agent1"], ["agent2"])
    assert result["warnings"] == ["agent2 is left out: Failed to connect."]
    assert [entry.agents for entry in queue.entries()] == [("agent1", "agent2")]


def test_an_agent_that_was_not_asked_may_hold_a_session_that_nobody_knows(run: Run, queue: QueueFolder) -> None:
    hidden = answers()
    hidden["hostvars"]["agent3"] = {}
    args = {"name": "ghost", "agents": AGENTS}
    with pytest.raises(AnsibleActionFail) as refused:
        run(ActionModule, args, hidden)
    assert str(refused.value) == (
        "no session 'ghost' was found, and not all agents can be asked: agent3: hidden by --limit;"
        " with session_force they are cleared of it when they return."
    )
    result = run(ActionModule, {**args, "force": True}, hidden)
    assert (result["away"], result["changed"]) == (["agent3"], True)
    assert [(entry.state, entry.agents) for entry in queue.entries()] == [("ending", ("agent3",))]


def test_to_cancel_a_session_that_waits_is_a_change(run: Run, queue: QueueFolder) -> None:
    queue.save(requested(1))
    result = run(ActionModule, {"name": "session-1", "agents": AGENTS}, answers())
    assert (result["changed"], result["record"]["status"]) == (True, "CANCELLED")
    assert [(entry.state, entry.spec) for entry in queue.entries()] == [("ended", None)]


@pytest.mark.parametrize("check_mode", [True, False])
def test_what_is_known_of_its_agents_is_dropped_but_not_in_check_mode(
    run: Run, queue: QueueFolder, check_mode: bool
) -> None:
    cache = keep(queue, *AGENTS)
    run(ActionModule, {"name": "train-llm", "agents": AGENTS}, answers(), check_mode=check_mode)
    kept = [name for name in AGENTS if cache.load(name, 60)]
    assert kept == (AGENTS if check_mode else ["agent3"])


@pytest.mark.parametrize(("name", "changed"), [("train-llm", False), ("session-1", True)])
def test_check_mode_notes_nothing(run: Run, queue: QueueFolder, name: str, changed: bool) -> None:
    queue.save(requested(1))
    before = queue.entries()
    result = run(ActionModule, {"name": name, "agents": AGENTS}, answers(), check_mode=True)
    assert (result["changed"], queue.entries()) == (changed, before)
