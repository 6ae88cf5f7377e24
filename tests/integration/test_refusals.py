"""Bad input: one sentence that names the option or host, the value, and what is allowed; nothing is created."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.conftest import Sessions
from tests.integration.laboratory import AGENTS, on, remains

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown option": (
        {"clutser_size": 2},
        "session_clutser_size is not an option of a session; did you mean session_cluster_size?",
    ),
    "a wrong type": ({"cluster_size": "four"}, "session_cluster_size: 'four' must be a whole number from 1 to 1024."),
    "size 0": ({"cluster_size": 0}, "session_cluster_size: 0 must be a whole number from 1 to 1024."),
    "a malformed name": ({"name": "No_Such"}, "session_name: 'No_Such' must have 4 to 64 characters of a-z, 0-9 and -"),
    "a reserved variable": (
        {"env": {"BACKENDAI_CLUSTER_SIZE": "9"}},
        "session_env.BACKENDAI_CLUSTER_SIZE: names that begin with BACKENDAI_ are set by the session itself.",
    ),
    "a resource nobody offers": (
        {"resources": {"cuda.device": 1}},
        (
            "session_resources.cuda.device: no agent of resource group 'default' offers it;"
            " offered are cpu, lab.device, mem."
        ),
    ),
    "a mount source that is not there": (
        {"mounts": [{"source": "/no/such/folder", "target": "/data"}]},
        "session_mounts: /no/such/folder is not a folder on agent",
    ),
    "an image that is nowhere": (
        {"image": "no-such-image:1"},
        "session_image: 'no-such-image:1' is not on this host and cannot be pulled",
    ),
    "an unknown agent": (
        {"designated_agents": ["agent9"]},
        "session_designated_agents: 'agent9' is not an agent of the inventory; known are agent1, agent2, agent3.",
    ),
    "an unknown resource group": (
        {"resource_group": "gpu"},
        "session_resource_group: no agent belongs to 'gpu'; known are default.",
    ),
    "a malformed public key": (
        {"authorized_keys": ["not a key"]},
        "session_authorized_keys[0]: 'not a key' is not a public key of OpenSSH",
    ),
    "a pool without room": (
        {"network_pool": "10.200.0.0/29", "cluster_size": 9},
        "session_network_pool: 10.200.0.0/29 has no subnet left for 9 containers.",
    ),
}


@pytest.mark.parametrize(("variables", "sentence"), REFUSED.values(), ids=REFUSED.keys())
def test_it_is_refused_with_one_sentence(sessions: Sessions, variables: dict[str, Any], sentence: str) -> None:
    before = remains()
    run = sessions.create(**variables)
    assert run.code != 0
    assert sentence in run.said
    assert "Traceback" not in run.output
    assert (run.record["status"], run.record["error"] is not None) == ("ERROR", True)
    assert remains() == before


def test_a_name_that_is_taken_is_refused(sessions: Sessions) -> None:
    assert sessions.create().code == 0
    run = sessions.create(cluster_size=2)
    assert run.code != 0
    assert f"session_name: '{sessions.name}' is taken by a session (RUNNING)" in run.said


@pytest.mark.parametrize("limit", ["agent1", "gateway1"])
@pytest.mark.parametrize("playbook", ["create_session", "terminate_session", "list_sessions"])
def test_a_limit_that_hides_the_planner_is_refused(sessions: Sessions, playbook: str, limit: str) -> None:
    run = sessions.run(playbook, "--limit", limit, name=sessions.name, image="lab/python:1")
    assert run.code != 0
    assert f"--limit '{limit}' hides localhost, which plans sessions" in run.said


def test_a_limit_that_keeps_the_planner_narrows_the_agents(sessions: Sessions) -> None:
    run = sessions.create("--limit", "localhost,agent2")
    assert run.code == 0, run.output
    assert run.record["kernels"][0]["agent"] == "agent2"


def test_ending_without_naming_a_session_is_refused(sessions: Sessions) -> None:
    run = sessions.terminate(claim_ttl=600)
    assert run.code != 0
    assert "session_name or session_id is required." in run.said


def test_no_room_is_pending_with_the_shortfall_and_no_failure(sessions: Sessions) -> None:
    before = remains()
    room = 8 * sum(int(on(agent, "nproc")) for agent in AGENTS)
    run = sessions.create(cluster_mode="multi-node", cluster_size=room + 2, resources={"cpu": 1, "mem": "16m"})
    assert run.code == 0, run.output
    record = run.record
    assert (record["status"], record["kernels"], record["network"]) == ("PENDING", [], None)
    assert record["pending"]["shortfall"] == {"cpu": 2}
    assert f"no room for 2 of {room + 2} containers on 3 agents: short of cpu 2" in record["pending"]["reason"]
    assert remains() == before


def test_two_sessions_of_one_name_are_told_apart_by_their_ids(sessions: Sessions) -> None:
    first = sessions.create("--limit", "localhost,agent1")
    second = sessions.create("--limit", "localhost,agent2")
    assert (first.code, second.code) == (0, 0)
    both = ", ".join(sorted((first.record["id"], second.record["id"])))
    refused = sessions.terminate(name=sessions.name)
    assert refused.code != 0
    assert f"session_name: 2 sessions are called '{sessions.name}': give session_id ({both})." in refused.said
    assert sessions.terminate(id=first.record["id"]).code == 0


@pytest.mark.parametrize("setting", ["FOUND=1", "DEBUG=running"])
def test_values_of_the_environment_are_neither_shown_nor_garble_the_output(sessions: Sessions, setting: str) -> None:
    name, value = setting.split("=")
    run = sessions.create("--diff", "-vvv", env={name: value, "TOKEN": "a-secret-of-mine"})
    assert run.code == 0, run.output
    assert f"+container backendai-{sessions.name}-main1: running, image lab/python:1, address -" in run.said
    assert "a-secret-of-mine" not in run.output
