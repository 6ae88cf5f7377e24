"""How sessions end: by their command, by a death that their policy answers, or without an agent that is away."""

from __future__ import annotations

import pytest

from tests.integration.containers import exit_code
from tests.integration.laboratory import QUEUE, Run, inside, on, queue, remains, share
from tests.integration.session_requests import SMALL, TWO
from tests.integration.sessions import Sessions

pytestmark = pytest.mark.queue


def ended_by_command(sessions: Sessions, run: Run, code: int) -> None:
    """Check that a session that was waited for has ended with a code, and that nothing is left of it."""
    assert (run.code == 0) == (code == 0), run.output
    record = run.record
    assert (record["status"], record["exit_code"]) == ("TERMINATED", code)
    assert record["reason"] == f"the command ended with exit code {code}"
    assert (f"the session '{sessions.name}' is over: {record['reason']}." in run.said) == (code != 0)
    assert remains() == sessions.before
    assert queue()[record["id"]]["record"] == record


def test_a_command_that_is_waited_for_and_succeeds_leaves_nothing(near: Sessions) -> None:
    ended_by_command(near, near.create(command="true", wait=True, **SMALL), 0)


def test_a_command_of_two_agents_that_is_waited_for_and_fails_says_so_and_leaves_nothing(sessions: Sessions) -> None:
    command = "ssh sub1 hostname | grep sub1 && exit 3"
    ended_by_command(sessions, sessions.create(command=command, wait=True, **TWO), 3)


def test_a_command_that_nobody_waits_for_is_listed_with_its_end_and_removed_by_the_next_run(near: Sessions) -> None:
    run = near.create(command="exit 3", **SMALL)
    assert (run.code, run.record["status"]) == (0, "RUNNING"), run.output
    assert exit_code(run.record["kernels"][0]) == 3
    during = remains()
    record = near.listed()[near.name]
    assert (record["id"], record["status"], record["exit_code"]) == (run.record["id"], "TERMINATED", 3)
    assert remains() == during != near.before
    assert near.run("schedule_sessions").code == 0
    assert near.listed() == {}
    kept = near.listed(history=True)[near.name]
    assert (kept["id"], kept["status"], kept["exit_code"]) == (run.record["id"], "TERMINATED", 3)
    assert remains() == near.before


def test_what_died_is_started_again_where_the_session_says_so(sessions: Sessions) -> None:
    created = sessions.create(failure_policy="restart", **TWO)
    main, sub = created.record["kernels"]
    on(sub["agent"], f"docker kill {sub['container']}")
    assert sessions.listed()[sessions.name]["status"] == "DEGRADED"
    assert sessions.run("schedule_sessions").code == 0
    assert sessions.listed() == {sessions.name: created.record}
    assert f"inet {sub['address']}/" in inside(sub, "ip", "-4", "addr", "show", "dev", "cluster0")
    assert inside(main, "ssh", "sub1", "hostname").strip() == "sub1"
    assert inside(sub, "ssh", "main1", "hostname").strip() == "main1"


def test_a_death_ends_the_session_that_says_so_and_makes_room(near: Sessions) -> None:
    whole = {"cluster_size": 2, "designated_agents": ["agent1"], "resources": {"cpu": 1, "mem": share(2)}}
    created = near.create(failure_policy="terminate", **whole)
    waits = near.create(name=f"{near.name}-later", **whole)
    assert waits.record["status"] == "PENDING"
    sub = created.record["kernels"][1]
    on(sub["agent"], f"docker kill {sub['container']}")
    run = near.run("schedule_sessions")
    assert run.code == 0, run.output
    over = queue()[created.record["id"]]["record"]
    assert (over["status"], over["exit_code"]) == ("TERMINATED", 137)
    assert over["reason"] == "sub1 died with exit code 137 and session_failure_policy is terminate"
    assert f"Session {waits.record['name']} is RUNNING." in run.said


def test_a_session_with_an_agent_that_is_away_is_ended_by_force_only_and_wholly_when_that_returns(
    sessions: Sessions, unreachable_agent2: list[str]
) -> None:
    assert sessions.create(**{**TWO, "cluster_size": 3}).code == 0
    during = remains()
    asked = {"name": sessions.name, "queue_path": str(QUEUE)}
    refused = sessions.terminate(*unreachable_agent2, **asked)
    assert refused.code != 0
    assert "has containers on agents that cannot be used, so nothing was ended: agent2:" in refused.said
    assert "with session_force it ends without them, and they are cleared when they return" in refused.said
    assert remains() == during
    ended = sessions.terminate(*unreachable_agent2, force=True, **asked)
    assert (ended.code, ended.record["status"]) == (0, "TERMINATED"), ended.output
    assert "agent2 will be cleared by the next run that can use it." in ended.said
    after = remains()
    assert [agent for agent in after if after[agent] != sessions.before[agent]] == ["agent2"]
    assert sessions.listed() == {}
    assert sessions.run("schedule_sessions").code == 0
    assert remains() == sessions.before
