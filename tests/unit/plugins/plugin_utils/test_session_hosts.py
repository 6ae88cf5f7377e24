"""Containers as hosts: the command for agents, what runs there, and host names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ansible_collections.backendai.cluster.plugins.plugin_utils import session_hosts
from ansible_collections.backendai.cluster.plugins.plugin_utils.session_hosts import SessionHost
from tests.unit.builders import SESSION_ID, plan

OTHER_ID = "ffffffff-3c0e-4f5e-9d0a-0f3c1d2e4b6a"


def host(**changes: Any) -> SessionHost:
    return replace(session_hosts.find_hosts([plan()])[0], **changes)


# ---- host names


def test_a_host_has_its_name_and_groups() -> None:
    container = host(agent="agent-1.example")
    assert session_hosts.assign_host_names([container], []) == ({"main1.train-llm": container}, [])
    assert container.groups == ("session_train_llm", "role_main", "agent_agent_1_example")
    assert container.variables == {
        "backendai_session_id": SESSION_ID,
        "backendai_session_name": "train-llm",
        "backendai_role": "main",
        "backendai_index": 1,
        "backendai_rank": 0,
        "backendai_agent": "agent-1.example",
        "backendai_container": "backendai-train-llm-main1",
        "backendai_address": container.address,
    }


def test_a_host_that_is_there_already_is_never_replaced() -> None:
    assigned, warnings = session_hosts.assign_host_names([host()], ["main1.train-llm"])
    assert assigned == {}
    assert warnings == [
        "agent1: the container backendai-train-llm-main1 is left out: the inventory already has a host main1.train-llm."
    ]


def test_a_container_that_two_agents_name_is_the_first_ones() -> None:
    assigned, warnings = session_hosts.assign_host_names([host(agent="agent2"), host()], [])
    assert assigned == {"main1.train-llm": host()}
    assert len(warnings) == 1


def test_settings_of_an_agent_are_referred_to_and_not_copied() -> None:
    variables, engine = """hostvars["agent's"]""", "'unix:///var/run/docker.sock'"
    assert session_hosts.variable_references("agent's") == {
        "backendai_agent_connection": f"{{{{ {variables} | backendai.cluster.agent_connection }}}}",
        "backendai_docker_host": f"{{{{ {variables}.agent_docker_host | default({engine}) }}}}",
    }
