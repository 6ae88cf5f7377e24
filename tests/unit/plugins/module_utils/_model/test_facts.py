"""What is known of an agent."""

from __future__ import annotations

import dataclasses

from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import Holding
from ansible_collections.backendai.cluster.plugins.module_utils._model.underlay import Underlay
from tests.unit.builders import GIB, agent_facts, bare_session, held_session, plan


def test_facts_become_typed_values() -> None:
    made = plan({"agent1": 2})
    facts = agent_facts("agent1", 4, sessions=[held_session(made, "agent1")], networks=["10.0.0.0/8"], vnis=[7])
    assert (facts.online_cpus, facts.online_cpu_count) == ((0, 1, 2, 3), 4)
    assert facts.underlay == Underlay("192.0.2.1", "eth0", 1500)
    assert facts.latest_session == made.created_at
    assert (facts.networks, facts.vnis, facts.missing_paths) == (("10.0.0.0/8",), (7,), ())


def test_an_agent_without_sessions_is_older_than_any() -> None:
    assert agent_facts("agent1").latest_session == 0.0


def test_what_is_free_is_never_negative() -> None:
    facts = agent_facts("agent1", 4, 4 * GIB, taken={"cpu": 6, "mem": GIB, "cuda.device": 1})
    assert facts.free == {"cpu": 0, "mem": 3 * GIB}


def test_a_slot_of_which_there_is_none_is_not_offered() -> None:
    facts = agent_facts("agent1", capacity={"cpu": 4, "mem": GIB, "cuda.device": 0}, taken={"cpu": 4})
    assert [slot for slot in ("cpu", "mem", "cuda.device", "tpu") if facts.offers(slot)] == ["cpu", "mem"]


def test_an_agent_holds_what_the_containers_of_sessions_ask_that_it_runs() -> None:
    gpu, plain = {"cpu": 2, "mem": GIB, "cuda.device": 1}, {"cpu": 1, "mem": GIB}
    sessions = [
        bare_session("train", 30.0, {"agent1": [gpu, plain], "agent2": [gpu]}),
        dataclasses.replace(bare_session("given-up", 40.0, {"agent1": [plain]}), expired=True),
    ]
    facts = agent_facts("agent1", sessions=sessions)
    assert facts.holdings == (Holding("id-train", "train", 30.0, {"cpu": 3, "mem": 2 * GIB, "cuda.device": 1}, 2),)
    assert facts.latest_session == 40.0


def test_what_is_free_follows_from_what_is_taken_alone() -> None:
    facts = agent_facts("agent1", 4, 4 * GIB)
    taken = dataclasses.replace(facts, taken={"cpu": 1})
    assert (facts.free, taken.free) == ({"cpu": 4, "mem": 4 * GIB}, {"cpu": 3, "mem": 4 * GIB})
