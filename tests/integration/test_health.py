"""Health checks take a host or a device out of service, between two creations; what runs goes on."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator

import pytest

from tests.integration.internals import HEALTH
from tests.integration.laboratory import AGENTS, run_on, run_on_all
from tests.integration.reboots import takes_sessions
from tests.integration.session_requests import SMALL
from tests.integration.sessions import Sessions
from tests.integration.waiting import wait_until

pytestmark = pytest.mark.queue

CHECK = "/etc/backendai/health.d/stand-in"
LOOK = "systemctl start backendai-health.service"
ON_AGENT1 = {"designated_agents": ["agent1"]}
ONE_DEVICE = {"resources": {"cpu": 1, "mem": "128m", "lab.device": 1}}


@pytest.fixture(autouse=True)
def healthy(sessions: Sessions) -> Iterator[None]:
    """Remove the stand-in of a check, and look again; the timer rests meanwhile."""
    agent = min(sessions.initial_state)
    run_on(agent, "systemctl stop backendai-health.timer")
    yield
    run_on(agent, f"rm -f {CHECK}; {LOOK}; systemctl start backendai-health.timer")


def let_fail(line: str) -> None:
    """Install a check on agent1 that fails with a line, and look at the agent's health."""
    script = f"#!/bin/sh\necho {shlex.quote(line)}\nexit 1\n"
    run_on("agent1", f"printf %s {shlex.quote(script)} > {CHECK}; chmod 755 {CHECK}; {LOOK}")


def test_the_hosts_of_the_lab_are_healthy() -> None:
    run_on_all(LOOK)
    found = run_on_all(f"cat {HEALTH}/health.json")
    assert [json.loads(text)["problems"] for text in found] == [[]] * len(AGENTS)


def test_an_agent_is_in_service_as_soon_as_its_engine_is_started_again() -> None:
    """Whether a look found the engine stopped or not; the timer does not run meanwhile."""
    run_on("agent1", f"systemctl stop docker.socket docker.service; {LOOK}")
    try:
        assert not takes_sessions("agent1")
        found = json.loads(run_on("agent1", f"cat {HEALTH}/health.json"))["problems"]
        assert [problem["reason"] for problem in found] == ["the Docker engine does not answer"]
    finally:
        run_on("agent1", "systemctl start docker.service")
    wait_until(lambda: takes_sessions("agent1"))


def test_a_sick_host_takes_no_new_session_and_keeps_what_runs(agent1_sessions: Sessions) -> None:
    sessions = agent1_sessions
    sessions.start(name=f"{sessions.name}-before", **SMALL)
    let_fail("the disk says that it dies")
    waiting = sessions.create(**ON_AGENT1, **SMALL)
    assert waiting.record["status"] == "PENDING", waiting.output
    assert "it receives no new sessions, because a health check failed: stand-in: the disk says" in waiting.text
    assert sessions.list_by_name()[f"{sessions.name}-before"]["status"] == "RUNNING"
    run_on("agent1", f"rm {CHECK}; {LOOK}")
    assert sessions.run("schedule_sessions").code == 0
    assert sessions.list_by_name()[sessions.name]["status"] == "RUNNING"


def test_a_device_that_falls_sick_between_two_creations_is_not_handed_out(agent1_sessions: Sessions) -> None:
    sessions = agent1_sessions
    first = sessions.start(name=f"{sessions.name}-1", **ON_AGENT1, **ONE_DEVICE)
    (main,) = first.kernels
    nodes = run_on("agent1", f"cat /var/lib/backendai/sessions/{main['id']}/session.json")
    device = nodes.split('"lab.device": ["')[1].split('"')[0]
    assert sessions.terminate(name=first.record["name"]).code == 0
    let_fail(f"device {device}: ECC")
    second = sessions.create(**ON_AGENT1, **ONE_DEVICE)
    assert f"{device} is assigned to no container: a health check failed: stand-in: ECC" in second.text
    if second.record["status"] == "RUNNING":
        nodes = run_on("agent1", f"cat /var/lib/backendai/sessions/{second.record['id']}/session.json")
        assert device not in nodes
    else:
        assert second.record["status"] == "PENDING", second.output
