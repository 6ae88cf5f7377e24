"""Agents that are taken out of service: cordoned, drained, resumed and rebooted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.internals import CORDON
from tests.integration.laboratory import queue_entries, run_on, run_on_all
from tests.integration.session_requests import TWO
from tests.integration.sessions import Sessions

pytestmark = pytest.mark.queue

BOOTED = "systemctl show --value --property=UserspaceTimestampMonotonic"
ON_AGENT1 = {"designated_agents": ["agent1"]}


def names(*agents: str, **variables: object) -> list[str]:
    """Return the options that name agents, and set further ``agent_*`` variables."""
    given = {"names": ",".join(agents), **variables}
    return [word for name, value in given.items() for word in ("-e", f"agent_{name}={value}")]


@pytest.fixture(autouse=True)
def in_service(sessions: Sessions) -> Iterator[None]:
    """Take agents back into service, before what the sessions have left is looked at."""
    yield
    run_on_all(f"rm -f {CORDON}", [*sessions.initial_state])


def test_a_drain_ends_the_sessions_of_the_agent_everywhere(sessions: Sessions) -> None:
    started = sessions.start(**{**TWO, "agent_selection": "dispersed"})
    agent = started.kernels[1]["agent"]
    later = sessions.run("drain_agents", *names(agent, drain_deadline=3600, cordon_reason="disk"))
    assert f"still there: {sessions.name}" in later.output
    listed = sessions.list_by_name()[sessions.name]
    assert listed["status"] == "RUNNING"
    assert 3000 < listed["ends_at"] - listed["started_at"] < 4200
    drained = sessions.run("drain_agents", *names(agent, cordon_reason="disk"))
    assert drained.code == 0, drained.output
    record = queue_entries()[started.kernels[0]["id"]]["record"]
    assert (record["status"], record["grace_exceeded"]) == ("TERMINATED", False)
    assert record["reason"].startswith(f"{agent} is cordoned by root (disk), its sessions end by ")
    assert sessions.list_by_name() == {}


def test_agents_are_rebooted_one_after_the_other_and_their_sessions_come_back(sessions: Sessions) -> None:
    started = sessions.start(**{**TWO, "agent_selection": "dispersed"}, failure_policy="restart")
    agents = list(dict.fromkeys(kernel["agent"] for kernel in started.kernels))
    before = [run_on(agent, BOOTED) for agent in agents]
    rebooted = sessions.run("reboot_agents", *names(*agents))
    assert rebooted.code == 0, rebooted.output
    assert all(run_on(agent, BOOTED) != time for agent, time in zip(agents, before, strict=True))
    assert sessions.list_by_name()[sessions.name]["status"] == "RUNNING"
    assert sessions.run("verify_session", name=sessions.name).code == 0
    assert run_on(agents[0], f"ls {CORDON} 2>&1 || true").endswith("No such file or directory\n")


def test_the_list_of_agents_says_what_is_free_and_what_would_start(sessions: Sessions, tmp_path: Path) -> None:
    path = tmp_path / "agents.json"
    assert sessions.run("cordon_agents", *names("agent2", cordon_reason="disk")).code == 0
    listed = sessions.run("list_agents", "-e", f"agent_list_path={path}")
    assert listed.code == 0, listed.output
    report = json.loads(path.read_text())
    assert [(row["name"], row["status"]) for row in report["agents"]] == [
        ("agent1", "ready"),
        ("agent2", "cordoned"),
        ("agent3", "ready"),
    ]
    (plain, _with_device) = report["groups"][0]["largest_sessions"]
    assert plain["containers"] > plain["on_one_agent"] > 1
    size = {"cluster_mode": "multi-node", "cluster_size": plain["containers"] + 1}
    assert sessions.create(resources={"cpu": 1, "mem": "1g"}, **size).record["status"] == "PENDING"
