"""What is known of an agent."""

from __future__ import annotations

from ansible_collections.backendai.cluster.plugins.module_utils._core.facts import Underlay
from tests.unit.builders import GIB, agent_facts, plan, session_data


def test_facts_become_typed_values() -> None:
    made = plan({"agent1": 2})
    facts = agent_facts("agent1", 4, sessions=[session_data(made, "agent1")], networks=["10.0.0.0/8"], vnis=[7])
    assert facts.online_cpus == 4
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
