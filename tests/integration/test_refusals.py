"""Invalid input: an error names the option or host, the value, and what is allowed; nothing is created."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.laboratory import AGENTS, PYTHON, agent_state, run_on_all
from tests.integration.session_requests import SMALL
from tests.integration.sessions import Sessions

pytestmark = pytest.mark.requests

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown resource": (
        {"resources": {"cuda.device": 1}},
        (
            "session_resources.cuda.device: no agent of resource group 'default' offers it;"
            " offered are cpu, lab.device, mem."
        ),
    ),
    "a missing mount source": (
        {"mounts": [{"source": "/no/such/folder", "target": "/data"}]},
        "session_mounts: /no/such/folder is not a folder on agent",
    ),
    "an unknown image": (
        {"image": "no-such-image:1"},
        "session_image: 'no-such-image:1' is not on this host and cannot be pulled",
    ),
}


@pytest.mark.parametrize(("variables", "sentence"), REFUSED.values(), ids=REFUSED.keys())
def test_invalid_request_is_refused(sessions: Sessions, variables: dict[str, Any], sentence: str) -> None:
    run = sessions.create(**variables)
    assert run.code != 0
    assert sentence in run.text
    assert "Traceback" not in run.output
    assert (run.record["status"], run.record["error"] is not None) == ("ERROR", True)
    assert agent_state() == sessions.initial_state


@pytest.mark.parametrize(
    ("playbook", "limit"),
    [("create_session", "agent1"), ("terminate_session", "gateway1"), ("list_sessions", "agent1")],
)
def test_limit_without_localhost_is_refused(sessions: Sessions, playbook: str, limit: str) -> None:
    run = sessions.run(playbook, "--limit", limit, name=sessions.name, image=PYTHON)
    assert run.code != 0
    assert f"--limit '{limit}' excludes localhost, which plans sessions" in run.text


def test_terminate_without_a_session_is_refused(sessions: Sessions) -> None:
    run = sessions.terminate(claim_ttl=600)
    assert run.code != 0
    assert "session_name or session_id is required." in run.text


def test_session_without_capacity_is_pending_with_the_shortfall(sessions: Sessions) -> None:
    room = 8 * sum(map(int, run_on_all("nproc")))
    run = sessions.create(cluster_mode="multi-node", cluster_size=room + 2, resources={"cpu": 1, "mem": "16m"})
    assert run.code == 0, run.output
    record = run.record
    assert (record["status"], record["kernels"], record["network"]) == ("PENDING", [], None)
    assert record["pending"]["shortfall"] == {"cpu": 2}
    assert f"no room for 2 of {room + 2} containers on 3 agents: short of cpu 2" in record["pending"]["reason"]
    assert agent_state() == sessions.initial_state


def test_limit_restricts_agents_and_duplicate_names_need_an_id(sessions: Sessions) -> None:
    first, second = (sessions.create("--limit", f"localhost,{agent}", **SMALL) for agent in AGENTS[:2])
    assert (first.code, second.code) == (0, 0), first.output + second.output
    assert [run.record["kernels"][0]["agent"] for run in (first, second)] == list(AGENTS[:2])
    both = ", ".join(sorted((first.record["id"], second.record["id"])))
    refused = sessions.terminate(name=sessions.name)
    assert refused.code != 0
    assert f"session_name: 2 sessions are called '{sessions.name}': give session_id ({both})." in refused.text
    ended = sessions.terminate(id=first.record["id"])
    assert (ended.code, ended.changed > 0, ended.record["status"]) == (0, True, "TERMINATED"), ended.output
