"""The action session_plan: what agents say of a session adds nothing to its plan."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.action.session_plan import ActionModule
from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.module_utils._model.held_session import PublicKeys
from ansible_collections.backendai.cluster.plugins.module_utils._model.images import ImageIdentity
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.module_utils._model.session import Mount
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import QueueEntry
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.store import QueueStore
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.spec import fingerprint
from tests.unit.builders import (
    IMAGE,
    POOLS,
    SESSION_ID,
    agent_facts,
    held_session,
    holders,
    image_data,
    plan,
    requested,
    result,
    spec,
)
from tests.unit.plugins.action.conftest import Run

ASKED = spec(cluster_size=4, cluster_mode="multi-node", env={"TOKEN": "hunter2"})
MADE = plan()
AGENTS = ["agent1", "agent2", "agent3"]
GATEWAYS = {**dataclasses.asdict(POOLS), "gateways": ("198.51.100.7",)}
OTHER_ID = "00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"


def with_mount(of: SessionPlan) -> SessionPlan:
    return dataclasses.replace(of, mounts=(Mount("/", "/mnt/host", False),))


def with_kernel(of: SessionPlan) -> SessionPlan:
    more = dataclasses.replace(of.kernels[-1], agent="agent3", hostname="sub4", index=4, rank=4)
    underlays = {**of.underlays, "agent3": of.underlays[of.agents[-1]]}
    return dataclasses.replace(of, kernels=(*of.kernels, more), underlays=underlays)


def with_image(of: SessionPlan) -> SessionPlan:
    return dataclasses.replace(
        of, kernels=tuple(dataclasses.replace(kernel, image="evil/image:1") for kernel in of.kernels)
    )


EXTENSIONS = {"a mount of /": with_mount, "a kernel elsewhere": with_kernel, "another image": with_image}


def survey(**plans: SessionPlan | None) -> dict[str, Any]:
    """Return the variables of a run in which agents say that they hold a part of these plans."""
    hostvars = {}
    for name in AGENTS:
        told = plans.get(name)
        held = [dataclasses.replace(held_session(MADE, name, ASKED), plan=told)] if told else []
        hostvars[name] = {"__session_agent": result(agent_facts(name, sessions=held))}
    return {"hostvars": hostvars}


def answers(facts: dict[str, AgentFacts]) -> dict[str, Any]:
    return {"hostvars": {name: {"__session_agent": result(facts.get(name, agent_facts(name)))} for name in AGENTS}}


def record(queue: QueueStore, **changes: Any) -> QueueEntry:
    """Save the session as it was started here."""
    entry = requested(1, ASKED, **{"id": SESSION_ID, "state": "RUNNING", "plan": MADE, **changes})
    queue.save(entry)
    return entry


def planned(run: Run, variables: dict[str, Any], **args: Any) -> dict[str, Any]:
    request = {"spec": dataclasses.asdict(ASKED), "pools": dataclasses.asdict(POOLS), "agents": AGENTS}
    return run(ActionModule, {**request, **args}, variables)


def refusal(run: Run, variables: dict[str, Any], **args: Any) -> str:
    with pytest.raises(AnsibleActionFail) as refused:
        planned(run, variables, **args)
    return str(refused.value)


@pytest.mark.parametrize("extend", EXTENSIONS.values(), ids=EXTENSIONS)
@pytest.mark.parametrize("repair", ["", SESSION_ID])
@pytest.mark.parametrize("all_agents", [True, False])
def test_plan_of_a_repair_is_that_of_the_record(
    run: Run, queue: QueueStore, extend: Callable[[SessionPlan], SessionPlan], repair: str, all_agents: bool
) -> None:
    record(queue)
    told = survey(agent1=extend(MADE), agent2=extend(MADE) if all_agents else MADE, agent3=extend(MADE))
    start = planned(run, told, repair=repair)
    assert SessionPlan.from_dict(start["plan"]) == MADE
    assert (start["agents"], start["existing"], start["recorded"]) == (["agent1", "agent2"], True, True)
    assert sorted(start["public_keys"]) == ["main1", "sub1", "sub2", "sub3"]
    assert start["missing_images"] == {}


@pytest.mark.parametrize(
    ("extend", "sentence"),
    [
        (
            with_mount,
            (
                "its mounts[0] is {'source': '/', 'target': '/mnt/host', 'read_only': False, 'strict': False} on agent1"
                " and missing on "
            ),
        ),
        (with_kernel, "its kernels[4] is {"),
        (with_image, "its kernels[0].image is 'evil/image:1' on agent1 and 'lab/python:1' on agent2"),
    ],
    ids=EXTENSIONS,
)
def test_without_a_record_agents_have_to_agree(
    run: Run, queue: QueueStore, extend: Callable[[SessionPlan], SessionPlan], sentence: str
) -> None:
    error = refusal(run, survey(agent1=extend(MADE), agent2=MADE))
    assert error.startswith(
        "the session 'train-llm' is not repaired, because this control node did not start it and its agents disagree: "
    )
    assert sentence in error
    assert error.endswith("; end it, or repair it where it was started.")
    assert queue.entries() == []


@pytest.mark.parametrize(
    ("holding", "sentence"),
    [
        ({"agent1": with_kernel(MADE), "agent2": with_kernel(MADE)}, "agent1 says that agent3 has a part of it, and"),
        ({"agent1": MADE}, "agent1 says that agent2 has a part of it, and agent2 says that it has none"),
        ({"agent3": MADE}, "agent3 says that it has a part of it, of a plan for agent1, agent2"),
        ({"agent1": MADE, "agent2": MADE, "agent3": MADE}, "agent3 says that it has a part of it"),
    ],
    ids=["one more agent", "an agent lost its part", "an agent of none of it", "one agent too many"],
)
def test_without_a_record_no_agent_gets_anything_new(run: Run, holding: dict[str, SessionPlan], sentence: str) -> None:
    assert sentence in refusal(run, survey(**holding))


def test_without_a_record_what_all_agents_hold_is_repaired(run: Run, queue: QueueStore) -> None:
    start = planned(run, survey(agent1=MADE, agent2=MADE))
    assert (SessionPlan.from_dict(start["plan"]), start["recorded"], start["never_completed"]) == (MADE, False, False)
    assert queue.entries() == []


def test_part_that_an_agent_lost_is_planned_again(run: Run, queue: QueueStore) -> None:
    before = record(queue)
    start = planned(run, survey(agent1=MADE))
    assert (SessionPlan.from_dict(start["plan"]), start["public_keys"], start["never_completed"]) == (MADE, {}, False)
    (entry,) = queue.entries()
    assert (entry.state, entry.owner, entry.plan, entry.updated_at) == ("RUNNING", None, MADE, before.updated_at)


def test_request_of_the_record_counts_and_not_that_of_an_agent(run: Run, queue: QueueStore) -> None:
    entry = record(queue)
    facts = {
        name: agent_facts(name, sessions=[held_session(MADE, name, spec(image="evil/image:1"))]) for name in AGENTS
    }
    assert planned(run, answers(facts))["plan"]["id"] == SESSION_ID
    queue.save(dataclasses.replace(entry, spec=dataclasses.asdict(spec(image="other:1", name="train-llm"))))
    assert "is taken by a session (RUNNING) that differs in session_cluster_mode" in refusal(run, answers(facts))


def test_agent_has_no_say_about_the_keys_of_others(run: Run, queue: QueueStore) -> None:
    record(queue)
    stranger = {kernel.hostname: PublicKeys("ssh-ed25519 EVIL", "ssh-ed25519 EVIL") for kernel in MADE.kernels}
    facts = {name: agent_facts(name, sessions=[held_session(MADE, name, ASKED)]) for name in ("agent1", "agent2")}
    evil = held_session(MADE, "agent2", ASKED, public_keys=stranger)
    keys = planned(run, answers({**facts, "agent2": agent_facts("agent2", sessions=[evil])}))["public_keys"]
    own = {kernel.hostname for kernel in MADE.kernels_on("agent2")}
    assert {hostname for hostname in keys if "EVIL" in keys[hostname]["user"]} == own


@pytest.mark.parametrize("recorded", [True, False], ids=["with a record", "without a record"])
def test_request_of_a_repair_has_digests_under_the_key_of_the_queue(
    run: Run, queue: QueueStore, recorded: bool
) -> None:
    queue.make_digest_key()
    if recorded:
        record(queue)
    request = fingerprint(ASKED, SESSION_ID, queue.digest_key())
    start = planned(run, answers(holders(MADE, request=request)))
    assert (start["existing"], start["request"]) == (True, request)


def test_without_a_record_a_session_with_digests_of_another_queue_is_not_repaired(run: Run) -> None:
    told = answers(holders(MADE, request=fingerprint(ASKED, SESSION_ID, b"another")))
    assert "was created with another queue, whose digest.key is needed" in refusal(run, told)


def test_namesake_that_an_agent_made_up_does_not_stop_a_repair(run: Run, queue: QueueStore) -> None:
    record(queue)
    variables = survey(agent1=MADE, agent2=MADE)
    fake = held_session(dataclasses.replace(plan({"agent3": 1}), id=OTHER_ID), "agent3", ASKED)
    variables["hostvars"]["agent3"] = {"__session_agent": result(agent_facts("agent3", sessions=[fake]))}
    assert planned(run, variables)["plan"]["id"] == SESSION_ID


def test_images_of_the_record_are_returned(run: Run, queue: QueueStore) -> None:
    image = ImageIdentity(**image_data(1, "registry/python"))
    record(queue, images={IMAGE: image})
    assert planned(run, survey(agent1=MADE, agent2=MADE))["recorded_images"] == {IMAGE: dataclasses.asdict(image)}


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
    error = refusal(run, survey(agent1=MADE), attempt=6, attempts=5, refused=["agent2 no longer has room"])
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


def on(agent: str) -> dict[str, Any]:
    request = dataclasses.asdict(spec(designated_agents=[agent]))
    return {"spec": request, "pools": GATEWAYS}


TAKEN = (
    "agent_underlay_address: agent1 reports the address 192.0.2.2, which is also one of agent2; set the address of"
    " agent1 in the inventory."
)


@pytest.mark.parametrize("inventory", [{}, {"agent1": "192.0.2.1", "agent2": "192.0.2.2"}], ids=["none", "given"])
def test_no_session_is_planned_at_the_address_of_another_agent(run: Run, inventory: dict[str, str]) -> None:
    assert refusal(run, addresses(**inventory), **on("agent1")) == TAKEN


def test_address_of_the_inventory_counts(run: Run) -> None:
    start = planned(run, addresses(agent2="192.0.2.2"), **on("agent2"))
    assert {port["address"] for port in start["plan"]["published"]} == {"192.0.2.2"}


def test_address_of_an_agent_that_cannot_be_read_is_its_own(run: Run) -> None:
    variables = addresses(agent1="agent1.example.org", agent2="192.0.2.2")
    variables["hostvars"]["agent2"]["__session_agent"] = {"unreachable": True, "msg": "no route to host"}
    assert refusal(run, variables, **on("agent1")) == TAKEN


def test_existing_session_at_the_address_of_another_agent_gets_no_route(run: Run) -> None:
    request = spec(designated_agents=["agent1"])
    of = plan({"agent1": 1})
    start = planned(run, answers({}), **on("agent1"))
    published = SessionPlan.from_dict(start["plan"]).published
    foreign = dataclasses.replace(
        of, published=tuple(dataclasses.replace(port, address="192.0.2.2") for port in published)
    )
    facts = {"agent1": agent_facts("agent1", sessions=[held_session(foreign, "agent1", request)])}
    variables = answers(facts)
    again = planned(run, variables, spec=dataclasses.asdict(request), pools=GATEWAYS, started_at=time.time())
    assert again["route_problem"] == TAKEN.rstrip(".")
    assert f"gateways get no route to train-llm: {TAKEN}" in again["warnings"]
