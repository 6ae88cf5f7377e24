"""The action session_plan: what agents say of a session adds nothing to its plan."""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.module_utils._model.held_session import PublicKeys
from ansible_collections.backendai.cluster.plugins.module_utils._model.images import ImageIdentity
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.plugin_utils._lifecycle.termination import end_session
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import QueueEntry
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.store import QueueStore
from ansible_collections.backendai.cluster.plugins.plugin_utils.cluster_view import read_answers
from tests.unit.builders import (
    IMAGE,
    NOW,
    POOLS,
    SESSION_ID,
    agent_facts,
    held_session,
    image_data,
    plan,
    requested,
    result,
    spec,
)
from tests.unit.plugins.action.conftest import Run
from tests.unit.plugins.action.stages import Plan
from tests.unit.plugins.action.test_session_info import ActionModule as ListAction

ASKED = spec(cluster_size=4, cluster_mode="multi-node", env={"TOKEN": "hunter2"})
MADE = plan()
AGENTS = ["agent1", "agent2", "agent3"]
GATEWAYS = {**dataclasses.asdict(POOLS), "gateways": ("198.51.100.7",)}
OTHER_ID = "00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"


def survey(**holding: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the variables of a run in which agents say that they hold a part of the session, with changes."""
    hostvars = {}
    for name in AGENTS:
        told = holding.get(name)
        held = [held_session(MADE, name, **told)] if told is not None else []
        hostvars[name] = {"__session_agent": result(agent_facts(name, sessions=held))}
    return {"hostvars": hostvars}


LIE = {"name": "other", "plan_digest": "0" * 64, "created_at": 0.0}
"""What an agent may say of a session: it has another plan, under another name."""


def answers(facts: dict[str, AgentFacts]) -> dict[str, Any]:
    return {"hostvars": {name: {"__session_agent": result(facts.get(name, agent_facts(name)))} for name in AGENTS}}


def record(queue: QueueStore, **changes: Any) -> QueueEntry:
    """Save the session as it was started here."""
    entry = requested(1, ASKED, **{"id": SESSION_ID, "state": "RUNNING", "plan": MADE, **changes})
    queue.save(entry)
    return entry


def planned(run: Run, variables: dict[str, Any], **args: Any) -> dict[str, Any]:
    request = {"spec": dataclasses.asdict(ASKED), "pools": dataclasses.asdict(POOLS), "agents": AGENTS}
    return run(Plan, {**request, **args}, variables)


def refusal(run: Run, variables: dict[str, Any], **args: Any) -> str:
    with pytest.raises(AnsibleActionFail) as refused:
        planned(run, variables, **args)
    return str(refused.value)


@pytest.mark.parametrize("repair", ["", SESSION_ID])
@pytest.mark.parametrize("told", [survey(agent1=LIE, agent2=LIE, agent3=LIE), survey(agent1=LIE, agent2={})])
def test_plan_of_a_repair_is_that_of_the_record(run: Run, queue: QueueStore, told: dict[str, Any], repair: str) -> None:
    record(queue)
    start = planned(run, told, repair=repair)
    assert SessionPlan.from_dict(start["plan"]) == MADE
    assert (start["agents"], start["existing"]) == (["agent1", "agent2"], True)
    assert sorted(start["public_keys"]) == ["main1", "sub1", "sub2", "sub3"]
    assert start["missing_images"] == {}


def test_a_session_without_a_record_is_not_repaired_and_another_of_its_name_is_made_elsewhere(
    run: Run, queue: QueueStore
) -> None:
    start = planned(run, survey(agent1={}, agent2={}))
    assert (start["existing"], start["agents"], start["id"] == SESSION_ID) == (False, ["agent3"], False)
    assert [(entry.id, entry.state) for entry in queue.entries()] == [(start["id"], "CREATING")]


def test_where_every_agent_has_a_session_of_the_name_without_a_record_there_is_none(
    run: Run, queue: QueueStore
) -> None:
    assert refusal(run, survey(agent1={}, agent2={}, agent3={})) == (
        "session_name: 'train-llm' is also the name of a session on agent1, agent2, agent3 that this control node has"
        " no record of; choose another name."
    )
    assert queue.entries() == []


def test_a_control_node_with_a_copy_of_the_queue_takes_its_sessions_over(run: Run, queue: QueueStore) -> None:
    record(queue, user="alice")
    shutil.copytree(queue.path, "copy")
    shutil.rmtree(queue.path)
    told, elsewhere = survey(agent1={}, agent2={}), {"queue_path": "copy"}
    again = planned(run, told, **elsewhere)
    assert (again["existing"], SessionPlan.from_dict(again["plan"])) == (True, MADE)
    assert SessionPlan.from_dict(planned(run, told, repair=SESSION_ID, **elsewhere)["plan"]) == MADE
    run(ListAction, {"format": "none", "agents": AGENTS, "path": "list", **elsewhere}, told)
    (listed,) = json.loads(Path("list").read_text())
    assert (listed["id"], listed["user"], listed["recorded"]) == (SESSION_ID, "alice", True)
    entries = QueueStore("copy").entries()
    cluster = read_answers({name: told["hostvars"][name]["__session_agent"] for name in AGENTS}, entries)
    end = end_session(MADE.name, "", entries, cluster, force=False, now=NOW)
    assert (end.record["id"], end.agents) == (SESSION_ID, ("agent1", "agent2"))


def test_part_that_an_agent_lost_is_planned_again(run: Run, queue: QueueStore) -> None:
    before = record(queue)
    start = planned(run, survey(agent1={}))
    assert (SessionPlan.from_dict(start["plan"]), start["public_keys"], start["never_completed"]) == (MADE, {}, False)
    (entry,) = queue.entries()
    assert (entry.state, entry.owner, entry.plan, entry.updated_at) == ("RUNNING", None, MADE, before.updated_at)


def test_request_is_compared_with_that_of_the_record(run: Run, queue: QueueStore) -> None:
    entry = record(queue)
    assert planned(run, survey(agent1={}, agent2={}))["plan"]["id"] == SESSION_ID
    queue.save(dataclasses.replace(entry, spec=dataclasses.asdict(spec(image="other:1", name="train-llm"))))
    told = survey(agent1={}, agent2={})
    assert "is taken by a session (RUNNING) that differs in session_cluster_mode" in refusal(run, told)


def test_agent_has_no_say_about_the_keys_of_others(run: Run, queue: QueueStore) -> None:
    record(queue)
    stranger = {kernel.hostname: PublicKeys("ssh-ed25519 EVIL", "ssh-ed25519 EVIL") for kernel in MADE.kernels}
    facts = {name: agent_facts(name, sessions=[held_session(MADE, name)]) for name in ("agent1", "agent2")}
    evil = held_session(MADE, "agent2", public_keys=stranger)
    keys = planned(run, answers({**facts, "agent2": agent_facts("agent2", sessions=[evil])}))["public_keys"]
    own = {kernel.hostname for kernel in MADE.kernels_on("agent2")}
    assert {hostname for hostname in keys if "EVIL" in keys[hostname]["user"]} == own


def test_namesake_that_an_agent_made_up_does_not_stop_a_repair(run: Run, queue: QueueStore) -> None:
    record(queue)
    variables = survey(agent1={}, agent2={})
    fake = held_session(dataclasses.replace(plan({"agent3": 1}), id=OTHER_ID), "agent3")
    variables["hostvars"]["agent3"] = {"__session_agent": result(agent_facts("agent3", sessions=[fake]))}
    assert planned(run, variables)["plan"]["id"] == SESSION_ID


def test_images_of_the_record_are_returned(run: Run, queue: QueueStore) -> None:
    image = ImageIdentity(**image_data(1, "registry/python"))
    record(queue, images={IMAGE: image})
    assert planned(run, survey(agent1={}, agent2={}))["recorded_images"] == {IMAGE: dataclasses.asdict(image)}


def test_repair_of_a_session_that_no_agent_holds_is_refused(run: Run, queue: QueueStore) -> None:
    entry = record(queue)
    down = survey(agent1=None)
    down["hostvars"]["agent2"] = {"__session_agent": {"unreachable": True, "msg": "no route to host"}}
    assert refusal(run, down, repair=SESSION_ID) == (
        "the session 'train-llm' cannot be repaired: no agent holds a part of it, and not all agents can be used:"
        " agent2: no route to host."
    )
    assert [kept.id for kept in queue.entries()] == [entry.id]


def test_failed_repair_keeps_the_record(run: Run, queue: QueueStore) -> None:
    record(queue)
    error = refusal(run, survey(agent1={}), attempt=6, attempts=5, refused=["agent2 no longer has room"])
    assert error.startswith("the session 'train-llm' cannot be repaired: other runs claimed the resources first")
    (entry,) = queue.entries()
    assert (entry.state, entry.plan) == ("RUNNING", MADE)


# ---- the address of its route


def addresses(**inventory: str) -> dict[str, Any]:
    """Return a survey in which agent1 says that the address of agent2 is its own."""
    takes = agent_facts("agent1", underlay=agent_facts("agent2").underlay, addresses=("192.0.2.2",))
    variables = answers({"agent1": takes})
    for name, address in inventory.items():
        variables["hostvars"][name]["ansible_host"] = address
    return variables


def on(*agents: str, name: str = "train-llm") -> dict[str, Any]:
    request = dataclasses.asdict(spec(name=name, designated_agents=[*agents]))
    return {"spec": request, "pools": GATEWAYS}


TAKEN = (
    "agent_underlay_address: agent1 reports the address 192.0.2.2, which is also one of agent2; set the address of"
    " agent1 in the inventory."
)


@pytest.mark.parametrize("inventory", [{}, {"agent1": "192.0.2.1", "agent2": "192.0.2.2"}], ids=["none", "given"])
def test_no_session_is_planned_at_the_address_of_another_agent(run: Run, inventory: dict[str, str]) -> None:
    variables = addresses(**inventory)
    waiting = planned(run, variables, **on("agent1"))
    assert (waiting["plan"], waiting["pending"]["reason"]) == (None, f"no room; {TAKEN.rstrip('.')}")
    start = planned(run, variables, **on(*AGENTS, name="other"))
    # Without the inventory, nobody knows whose the address is.
    assert start["plan"]["kernels"][0]["agent"] == ("agent2" if inventory else "agent3")
    assert TAKEN in start["warnings"]


def test_address_of_the_inventory_counts(run: Run) -> None:
    start = planned(run, addresses(agent2="192.0.2.2"), **on("agent2"))
    assert {port["address"] for port in start["plan"]["published"]} == {"192.0.2.2"}


def test_address_of_an_agent_that_cannot_be_read_is_its_own(run: Run) -> None:
    variables = addresses(agent1="agent1.example.org", agent2="192.0.2.2")
    variables["hostvars"]["agent2"]["__session_agent"] = {"unreachable": True, "msg": "no route to host"}
    waiting = planned(run, variables, **on("agent1"))
    assert (waiting["plan"], waiting["pending"]["reason"]) == (None, f"no room; {TAKEN.rstrip('.')}")


def test_existing_session_at_the_address_of_another_agent_gets_no_route(run: Run, queue: QueueStore) -> None:
    request = spec(designated_agents=["agent1"])
    of = plan({"agent1": 1})
    start = planned(run, answers({}), **on("agent1"))
    published = SessionPlan.from_dict(start["plan"]).published
    foreign = dataclasses.replace(
        of, published=tuple(dataclasses.replace(port, address="192.0.2.2") for port in published)
    )
    for entry in queue.entries():
        queue.remove(entry.id)
    record(queue, plan=foreign, spec=dataclasses.asdict(request))
    facts = {"agent1": agent_facts("agent1", sessions=[held_session(foreign, "agent1")])}
    variables = answers(facts)
    again = planned(run, variables, spec=dataclasses.asdict(request), pools=GATEWAYS, started_at=time.time())
    assert again["route_problem"] == TAKEN.rstrip(".")
    assert f"gateways get no route to train-llm: {TAKEN}" in again["warnings"]
