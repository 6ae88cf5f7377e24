"""Decisions on requests from the facts of all agents."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.devices import Device
from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts, Underlay
from ansible_collections.backendai.cluster.plugins.module_utils._model.mounts import MISSING
from ansible_collections.backendai.cluster.plugins.module_utils._model.session import PublishedPort
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.place import Unschedulable
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.cluster_state import ClusterState
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.decision import (
    Decision,
    decide,
    is_feasible,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.session_network import PlanningError
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.spec import SessionSpec, ValidationError
from tests.unit.builders import (
    GIB,
    IMAGE,
    NOW,
    POOLS,
    SESSION_ID,
    USER,
    agent_facts,
    bare_plan,
    bare_session,
    encrypted_underlay,
    held_session,
    holders,
    image_data,
    occupied,
    plan,
    readings,
    spec,
)

LATER_ID = "99999999-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
TWO_AND_TWO: dict[str, Any] = {"cluster_size": 4, "cluster_mode": "multi-node", "env": {"TOKEN": "hunter2"}}


def decided(session_spec: SessionSpec, cluster_state: ClusterState, session_id: str = LATER_ID) -> Decision:
    """Return the decision for a request that fits."""
    decision = decide(session_spec, cluster_state, POOLS, session_id, USER, NOW + 60)
    assert isinstance(decision, Decision)
    return decision


def refusal(
    session_spec: SessionSpec, cluster_state: ClusterState, kind: type[ValueError], session_id: str = LATER_ID
) -> str:
    """Return the error message of a refused request."""
    with pytest.raises(kind) as refused:
        decide(session_spec, cluster_state, POOLS, session_id, USER, NOW + 60)
    return str(refused.value)


def holding(*agents: str, committed: bool = True, expired: bool = False) -> dict[str, AgentFacts]:
    """Return the facts of agents that hold the session of two and two."""
    facts = holders(plan(), committed=committed, expired=expired)
    return {name: facts[name] for name in agents}


def test_a_new_session_gets_a_plan_with_the_given_id_and_time() -> None:
    decision = decided(spec(), readings("agent1"))
    assert (decision.plan.id, decision.plan.created_at) == (LATER_ID, NOW + 60)
    assert decision == Decision(decision.plan, False, {}, {}, {"agent1": {IMAGE: image_data()}})
    assert decision.plan.user == USER


def test_the_image_is_pulled_where_a_chosen_agent_lacks_it() -> None:
    without: dict[str, Any] = {"images": {"lab/python:1": None}}
    cluster_state = readings(
        agent1=agent_facts("agent1", 2, **without),
        agent2=agent_facts("agent2", 2),
        agent3=agent_facts("agent3", 1, **without),
    )
    assert decided(spec(**TWO_AND_TWO), cluster_state).missing_images == {"agent1": ["lab/python:1"]}


def test_each_agent_pulls_the_images_of_its_own_containers_that_it_lacks() -> None:
    roles = {"main": {}, "worker": {"replicas": 3, "image": "other:1"}, "ps": {"image": "third:1"}}
    cluster_state = readings(
        agent1=agent_facts("agent1", 3, images={"lab/python:1": image_data(), "third:1": None}),
        agent2=agent_facts("agent2", 2, images={"other:1": image_data(2)}),
    )
    decision = decided(spec(cluster_mode="multi-node", roles=roles), cluster_state)
    needed = {name: [kernel.image for kernel in decision.plan.kernels_on(name)] for name in decision.plan.agents}
    assert {name: sorted(images) for name, images in needed.items()} == {
        "agent1": ["lab/python:1", "other:1", "other:1"],
        "agent2": ["other:1", "third:1"],
    }
    assert decision.missing_images == {"agent1": ["other:1"], "agent2": ["third:1"]}
    assert decision.images == {"agent1": {"lab/python:1": image_data()}, "agent2": {"other:1": image_data(2)}}


def test_an_agent_that_is_left_out_takes_no_part() -> None:
    cluster_state = readings("agent2", left_out={"agent1": "Failed to connect"})
    assert decided(spec(), cluster_state).plan.agents == ["agent2"]


@pytest.mark.parametrize(
    ("unavailable", "sentence"),
    [
        ({}, "no agent can be used: the inventory has none"),
        ({"agent1": "engine down"}, "no agent can be used: agent1: engine down"),
        (
            {"agent2": "unreachable", "agent1": "engine down"},
            "no agent can be used: agent1: engine down; agent2: unreachable",
        ),
        (
            {"agent2": "unreachable", "agent1": "unreachable"},
            "no agent can be used: agent1, agent2: unreachable",
        ),
    ],
)
def test_no_agent_at_all_is_an_error_with_every_reason(unavailable: dict[str, str], sentence: str) -> None:
    assert refusal(spec(), readings(left_out=unavailable), PlanningError) == sentence


@pytest.mark.parametrize(
    ("options", "kind", "sentence"),
    [
        (
            {"designated_agents": ["agent9"]},
            ValidationError,
            "session_designated_agents: 'agent9' is not an agent of the inventory; known are agent1, agent2, agent3.",
        ),
        (
            {"designated_agents": ["agent1", "agent3"]},
            PlanningError,
            "session_designated_agents: 'agent3' cannot be used: unreachable",
        ),
        (
            {"designated_agents": ["agent2"]},
            ValidationError,
            "session_designated_agents: 'agent2' belongs to resource group 'gpu', not to 'default'.",
        ),
        (
            {"resource_group": "cpu"},
            ValidationError,
            "session_resource_group: no agent belongs to 'cpu'; known are default, gpu.",
        ),
        (
            {"resources": {"cuda.device": 1}},
            ValidationError,
            "session_resources.cuda.device: no agent of resource group 'default' offers it; offered are cpu, mem.",
        ),
        (
            {"roles": {"main": {}, "worker": {"resources": {"cuda.device": 1}}}},
            ValidationError,
            (
                "session_roles.worker.resources.cuda.device: no agent of resource group 'default' offers it;"
                " offered are cpu, mem."
            ),
        ),
        (
            {"architecture": "riscv64"},
            ValidationError,
            "session_architecture: no agent is 'riscv64'; known are amd64.",
        ),
        (
            {"resource_group": "gpu", "resources": {"rocm.device": 1}},
            ValidationError,
            (
                "session_resources.rocm.device: no agent of resource group 'gpu' offers it;"
                " offered are cpu, cuda.device, mem."
            ),
        ),
    ],
    ids=[
        "designated unknown",
        "designated left out",
        "designated elsewhere",
        "group unknown",
        "slot elsewhere",
        "slot of a role",
        "architecture nowhere",
        "slot nowhere",
    ],
)
def test_a_request_that_no_agent_can_ever_meet_is_refused(
    options: dict[str, Any], kind: type[ValueError], sentence: str
) -> None:
    accelerated = agent_facts("agent2", resource_group="gpu", capacity={"cpu": 8, "mem": 16 * GIB, "cuda.device": 2})
    cluster_state = readings("agent1", agent2=accelerated, left_out={"agent3": "unreachable"})
    assert refusal(spec(**options), cluster_state, kind) == sentence


def test_a_slot_that_no_designated_agent_offers_is_refused() -> None:
    accelerated = agent_facts("agent2", capacity={"cpu": 8, "mem": 16 * GIB, "cuda.device": 2})
    session_spec = spec(designated_agents=["agent1"], resources={"cuda.device": 1})
    assert refusal(session_spec, readings("agent1", agent2=accelerated), ValidationError) == (
        "session_resources.cuda.device: no designated agent offers it; offered are cpu, mem."
    )


def test_shared_memory_is_a_part_of_memory_and_needs_no_slot() -> None:
    assert decided(spec(resources={"shmem": "64m"}), readings("agent1")).plan.kernels[0].resources["shmem"] == 64 << 20


def test_designated_agents_alone_hold_the_session() -> None:
    assert decided(spec(designated_agents=["agent3"]), readings("agent1", "agent2", "agent3")).plan.agents == ["agent3"]


def test_an_agent_that_may_not_be_scheduled_holds_nothing_new() -> None:
    cluster_state = readings("agent2", agent1=agent_facts("agent1", 1, schedulable=False))
    assert decided(spec(), cluster_state).plan.agents == ["agent2"]


def test_a_session_waits_while_no_agent_may_be_scheduled() -> None:
    cluster_state = readings(agent1=agent_facts("agent1", schedulable=False))
    assert decide(spec(), cluster_state, POOLS, LATER_ID, USER, NOW) == Unschedulable(
        "no room for 1 of 1 containers: no agent that may hold them is schedulable", {}, {"main": 1}
    )


@pytest.mark.parametrize(
    ("changes", "options", "names_it"),
    [
        ({}, {}, True),
        ({}, {"designated_agents": ["agent1"]}, True),
        ({}, {"designated_agents": ["agent2"]}, False),
        ({"resource_group": "gpu"}, {}, False),
    ],
)
def test_the_reason_names_cordoned_agents_that_could_hold_the_session(
    changes: dict[str, Any], options: dict[str, Any], names_it: bool
) -> None:
    cordon = {"reason": "disk", "by": "carol", "since": NOW}
    agent1 = agent_facts("agent1", schedulable=False, cordon=cordon, **changes)
    cluster_state = readings(agent1=agent1, agent2=agent_facts("agent2", 1, schedulable=False))
    answer = decide(spec(**options), cluster_state, POOLS, LATER_ID, USER, NOW)
    assert isinstance(answer, Unschedulable)
    assert answer.reason.endswith("; agent1 is cordoned by carol (disk)") == names_it


def test_the_reason_names_what_is_wrong_with_agents_that_could_hold_the_session() -> None:
    obstacles = ["it receives no new sessions until the homes of ended sessions have been removed.", "it is sick."]
    agent1 = agent_facts("agent1", schedulable=False, obstacles=obstacles)
    answer = decide(spec(), readings(agent1=agent1), POOLS, LATER_ID, USER, NOW)
    assert isinstance(answer, Unschedulable)
    assert answer.reason == (
        "no room for 1 of 1 containers: no agent that may hold them is schedulable; agent1: it receives no new sessions"
        " until the homes of ended sessions have been removed"
    )


@pytest.mark.parametrize(
    ("labels", "agents"), [([], ["agent1"]), (["h100"], ["agent2"]), (["h100", "ssd"], ["agent3"])]
)
def test_a_session_runs_on_agents_with_all_of_its_labels(labels: list[str], agents: list[str]) -> None:
    cluster_state = readings(
        "agent1", agent2=agent_facts("agent2", labels=["h100"]), agent3=agent_facts("agent3", labels=["h100", "ssd"])
    )
    assert decided(spec(agent_labels=labels), cluster_state).plan.agents == agents


@pytest.mark.parametrize(
    ("labels", "there", "sentence"),
    [
        (["h200"], ["h100", "ssd"], "no agent has 'h200'; there are h100, ssd."),
        (["h200"], [], "no agent has 'h200'; agents have none (agent_labels)."),
    ],
)
def test_a_label_that_no_agent_has_is_said_at_once(labels: list[str], there: list[str], sentence: str) -> None:
    cluster_state = readings(agent1=agent_facts("agent1", labels=there))
    assert refusal(spec(agent_labels=labels), cluster_state, ValidationError) == f"session_agent_labels: {sentence}"


def test_labels_that_no_agent_has_together_are_said_at_once() -> None:
    cluster_state = readings(agent1=agent_facts("agent1", labels=["a"]), agent2=agent_facts("agent2", labels=["b"]))
    assert refusal(spec(agent_labels=["a", "b"]), cluster_state, ValidationError) == (
        "session_agent_labels: no agent has all of a, b; there are a, b."
    )


def gpu_agent(name: str, *models: str, used: int = 0, **changes: Any) -> AgentFacts:
    """Return an agent with a GPU of each of these models, of which the first ones are used."""
    memory = {"NVIDIA H100 80GB HBM3": 81559 << 20, "Tesla T4": 15109 << 20}
    devices = [
        Device("cuda.device", f"GPU-{name}-{at}", free=at >= used, model=model, memory=memory[model])
        for at, model in enumerate(models)
    ]
    capacity = {"cpu": 8, "mem": 16 * GIB, "cuda.device": len(models)}
    allocated = {"cuda.device": used} if used else {}
    return agent_facts(name, capacity=capacity, allocated=allocated, devices=devices, **changes)


H100, T4 = "NVIDIA H100 80GB HBM3", "Tesla T4"
ONE_GPU: dict[str, Any] = {"resources": {"cuda.device": 1}}


@pytest.mark.parametrize(
    ("gpu", "agent"),
    [
        ({}, "agent1"),
        ({"model": "h100"}, "agent2"),
        ({"model": "H100 80gb"}, "agent2"),
        ({"memory": "80g"}, "agent2"),
        ({"memory": "16g"}, "agent1"),
        ({"model": "T4", "memory": "16g"}, "agent1"),
    ],
)
def test_a_session_gets_gpus_of_the_model_and_memory_that_it_asks_for(gpu: dict[str, Any], agent: str) -> None:
    cluster_state = readings(agent1=gpu_agent("agent1", T4), agent2=gpu_agent("agent2", H100, H100))
    decision = decided(spec(gpu=gpu, **ONE_GPU), cluster_state)
    assert (decision.plan.agents, decision.plan.gpu) == ([agent], spec(gpu=gpu, **ONE_GPU).gpu)


@pytest.mark.parametrize(
    ("gpu", "wanted"),
    [
        ({"model": "H10"}, "H10"),
        ({"model": "H200"}, "H200"),
        ({"model": "T4", "memory": "80g"}, "T4 with 80g"),
        ({"memory": "141g"}, "with 141g"),
    ],
)
def test_a_gpu_that_no_agent_has_is_said_at_once_with_those_that_there_are(gpu: dict[str, Any], wanted: str) -> None:
    cluster_state = readings(agent1=gpu_agent("agent1", T4), agent2=gpu_agent("agent2", H100, used=1))
    assert refusal(spec(gpu=gpu, **ONE_GPU), cluster_state, ValidationError) == (
        f"session_gpu: no agent has cuda.device of {wanted}; there are NVIDIA H100 80GB HBM3, Tesla T4."
    )


def test_gpus_that_are_declared_have_no_model() -> None:
    devices = [Device("cuda.device", "/dev/gpu0")]
    agent = agent_facts("agent1", capacity={"cpu": 8, "mem": 16 * GIB, "cuda.device": 1}, devices=devices)
    assert refusal(spec(gpu={"model": "T4"}, **ONE_GPU), readings(agent1=agent), ValidationError) == (
        "session_gpu: no agent has cuda.device of T4; the models of those that there are are not known."
    )


def test_gpus_of_another_model_on_the_same_agent_are_not_counted() -> None:
    cluster_state = readings(agent1=gpu_agent("agent1", H100, T4, T4))
    wanted = spec(gpu={"model": "H100"}, **ONE_GPU)
    taken = cluster_state.with_plan(decided(wanted, cluster_state).plan)
    answer = decide(dataclasses.replace(wanted, name="second"), taken, POOLS, SESSION_ID, USER, NOW)
    assert isinstance(answer, Unschedulable)
    # Which GPUs the first session has got is not known, so it is not said that its end would help.
    assert answer.reason == "no room for 1 of 1 containers on one agent: short of cuda.device 1"
    other = decide(spec(name="third", gpu={"model": "T4"}, **ONE_GPU), taken, POOLS, SESSION_ID, USER, NOW)
    assert isinstance(other, Decision)
    assert is_feasible(dataclasses.replace(wanted, name="second"), taken, POOLS, SESSION_ID)
    assert not is_feasible(
        spec(name="second", cluster_size=2, gpu={"model": "H100"}, **ONE_GPU), taken, POOLS, SESSION_ID
    )


LEVELS = ("leaf", "rack")
WIDE: dict[str, Any] = {"cluster_size": 4, "cluster_mode": "multi-node", "resources": {"cpu": 4}}


def located(name: str, *topology: str, levels: tuple[str, ...] = LEVELS, cpu: int = 8) -> AgentFacts:
    return agent_facts(name, cpu, topology=topology, topology_levels=levels)


RACKS = readings(
    agent1=located("agent1", "leaf1", "rack1"),
    agent2=located("agent2", "leaf1", "rack2"),
    agent3=located("agent3", "leaf2", "rack1"),
    agent4=located("agent4", "leaf2", "rack1"),
)


@pytest.mark.parametrize(
    ("topology", "agents"),
    [
        ("", ["agent1", "agent2"]),
        ("pack", ["agent3", "agent4"]),
        ("spread", ["agent1", "agent2", "agent3"]),
        ("within leaf", ["agent1", "agent2"]),
        ("within 1", ["agent1", "agent2"]),
        ("within rack", ["agent3", "agent4"]),
        ("within 2", ["agent3", "agent4"]),
    ],
)
def test_a_session_is_where_its_topology_says(topology: str, agents: list[str]) -> None:
    decision = decided(spec(topology=topology, **WIDE), RACKS)
    assert decision.plan.agents == agents


@pytest.mark.parametrize("topology", ["pack", "spread", "within rack"])
def test_a_session_that_fits_on_one_agent_is_there(topology: str) -> None:
    assert decided(spec(topology=topology, **TWO_AND_TWO), RACKS).plan.agents == ["agent1"]


def test_a_session_waits_until_one_domain_has_room() -> None:
    wanted = {**WIDE, "cluster_size": 6}
    answer = decide(spec(topology="within leaf", **wanted), RACKS, POOLS, LATER_ID, USER, NOW)
    assert isinstance(answer, Unschedulable)
    assert answer.reason == (
        "no room for 2 of 6 containers on 2 agents: short of cpu 8; this is in leaf1, where most of them fit"
    )
    assert not is_feasible(spec(topology="within leaf", **wanted), RACKS, POOLS, SESSION_ID)
    assert len(decided(spec(topology="pack", **wanted), RACKS).plan.agents) == 3


@pytest.mark.parametrize(
    ("agents", "sentence"),
    [
        (
            [located("agent1", "leaf1", "rack1"), located("agent2", "rack2", levels=())],
            (
                "session_topology: all agents of resource group 'default' need agent_topology of the same levels:"
                " agent1 has leaf1, rack1 (agent_topology_levels: leaf, rack); agent2 has rack2."
            ),
        ),
        (
            [located("agent1", "leaf1", "rack1", levels=()), located("agent2", levels=())],
            (
                "session_topology: all agents of resource group 'default' need agent_topology of the same levels:"
                " agent1 has leaf1, rack1; agent2 has none."
            ),
        ),
    ],
    ids=["uneven depth", "some without"],
)
def test_a_topology_of_uneven_depth_is_said_at_once(agents: list[AgentFacts], sentence: str) -> None:
    cluster_state = readings(**{agent.name: agent for agent in agents})
    assert refusal(spec(topology="pack", **WIDE), cluster_state, PlanningError) == sentence
    assert isinstance(decide(spec(), cluster_state, POOLS, LATER_ID, USER, NOW), Decision)


@pytest.mark.parametrize(
    ("agent", "topology", "sentence"),
    [
        (located("agent1", levels=()), "spread", "no agent of resource group 'default' has agent_topology."),
        (
            located("agent1", "leaf1", "rack1"),
            "within pod",
            "'pod' is no level of resource group 'default'; there are leaf, rack.",
        ),
        (
            located("agent1", "leaf1", "rack1", levels=()),
            "within 3",
            "'3' is no level of resource group 'default'; agent_topology has 1 to 2, without names.",
        ),
    ],
)
def test_a_level_that_no_agent_has_is_said_at_once(agent: AgentFacts, topology: str, sentence: str) -> None:
    wanted = spec(topology=topology, **WIDE)
    assert refusal(wanted, readings(agent1=agent), ValidationError) == f"session_topology: {sentence}"


MOUNTS: dict[str, Any] = {"mounts": [{"source": "/mnt/a", "target": "/a"}, {"source": "/mnt/b", "target": "/b"}]}


@pytest.mark.parametrize(
    ("missing", "agents"),
    [
        ({}, ["agent1"]),
        ({"agent1": ["/mnt/a"]}, ["agent2"]),
        ({"agent1": ["/mnt/b"], "agent2": ["/mnt/a", "/mnt/b"]}, ["agent3"]),
        ({"agent1": ["/mnt/other"]}, ["agent1"]),
    ],
    ids=["everywhere", "on two", "on one", "another session's"],
)
def test_a_session_is_where_its_folders_are(missing: dict[str, list[str]], agents: list[str]) -> None:
    cores = {"agent1": 2, "agent2": 4, "agent3": 6}
    cluster_state = readings(
        **{
            name: agent_facts(name, cpu, unusable_paths=dict.fromkeys(missing.get(name, []), MISSING))
            for name, cpu in cores.items()
        }
    )
    assert decided(spec(**MOUNTS), cluster_state).plan.agents == agents


@pytest.mark.parametrize(
    ("missing", "sentence"),
    [
        ({"agent1": ["/mnt/a", "/mnt/b"]}, "/mnt/a, /mnt/b is not a folder on agent1"),
        ({"agent2": ["/mnt/a"], "agent1": ["/mnt/b", "/c"]}, "/mnt/b is not a folder on agent1 and 1 more"),
    ],
    ids=["one agent", "two agents"],
)
def test_mounts_that_exist_on_no_agent_are_refused(missing: dict[str, list[str]], sentence: str) -> None:
    cluster_state = readings(
        **{name: agent_facts(name, unusable_paths=dict.fromkeys(paths, MISSING)) for name, paths in missing.items()}
    )
    assert (
        refusal(spec(**MOUNTS), cluster_state, PlanningError)
        == f"session_mounts: {sentence}: the source must exist there"
    )
    assert not is_feasible(spec(**MOUNTS), cluster_state, POOLS, SESSION_ID)


ODD: dict[str, Any] = {"unusable_images": {IMAGE: f"session_image: the engine cannot read {IMAGE!r}: odd"}}


def test_agents_that_cannot_read_the_image_are_passed_over_and_others_take_what_wants_other_images() -> None:
    cluster_state = readings("agent2", agent1=agent_facts("agent1", **ODD))
    assert decided(spec(agent_selection="concentrated"), cluster_state).plan.agents == ["agent2"]
    odd_everywhere = readings(agent1=agent_facts("agent1", **ODD), agent2=agent_facts("agent2", **ODD))
    sentence = f"session_image: the engine cannot read {IMAGE!r}: odd (on agent1 and 1 more)"
    assert refusal(spec(), odd_everywhere, PlanningError) == sentence
    assert not is_feasible(spec(), odd_everywhere, POOLS, SESSION_ID)
    assert decided(spec(image="other:1"), odd_everywhere).plan.agents == ["agent1"]


def test_only_agents_with_infiniband_are_taken_where_it_is_asked_for() -> None:
    not_allowing = agent_facts("agent3", has_infiniband=True)
    cluster_state = readings(
        "agent1", agent2=agent_facts("agent2", 2, has_infiniband=True, infiniband=True), agent3=not_allowing
    )
    decision = decided(spec(infiniband=True), cluster_state)
    assert (decision.plan.agents, decision.plan.infiniband) == (["agent2"], True)


@pytest.mark.parametrize(
    ("changes", "equipped", "reason"),
    [
        ({}, [], "none of agent1, agent2, agent3 has InfiniBand (/dev/infiniband/uverbs*)."),
        ({"designated_agents": ["agent2"]}, [], "none of agent2 has InfiniBand (/dev/infiniband/uverbs*)."),
        (
            {},
            ["agent1", "agent3"],
            "true needs agent_allow_infiniband: true, and none of the agents with InfiniBand (agent1, agent3) has it.",
        ),
    ],
    ids=["no device", "none of the designated", "not allowed"],
)
def test_infiniband_that_no_agent_gives_is_refused(changes: dict[str, Any], equipped: list[str], reason: str) -> None:
    session_spec = spec(infiniband=True, **changes)
    names = ("agent1", "agent2", "agent3")
    cluster_state = readings(**{name: agent_facts(name, has_infiniband=name in equipped) for name in names})
    assert refusal(session_spec, cluster_state, ValidationError) == f"session_infiniband: {reason}"
    assert not is_feasible(session_spec, cluster_state, POOLS, SESSION_ID)


@pytest.mark.parametrize("state", [{}, {"committed": False}], ids=["running", "being created"])
def test_a_session_of_the_record_that_agents_hold_has_its_plan(state: dict[str, bool]) -> None:
    cluster_state = readings("agent3", recorded=[plan()], **holding("agent1", "agent2", **state))
    decision = decided(spec(**TWO_AND_TWO), cluster_state, SESSION_ID)
    assert (decision.plan, decision.existing, decision.missing_images) == (plan(), True, {})
    # A session that every agent has committed needs no claim: its keys are known.
    assert list(decision.public_keys) == ([] if state else ["main1", "sub1", "sub2", "sub3"])


def test_a_session_of_which_no_keys_were_asked_is_claimed_again() -> None:
    facts = holders(plan(), public_keys={})
    decision = decided(spec(**TWO_AND_TWO), readings(recorded=[plan()], **facts), SESSION_ID)
    assert (decision.existing, decision.committed, decision.public_keys) == (True, True, {})


def test_a_name_is_free_if_its_claim_expired_on_all_agents() -> None:
    facts = holding("agent1", "agent2", committed=False, expired=True)
    for recorded in ([plan()], []):
        decision = decided(spec(**TWO_AND_TWO), readings(recorded=recorded, **facts))
        assert (decision.plan.id, decision.existing) == (LATER_ID, False)


def test_a_claim_that_expired_on_one_agent_only_is_resumed() -> None:
    agents = {**holding("agent1"), **holding("agent2", committed=False, expired=True)}
    decision = decided(spec(**TWO_AND_TWO), readings(recorded=[plan()], **agents), SESSION_ID)
    assert (decision.plan, decision.existing, decision.public_keys) == (plan(), True, {})


def test_a_session_that_one_agent_has_not_committed_is_claimed_again() -> None:
    agents = {**holding("agent1"), **holding("agent2", committed=False)}
    assert decided(spec(**TWO_AND_TWO), readings(recorded=[plan()], **agents), SESSION_ID).public_keys == {}


def test_what_an_agent_lost_is_planned_again_from_the_record() -> None:
    cluster_state = readings("agent2", recorded=[plan()], **holding("agent1", committed=False))
    assert decided(spec(**TWO_AND_TWO), cluster_state, SESSION_ID).plan == plan()


def test_an_image_that_went_missing_under_a_session_is_pulled_again() -> None:
    agents = holding("agent1", "agent2")
    agents["agent2"] = dataclasses.replace(agents["agent2"], images={})
    decision = decided(spec(**TWO_AND_TWO), readings(recorded=[plan()], **agents), SESSION_ID)
    assert decision.missing_images == {"agent2": ["lab/python:1"]}


@pytest.mark.parametrize(
    ("unavailable", "reason"),
    [({"agent2": "unreachable"}, "agent2: unreachable"), ({}, "agent2: not in the inventory, or hidden by --limit")],
)
def test_a_session_with_an_unavailable_agent_is_not_repaired(unavailable: dict[str, str], reason: str) -> None:
    cluster_state = readings(left_out=unavailable, recorded=[plan()], **holding("agent1"))
    assert refusal(spec(**TWO_AND_TWO), cluster_state, PlanningError, SESSION_ID) == (
        f"the session 'train-llm' has containers on agents that cannot be used: {reason}"
    )


def test_another_name_is_another_session() -> None:
    cluster_state = readings(recorded=[plan()], **holding("agent1", "agent2"))
    decision = decided(spec(**TWO_AND_TWO, name="other"), cluster_state)
    assert decision.plan.id == LATER_ID


def test_a_name_belongs_to_the_session_of_the_record_that_lives() -> None:
    cluster_state = readings("agent3", recorded=[plan()], **holding("agent1", "agent2"))
    assert refusal(spec(), cluster_state, ValidationError) == (
        "session_name: 'train-llm' is the name of another session that lives; end that one, or choose another name."
    )
    assert not is_feasible(spec(), cluster_state, POOLS, LATER_ID)


def test_an_agent_that_says_it_has_a_session_of_that_name_is_passed_over_and_blocks_nobody() -> None:
    held = holding("agent1", "agent2")
    assert decided(spec(agent_selection="concentrated"), readings("agent3", **held)).plan.agents == ["agent3"]
    assert refusal(spec(), readings(**held), PlanningError) == (
        "session_name: 'train-llm' is also the name of a session on agent1, agent2 that this control node has no"
        " record of; choose another name"
    )
    assert decided(spec(name="other"), readings(**held)).existing is False
    # Nothing says when they end, and they need not: to wait for them would be to wait for ever.
    assert not is_feasible(spec(), readings(**held), POOLS, LATER_ID)
    assert is_feasible(spec(), readings("agent3", **held), POOLS, LATER_ID)
    assert is_feasible(spec(name="other"), readings(**held), POOLS, LATER_ID)


def test_what_an_agent_says_of_a_session_of_the_record_changes_no_plan() -> None:
    facts = holding("agent1", "agent2")
    lie = dataclasses.replace(facts["agent1"].sessions[0], name="other", plan_digest="0" * 64)
    facts["agent1"] = dataclasses.replace(facts["agent1"], sessions=(lie,))
    stranger = agent_facts("agent3", sessions=[held_session(plan(), "agent1")])
    cluster_state = readings(recorded=[plan()], agent3=stranger, **facts)
    decision = decided(spec(**TWO_AND_TWO), cluster_state, SESSION_ID)
    assert (decision.plan, list(cluster_state.sessions[SESSION_ID].parts)) == (plan(), ["agent1", "agent2"])


# ---- preferred agents, and architectures


PREFERRED: dict[str, Any] = {"designated_agents_mode": "preferred"}


@pytest.mark.parametrize(
    ("designated", "size", "agents"),
    [
        (["agent2"], 2, {"agent2"}),
        (["agent2"], 4, {"agent3"}),
        (["agent1", "agent2"], 4, {"agent1", "agent2"}),
        (["agent1", "agent2"], 8, {"agent1", "agent2", "agent3"}),
        (["agent9"], 2, {"agent1"}),
        (["agent8", "agent2"], 2, {"agent2"}),
        (["agent4"], 2, {"agent1"}),
    ],
    ids=[
        "room there",
        "no room there",
        "several, rather than one other",
        "together with the others",
        "unknown",
        "one away",
        "another group",
    ],
)
def test_preferred_agents_hold_the_session_where_they_can(designated: list[str], size: int, agents: set[str]) -> None:
    cluster_state = readings(
        agent1=agent_facts("agent1", 2),
        agent2=agent_facts("agent2", 2),
        agent3=agent_facts("agent3", 4),
        agent4=agent_facts("agent4", resource_group="gpu"),
        left_out={"agent8": "unreachable"},
    )
    session_spec = spec(cluster_size=size, cluster_mode="multi-node", designated_agents=designated, **PREFERRED)
    assert set(decided(session_spec, cluster_state).plan.agents) == agents


def test_strictly_designated_agents_are_waited_for() -> None:
    cluster_state = readings("agent3", agent1=agent_facts("agent1", 2))
    answer = decide(spec(cluster_size=4, designated_agents=["agent1"]), cluster_state, POOLS, LATER_ID, USER, NOW)
    assert isinstance(answer, Unschedulable)
    assert answer.reason == "no room for 2 of 4 containers on one agent: short of cpu 2"


def test_a_missing_slot_is_not_blamed_on_preferred_agents() -> None:
    session_spec = spec(designated_agents=["agent1"], resources={"cuda.device": 1}, **PREFERRED)
    assert refusal(session_spec, readings("agent1", "agent2"), ValidationError) == (
        "session_resources.cuda.device: no agent of resource group 'default' offers it; offered are cpu, mem."
    )


def mixed(**images: dict[str, str | None]) -> ClusterState:
    """Return the state of two agents of each of two architectures, two cores each, with these images."""
    kinds = {"agent1": "amd64", "agent2": "arm64", "agent3": "amd64", "agent4": "arm64"}
    return readings(
        **{
            name: agent_facts(name, 2, architecture=kind, images=images.get(name, {IMAGE: None}))
            for name, kind in kinds.items()
        }
    )


@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_session_is_on_one_architecture(size: int) -> None:
    plan_of_one = decided(spec(cluster_size=size, cluster_mode="multi-node"), mixed()).plan
    assert set(plan_of_one.agents) <= {"agent1", "agent3"}


def test_a_session_that_needs_both_architectures_waits() -> None:
    answer = decide(spec(cluster_size=5, cluster_mode="multi-node"), mixed(), POOLS, LATER_ID, USER, NOW)
    assert isinstance(answer, Unschedulable)
    assert answer.reason == "no room for 1 of 5 containers on 2 agents: short of cpu 1"


@pytest.mark.parametrize(
    ("options", "images", "agents"),
    [
        ({"architecture": "arm64"}, {}, {"agent2", "agent4"}),
        ({}, {"agent4": {IMAGE: image_data()}}, {"agent2", "agent4"}),
        ({"architecture": "amd64"}, {"agent4": {IMAGE: image_data()}}, {"agent1", "agent3"}),
        ({"designated_agents": ["agent2", "agent4"], **PREFERRED}, {}, {"agent2", "agent4"}),
        ({"designated_agents": ["agent1", "agent2"], **PREFERRED}, {}, {"agent1", "agent3"}),
    ],
    ids=["asked", "that of the image", "asked against the image", "that of the preferred", "preferred are too small"],
)
def test_the_architecture_is_the_one_that_is_asked_or_that_has_the_image(
    options: dict[str, Any], images: dict[str, Any], agents: set[str]
) -> None:
    session_spec = spec(cluster_size=4, cluster_mode="multi-node", **options)
    assert set(decided(session_spec, mixed(**images)).plan.agents) == agents


def test_where_one_architecture_has_no_room_the_other_is_tried() -> None:
    cluster_state = mixed()
    full = {name: dataclasses.replace(cluster_state.facts[name], allocated={"cpu": 2}) for name in ("agent1", "agent3")}
    freer = dataclasses.replace(cluster_state, facts={**cluster_state.facts, **full})
    assert set(decided(spec(cluster_size=4, cluster_mode="multi-node"), freer).plan.agents) == {"agent2", "agent4"}


def test_a_refusal_is_of_the_architecture_with_the_most_room() -> None:
    cluster_state = mixed()
    taken = {"agent1": {"cpu": 1}, "agent2": {"cpu": 2}, "agent4": {"cpu": 1}}
    full = {name: dataclasses.replace(cluster_state.facts[name], allocated=slots) for name, slots in taken.items()}
    freer = dataclasses.replace(cluster_state, facts={**cluster_state.facts, **full})
    answer = decide(spec(cluster_size=4, cluster_mode="multi-node"), freer, POOLS, LATER_ID, USER, NOW)
    assert isinstance(answer, Unschedulable)
    assert answer.reason == "no room for 1 of 4 containers on 2 agents: short of cpu 1"


def test_what_is_proven_of_one_architecture_is_not_claimed_of_another() -> None:
    # Of arm64, sums only say that one of the four has no place: three have.
    mem = {"main": "9g", "b": "10g", "c": "1g", "d": "2g"}
    roles = {name: {"replicas": 1, "resources": {"cpu": 8, "mem": each}} for name, each in mem.items()}
    cluster_state = readings(
        agent1=agent_facts("agent1", 8, 4 * GIB),
        agent2=agent_facts("agent2", 8, 4 * GIB),
        agent3=agent_facts("agent3", 15, 64 * GIB, online_cpus=list(range(8)), architecture="arm64"),
    )
    answer = decide(spec(cluster_mode="multi-node", roles=roles), cluster_state, POOLS, LATER_ID, USER, NOW)
    assert isinstance(answer, Unschedulable)
    assert answer.reason == (
        "no room for at least 1 of 4 containers, found for all but 2 (main1, b1) on 2 agents: short of cpu 16, mem 19g"
    )


def test_of_equal_refusals_one_is_given_that_the_end_of_sessions_changes() -> None:
    cluster_state = mixed()
    holder = bare_plan("holder", NOW, {"agent1": [{"cpu": 2}]})
    full = {
        "agent1": dataclasses.replace(
            cluster_state.facts["agent1"], allocated={"cpu": 2}, sessions=(bare_session(holder),)
        ),
        "agent4": dataclasses.replace(cluster_state.facts["agent4"], allocated={"cpu": 2}),
    }
    answer = decide(
        spec(cluster_size=4, cluster_mode="multi-node"),
        dataclasses.replace(cluster_state, facts={**cluster_state.facts, **full}, records={holder.id: holder}),
        POOLS,
        LATER_ID,
        USER,
        NOW,
    )
    assert isinstance(answer, Unschedulable)
    assert answer.blocking_sessions == ("holder",)


# ---- hypothetical states


def test_with_plan_reduces_capacity_and_adds_the_network() -> None:
    session_plan = plan()
    assert session_plan.network is not None
    assert session_plan.network.subnet is not None
    assert session_plan.network.vni is not None
    before = readings("agent1", "agent2", "agent3")
    after = before.with_plan(session_plan).facts
    assert after["agent3"] is before.facts["agent3"]
    for name in ("agent1", "agent2"):
        assert after[name] == dataclasses.replace(
            before.facts[name],
            allocated={"cpu": 2, "mem": 2 * GIB},
            containers=2,
            networks=(session_plan.network.subnet,),
            vnis=(session_plan.network.vni,),
            sessions=(bare_session(session_plan, plan_digest="", committed=False),),
        )
        assert after[name].free == {"cpu": 6, "mem": 14 * GIB}
    assert before == readings("agent1", "agent2", "agent3")


@pytest.mark.parametrize(("counts", "networks"), [({"agent1": 1}, 0), ({"agent1": 2}, 1)])
def test_a_plan_on_one_agent_takes_no_network_identifier(counts: dict[str, int], networks: int) -> None:
    after = readings("agent1").with_plan(plan(counts)).facts["agent1"]
    assert (len(after.networks), after.vnis) == (networks, ())


def test_what_is_planned_on_agents_that_hold_another_plan_avoids_it() -> None:
    first = decided(spec(**TWO_AND_TWO), readings(agent1=agent_facts("agent1", 4), agent2=agent_facts("agent2", 4)))
    cluster_state = readings(agent1=agent_facts("agent1", 4), agent2=agent_facts("agent2", 4)).with_plan(first.plan)
    second = decide(spec(**{**TWO_AND_TWO, "name": "other"}), cluster_state, POOLS, SESSION_ID, USER, NOW)
    assert isinstance(second, Decision)
    assert (first.plan.agents, second.plan.agents) == (["agent1"], ["agent2"])


def test_ended_sessions_are_dropped_but_keep_their_capacity() -> None:
    agents = holding("agent1", "agent2")
    agents["agent1"] = dataclasses.replace(agents["agent1"], allocated={"cpu": 2})
    cluster_state = readings(recorded=[plan()], **agents)
    without = cluster_state.without_sessions([SESSION_ID])
    assert [facts.sessions for facts in without.facts.values()] == [(), ()]
    assert (list(cluster_state.sessions), list(without.sessions)) == ([SESSION_ID], [])
    assert without.facts["agent1"].allocated == {"cpu": 2}
    assert cluster_state.without_sessions([]) == cluster_state == cluster_state.without_sessions([LATER_ID])
    assert decided(spec(**TWO_AND_TWO), without).plan.id == LATER_ID


@pytest.mark.parametrize(
    ("state", "in_flight"),
    [
        ({}, False),
        ({"committed": False}, True),
        ({"committed": False, "expired": True}, False),
    ],
    ids=["running", "being created", "given up"],
)
def test_a_run_is_at_work_where_a_claim_is_in_time(state: dict[str, bool], in_flight: bool) -> None:
    assert readings("agent3", **holding("agent1", "agent2", **state)).in_flight is in_flight


def test_an_agent_was_read_if_it_has_facts_or_an_error() -> None:
    cluster_state = readings("agent1", left_out={"agent2": "unreachable"})
    assert [cluster_state.was_read(name) for name in ("agent1", "agent2", "agent3")] == [True, True, False]


# ---- feasibility in an empty cluster


def test_what_agents_hold_already_can_start() -> None:
    agents = holding("agent1", "agent2")
    wide = {name: dataclasses.replace(facts, online_cpus=(0,)) for name, facts in agents.items()}
    session_spec = spec(**TWO_AND_TWO, resources={"cpu": 2})
    session_plan = plan(resources={"cpu": 2})
    agents = {name: dataclasses.replace(wide[name], sessions=(held_session(session_plan, name),)) for name in wide}
    assert is_feasible(session_spec, readings(recorded=[session_plan], **agents), POOLS, SESSION_ID)
    assert not is_feasible(session_spec, readings(**wide), POOLS, SESSION_ID)


@pytest.mark.parametrize(
    ("options", "fits"),
    [
        ({"cluster_size": 8}, True),
        ({"cluster_size": 9}, False),
        ({"cluster_size": 16, "cluster_mode": "multi-node"}, True),
        ({"cluster_size": 17, "cluster_mode": "multi-node"}, False),
        ({"resource_group": "gpu"}, False),
        ({"designated_agents": ["agent9"]}, False),
        ({"designated_agents": ["agent3"]}, False),
        ({"resources": {"cuda.device": 1}}, False),
        ({"designated_agents": ["agent4"]}, False),
    ],
    ids=["one", "too many", "both", "too many for both", "group", "unknown", "left out", "slot", "not schedulable"],
)
def test_a_request_fits_when_all_other_sessions_have_ended(options: dict[str, Any], fits: bool) -> None:
    full: dict[str, Any] = {"allocated": {"cpu": 8, "mem": 16 * GIB}, "containers": 8, "max_containers": 8}
    cluster_state = dataclasses.replace(
        occupied(
            agent1=agent_facts("agent1", **full),
            agent2=agent_facts("agent2", **full),
            agent4=agent_facts("agent4", schedulable=False),
        ),
        unavailable={"agent3": "unreachable"},
    )
    assert is_feasible(spec(**options), cluster_state, POOLS, SESSION_ID) is fits
    assert cluster_state.facts["agent1"].allocated == {"cpu": 8, "mem": 16 * GIB}


OVER_TWO: dict[str, Any] = {"cluster_size": 2, "cluster_mode": "multi-node", "resources": {"cpu": 8}}
NO_UNDERLAY: dict[str, Any] = {"underlay": None}
SMALL_MTU: dict[str, Any] = {"underlay": Underlay("192.0.2.2", "eth0", 1000)}
ENCRYPTED: dict[str, Any] = {"underlay": encrypted_underlay(2)}
BY_GATEWAY = dataclasses.replace(POOLS, gateways=["198.51.100.1"])


def pair(**changes: Any) -> ClusterState:
    """Return two agents that are full, the second one with these changes."""
    taken = {"cpu": 8, "mem": GIB}
    other = agent_facts("agent2", **{"allocated": taken, **changes})
    return occupied(agent1=agent_facts("agent1", allocated=taken), agent2=other)


@pytest.mark.parametrize(
    ("changes", "feasible"),
    [
        ({}, True),
        (NO_UNDERLAY, False),
        (SMALL_MTU, False),
        (ENCRYPTED, False),
        ({"udp_ports": {4789: "flanneld"}}, False),
        ({"networks": (POOLS.network,)}, False),
    ],
    ids=["full", "no underlay", "small MTU", "encryption on one", "VXLAN port in use", "no subnet of others left"],
)
def test_what_the_network_of_agents_rules_out_can_never_start(changes: dict[str, Any], feasible: bool) -> None:
    cluster_state = pair(**changes)
    asked = spec(**OVER_TWO)
    assert is_feasible(asked, cluster_state, POOLS, SESSION_ID) is feasible
    # There is no room now, so that nothing else tells it.
    assert isinstance(decide(asked, cluster_state, POOLS, SESSION_ID, USER, NOW), Unschedulable)


@pytest.mark.parametrize(("pool", "feasible"), [("10.128.0.0/29", False), ("10.128.0.0/28", True)])
def test_what_a_pool_could_never_hold_can_never_start(pool: str, feasible: bool) -> None:
    # Its network and its port are those of a session, but for the port that an ended one keeps for a while.
    holder = plan({"agent1": 4}, name="holder")
    assert holder.network
    port = PublishedPort("ssh", "tcp", 22, "192.0.2.1", 30000)
    subnet = dataclasses.replace(holder.network, subnet="10.128.0.0/28")
    holder = dataclasses.replace(holder, network=subnet, published=(port,))
    taken: dict[str, Any] = {
        "networks": ("10.128.0.1/28", "192.0.2.0/24"),
        "tcp_ports": (30000, 30001),
        "reserved_ports": {SESSION_ID: (30001,)},
        "sessions": [held_session(holder, "agent1")],
    }
    cluster_state = readings(recorded=[holder], agent1=agent_facts("agent1", **taken))
    pools = dataclasses.replace(BY_GATEWAY, network=pool, first_published_port=30000, last_published_port=30001)
    asked = spec(cluster_size=8, name="other", apps=["jupyter"])
    assert is_feasible(asked, cluster_state, pools, LATER_ID) is feasible


def test_what_other_software_has_is_not_free_when_all_sessions_have_ended() -> None:
    holder = bare_plan("holder", NOW, {"agent1": [{"cpu": 2}, {"cpu": 1}]})
    stranger = bare_session(bare_plan("stranger", NOW, {"agent1": [{"cpu": 2}]}))
    expired = bare_plan("expired", NOW, {"agent1": [{"cpu": 5}]})
    sessions = [bare_session(holder), bare_session(expired, expired=True), stranger]
    facts = agent_facts("agent1", allocated={"cpu": 5}, containers=4, max_containers=8, sessions=sessions)
    state = readings(recorded=[holder, expired], agent1=facts)
    left = state.emptied.facts["agent1"]
    assert (left.allocated, left.containers, left.sessions) == ({"cpu": 2}, 2, (stranger,))
    for size, feasible in ((6, True), (7, False)):
        assert is_feasible(spec(cluster_size=size), state, POOLS, LATER_ID) is feasible


def test_of_gpus_that_sessions_have_beside_other_software_as_many_are_free_as_they_have() -> None:
    holder = bare_plan("holder", NOW, {"agent1": [{"cuda.device": 1}]})
    models = ("NVIDIA T4", "NVIDIA T4", "NVIDIA T4", "NVIDIA H100")
    devices = [Device("cuda.device", f"GPU-{at}", free=False, model=model) for at, model in enumerate(models)]
    facts = agent_facts(
        "agent1",
        capacity={"cpu": 8, "mem": 16 * GIB, "cuda.device": 4},
        allocated={"cuda.device": 4},
        devices=devices,
        sessions=[bare_session(holder)],
    )
    state = readings(recorded=[holder], agent1=facts)
    for gpus, feasible in ((1, True), (2, False)):
        asked = spec(gpu={"model": "T4"}, resources={"cpu": 1, "cuda.device": gpus})
        assert is_feasible(asked, state, POOLS, LATER_ID) is feasible


@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.parametrize("recorded", [False, True], ids=["ended", "recorded"])
def test_what_an_agent_holds_of_a_session_that_no_plan_tells_is_free_some_time(damaged: bool, recorded: bool) -> None:
    session = bare_plan("ends", NOW, {"agent1": [{"cpu": 8}]})
    held: dict[str, Any] = {"damaged_sessions": [session.id]} if damaged else {"sessions": [bare_session(session)]}
    state = readings(agent1=agent_facts("agent1", allocated={"cpu": 8}, containers=1, max_containers=1, **held))
    assert not is_feasible(spec(), state, POOLS, LATER_ID)
    known = dataclasses.replace(state, records={session.id: session}) if recorded else state.with_ended([session.id])
    assert is_feasible(spec(), known.without_sessions([] if recorded else [session.id]), POOLS, LATER_ID)
    assert state.with_ended([LATER_ID]) == state


def test_an_agent_that_reports_the_addresses_of_many_keeps_no_session_from_others() -> None:
    # Of those, the inventory knows no address. They are tried first, as they have the least free cores.
    named = {f"agent{number}": agent_facts(f"agent{number}", cpu=4) for number in range(2, 10)}
    named |= {f"agent{letter}": agent_facts(f"agent{letter}", cpu=4) for letter in "abcde"}
    liar = agent_facts("agent1", cpu=1, addresses=[address for facts in named.values() for address in facts.addresses])
    state = dataclasses.replace(readings("agentz", agent1=liar, **named), addresses={"agentz": [], "agent1": []})
    decision = decide(spec(resources={"cpu": 2}), state, BY_GATEWAY, SESSION_ID, USER, NOW)
    assert isinstance(decision, Decision)
    assert decision.plan.agents == ["agentz"]
    known = dataclasses.replace(state, addresses={name: facts.addresses for name, facts in named.items()})
    decision = decide(spec(resources={"cpu": 2}), known, BY_GATEWAY, SESSION_ID, USER, NOW)
    assert isinstance(decision, Decision)
    assert decision.plan.agents[0] in named


def test_it_depends_on_the_inventory_whether_a_session_at_a_foreign_address_can_start() -> None:
    cluster_state = readings("agent1")
    underlay = cluster_state.facts["agent1"].underlay
    address = underlay.host if underlay else ""
    foreign = dataclasses.replace(cluster_state, addresses={"agent1": ["203.0.113.1"], "agent2": [address]})
    assert not is_feasible(spec(), foreign, BY_GATEWAY, SESSION_ID)
    assert is_feasible(spec(), foreign, POOLS, SESSION_ID)
