"""How sessions end: by their command, by their failure policy, or with an agent unreachable."""

from __future__ import annotations

import pytest

from tests.integration.containers import wait_for_exit
from tests.integration.laboratory import QUEUE, Run, agent_state, queue_entries, run_in, run_on
from tests.integration.session_requests import SMALL, TWO
from tests.integration.sessions import Sessions

pytestmark = pytest.mark.queue


def assert_ended_by_command(sessions: Sessions, run: Run, code: int) -> None:
    """Check that a run with session_wait has ended with an exit code, and that nothing is left behind."""
    assert (run.code == 0) == (code == 0), run.output
    record = run.record
    assert (record["status"], record["exit_code"]) == ("TERMINATED", code)
    assert record["reason"] == f"the command ended with exit code {code}"
    assert (f"the session '{sessions.name}' has ended: {record['reason']}." in run.text) == (code != 0)
    assert agent_state() == sessions.initial_state
    assert queue_entries()[record["id"]]["record"] == record


def test_session_wait_reports_a_failed_command_and_leaves_nothing(sessions: Sessions) -> None:
    command = "ssh sub1 hostname | grep sub1 && exit 3"
    assert_ended_by_command(sessions, sessions.create(command=command, wait=True, **TWO), 3)


def test_finished_command_is_listed_and_removed_by_the_next_run(agent1_sessions: Sessions) -> None:
    run = agent1_sessions.create(command="exit 3", **SMALL)
    assert (run.code, run.record["status"]) == (0, "RUNNING"), run.output
    assert wait_for_exit(run.record["kernels"][0]) == 3
    during = agent_state()
    record = agent1_sessions.list_by_name()[agent1_sessions.name]
    assert (record["id"], record["status"], record["exit_code"]) == (run.record["id"], "TERMINATED", 3)
    assert agent_state() == during != agent1_sessions.initial_state
    assert agent1_sessions.run("schedule_sessions").code == 0
    assert agent1_sessions.list_by_name() == {}
    kept = agent1_sessions.list_by_name(history=True)[agent1_sessions.name]
    assert (kept["id"], kept["status"], kept["exit_code"]) == (run.record["id"], "TERMINATED", 3)
    assert agent_state() == agent1_sessions.initial_state


def test_failure_policy_restart_restarts_dead_containers(sessions: Sessions) -> None:
    created = sessions.create(failure_policy="restart", **TWO)
    main, sub = created.record["kernels"]
    run_on(sub["agent"], f"docker kill {sub['container']}")
    assert sessions.list_by_name()[sessions.name]["status"] == "DEGRADED"
    assert sessions.run("schedule_sessions").code == 0
    assert sessions.list_by_name() == {sessions.name: created.record}
    assert f"inet {sub['address']}/" in run_in(sub, "ip", "-4", "addr", "show", "dev", "cluster0")
    assert run_in(main, "ssh", "sub1", "hostname").strip() == "sub1"
    assert run_in(sub, "ssh", "main1", "hostname").strip() == "main1"


def test_session_on_an_unreachable_agent_needs_force_to_terminate(
    sessions: Sessions, unreachable_agent2: list[str]
) -> None:
    assert sessions.create(**{**TWO, "cluster_size": 3}).code == 0
    during = agent_state()
    variables = {"name": sessions.name, "queue_path": str(QUEUE)}
    refused = sessions.terminate(*unreachable_agent2, **variables)
    assert refused.code != 0
    assert "has containers on agents that cannot be used, so nothing was ended: agent2:" in refused.text
    assert "with session_force it is removed from them when they return" in refused.text
    assert agent_state() == during
    ended = sessions.terminate(*unreachable_agent2, force=True, **variables)
    assert (ended.code, ended.record["status"]) == (0, "TERMINATED"), ended.output
    assert "agent2: the next run that reaches it removes the session there." in ended.text
    after = agent_state()
    assert [agent for agent in after if after[agent] != sessions.initial_state[agent]] == ["agent2"]
    assert sessions.list_by_name() == {}
    assert sessions.run("schedule_sessions").code == 0
    assert agent_state() == sessions.initial_state
