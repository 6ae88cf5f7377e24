"""Injected faults: a killed run, an unreachable agent, a step that fails half way."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration.internals import CORDON, PROGRAM, SESSIONS, TASK_CLAIM
from tests.integration.interruptions import await_task, descendants, kill_run
from tests.integration.laboratory import (
    AGENTS,
    BUSYBOX,
    TIMEOUT,
    agent_state,
    command,
    launch,
    queue_entries,
    run_in,
    run_on,
    run_on_all,
    ssh,
    stored_sessions,
)
from tests.integration.reboots import takes_sessions
from tests.integration.session_requests import FOUR, SMALL, TWO
from tests.integration.sessions import Sessions
from tests.integration.waiting import wait_until

pytestmark = pytest.mark.faults

THREE = {**FOUR, "cluster_size": 3}
COUNT_SESSIONS = f"ls {SESSIONS} | wc -l"
ONE = {**SMALL, "image": BUSYBOX}
REQUESTS = f"--full '{PROGRAM}'"
COUNT_REQUESTS = f"pgrep {REQUESTS} | wc -l"
PAUSE_ENGINE, RESUME_ENGINE = (f"systemctl kill --signal={name} docker.service" for name in ("STOP", "CONT"))


def stored_session_counts() -> list[str]:
    """Return the number of sessions stored on each agent."""
    return [count.strip() for count in run_on_all(COUNT_SESSIONS)]


@contextmanager
def without_engine(agent: str) -> Iterator[None]:
    """Stop the engine of an agent for a while."""
    run_on(agent, "systemctl stop docker.socket docker.service")
    try:
        yield
    finally:
        run_on(agent, "systemctl start docker.service")
        wait_until(lambda: takes_sessions(agent))


@pytest.mark.parametrize("agent", ["agent1", "agent3"])
def test_engine_that_fails_in_the_middle_of_a_network_leaves_nothing(sessions: Sessions, agent: str) -> None:
    """Both engines have made the bridge by the time that they add rules for it."""
    chain = "DOCKER-ISOLATION-STAGE-1"
    run_on(
        agent, f"iptables --delete FORWARD --jump {chain}; iptables --flush {chain}; iptables --delete-chain {chain}"
    )
    try:
        before = agent_state()
        run = sessions.create(**{**SMALL, "cluster_size": 2, "designated_agents": [agent]})
        assert run.code != 0
        assert "Failed to Setup IP tables" in run.text, run.output
        assert run.record["status"] == "ERROR"
        assert agent_state() == before
    finally:
        run_on(agent, "systemctl restart docker")
        wait_until(lambda: takes_sessions(agent))


def test_a_failed_rollback_is_completed_by_the_next_run(sessions: Sessions, tmp_path: Path) -> None:
    # Rendered on the control node after the claim: stops agent2's engine before the containers start and roll back.
    stop = shlex.join(ssh("agent2", "systemctl stop docker.socket docker.service"))
    template = tmp_path / "hosts.j2"
    template.write_text(f"127.0.0.1 localhost\n{{{{ lookup('ansible.builtin.pipe', {stop!r}) }}}}\n")
    try:
        run = sessions.create(**THREE, hosts_template=str(template))
    finally:
        run_on("agent2", "systemctl start docker.service")
        wait_until(lambda: takes_sessions("agent2"))
    assert run.code != 0
    remedy = "the next run of backendai.cluster.schedule_sessions removes it once the agent can be used again."
    assert f"agent2 may still hold a part of it: {remedy}" in run.record["error"]
    assert stored_session_counts() == ["0", "1", "0"]
    assert sessions.run("schedule_sessions").code == 0
    assert stored_session_counts() == ["0", "0", "0"]
    assert agent_state() == sessions.initial_state


@contextmanager
def claiming_without_engine(folder: Path, playbook: str, request: dict[str, Any]) -> Iterator[subprocess.Popen[str]]:
    """Start a run, and yield it while agent1, whose engine stands still since the survey, works on its claim."""
    stop = shlex.join(ssh("agent1", PAUSE_ENGINE))
    template = folder / "hosts.j2"
    template.write_text(f"127.0.0.1 localhost\n{{{{ lookup('ansible.builtin.pipe', {stop!r}) }}}}\n")
    variables = {f"session_{key}": value for key, value in {**request, "hosts_template": str(template)}.items()}
    try:
        with launch(command(playbook, folder, variables, "--limit", "localhost,gateway1,agent1")) as run:
            printed = await_task(run, TASK_CLAIM)
            assert f"{TASK_CLAIM}: begun" in printed, printed
            wait_until(lambda: run_on("agent1", COUNT_REQUESTS).strip() != "0")
            yield run
            run.communicate(timeout=TIMEOUT)
        assert run.returncode != 0
    finally:
        run_on("agent1", RESUME_ENGINE)
        wait_until(lambda: takes_sessions("agent1"))


@contextmanager
def cordoned_agent1(sessions: Sessions) -> Iterator[None]:
    """Take agent1 out of service for a while; no pass over the queue follows."""
    sessions.run("cordon_agents", "-e", "agent_names=agent1")
    try:
        yield
    finally:
        run_on("agent1", f"rm {CORDON}")


def require_nothing_left(sessions: Sessions) -> None:
    """Check that a session whose run has been broken off has ended, once agent1's requests have, too."""
    wait_until(lambda: run_on("agent1", COUNT_REQUESTS).strip() == "0")
    assert sessions.run("schedule_sessions").code == 0
    assert [entry["state"] for entry in queue_entries().values() if entry["name"] == sessions.name] == ["TERMINATED"]
    assert agent_state() == sessions.initial_state


def test_what_a_run_has_asked_for_before_it_was_interrupted_leaves_nothing(
    agent1_sessions: Sessions, tmp_path: Path
) -> None:
    """The agent's requests go on after the run has ended."""
    with claiming_without_engine(tmp_path, "create_session", {**ONE, "name": agent1_sessions.name}) as run:
        run.send_signal(signal.SIGINT)
    require_nothing_left(agent1_sessions)


@pytest.mark.parametrize("playbook", ["schedule_sessions", "terminate_session"])
def test_what_a_killed_run_has_asked_for_claims_nothing_once_its_session_has_ended(
    agent1_sessions: Sessions, tmp_path: Path, playbook: str
) -> None:
    """The request, which stands still, goes on after the next run has found nothing of it."""
    sessions = agent1_sessions
    with claiming_without_engine(tmp_path, "create_session", {**ONE, "name": sessions.name}) as run:
        run_on("agent1", f"pkill --signal STOP {REQUESTS}")
        kill_run(run)
    ended = sessions.run(playbook, **({"name": sessions.name} if playbook == "terminate_session" else {}))
    assert (ended.code, stored_session_counts()) == (0, ["0", "0", "0"]), ended.output
    run_on("agent1", f"pkill --signal CONT {REQUESTS}")
    require_nothing_left(sessions)


@pytest.mark.parametrize("playbook", ["create_session", "schedule_sessions"])
def test_what_a_killed_run_has_asked_for_does_not_run_beside_what_the_next_run_starts(
    sessions: Sessions, tmp_path: Path, playbook: str
) -> None:
    """The request, which stands still, would start the command where the next run has found nothing of the session."""
    request = {**ONE, "name": sessions.name, "command": "sleep 3600"}
    if playbook == "schedule_sessions":
        with cordoned_agent1(sessions):
            assert sessions.create("--limit", "localhost,gateway1,agent1", **request).record["status"] == "PENDING"
    with claiming_without_engine(tmp_path, playbook, request if playbook == "create_session" else {}) as run:
        run_on("agent1", f"pkill --signal STOP {REQUESTS}")
        kill_run(run)
    with cordoned_agent1(sessions):
        again = sessions.run(playbook, **(request if playbook == "create_session" else {}))
    assert again.code == 0, again.output
    run_on("agent1", f"pkill --signal CONT {REQUESTS}")
    wait_until(lambda: run_on("agent1", COUNT_REQUESTS).strip() == "0")
    held = [run_on(agent, f"docker ps --all --quiet --filter name={sessions.name}").split() for agent in AGENTS]
    assert sorted(map(len, held)) == [0, 0, 1]
    assert held[0] == [], "agent1 has begun it a second time"
    assert sessions.run("verify_session", name=sessions.name).code == 0


@pytest.mark.parametrize("over", [True, False], ids=["over", "still running"])
@pytest.mark.parametrize("waits", [True, False], ids=["of the queue", "of a user"])
def test_a_command_that_a_killed_run_has_begun_runs_once(
    agent1_sessions: Sessions, tmp_path: Path, waits: bool, over: bool
) -> None:
    """The run stands still since it has asked for everything, and is killed before it reads the answer."""
    sessions = agent1_sessions
    request = {**ONE, "name": sessions.name, "command": "echo ran; sleep 2" if over else "echo ran; sleep 3600"}
    if waits:
        with cordoned_agent1(sessions):
            assert sessions.create(**request).record["status"] == "PENDING"
    variables = {f"session_{key}": value for key, value in ({} if waits else request).items()}
    line = command("schedule_sessions" if waits else "create_session", tmp_path, variables)
    with launch([*line, "--limit", "localhost,gateway1,agent1"]) as run:
        await_task(run, TASK_CLAIM)
        wait_until(lambda: run_on("agent1", COUNT_REQUESTS).strip() != "0", pause=0.05)
        for pid in (run.pid, *descendants(run.pid)):
            os.kill(pid, signal.SIGSTOP)
        state = f"docker ps --all --filter name={sessions.name} --format '{{{{.State}}}}'"
        wait_until(lambda: run_on("agent1", COUNT_REQUESTS).strip() == "0")
        wait_until(lambda: run_on("agent1", state).strip() == ("exited" if over else "running"))
        kill_run(run)
        run.communicate(timeout=TIMEOUT)
    created = run_on("agent1", f"docker ps --all --quiet --filter name={sessions.name}")
    for _pass in range(2):
        assert sessions.run("schedule_sessions").code == 0
    (entry,) = [each for each in queue_entries().values() if each["name"] == sessions.name]
    record = entry["record"]
    assert (record["status"], record["exit_code"]) == (("TERMINATED", 0) if over else ("RUNNING", None))
    assert run_on("agent1", f"docker ps --all --quiet --filter name={sessions.name}") == ("" if over else created)
    if not over:
        assert sessions.run("verify_session", name=sessions.name).code == 0


def test_session_with_a_blocked_tunnel_is_not_running(sessions: Sessions) -> None:
    rule = "table inet fault { chain input { type filter hook input priority 0; udp dport 4789 drop; }; }"
    run_on("agent2", f"nft '{rule}'")
    try:
        run = sessions.create(**TWO, designated_agents=["agent1", "agent2"])
    finally:
        run_on("agent2", "nft delete table inet fault")
    assert run.code != 0
    assert "does not reach" in run.text
    assert run.record["status"] == "ERROR"
    assert agent_state() == sessions.initial_state


def test_running_session_survives_a_failed_repair_and_a_lost_folder(sessions: Sessions) -> None:
    created = sessions.create(**FOUR)
    assert created.code == 0, created.output
    main, sub = created.record["kernels"][:2]
    run_on(sub["agent"], f"docker rm --force {sub['container']}")
    run_on(sub["agent"], f"docker create --name {sub['container']} lab/busybox:1 true")
    try:
        failed = sessions.create(**FOUR)
        assert failed.code != 0
        assert "was not repaired, and what ran before still runs" in failed.text
        running = run_on(main["agent"], f"docker inspect --format '{{{{.State.Running}}}}' {main['container']}")
        assert running.strip() == "true"
    finally:
        run_on(sub["agent"], f"docker rm {sub['container']}")

    # The agent that lost its folder gets new containers, with new keys that are distributed to all; but the former ones
    # are nobody's, and their names are taken until somebody has removed them.
    lost = created.record["kernels"][3]
    here = [kernel["container"] for kernel in created.record["kernels"] if kernel["agent"] == lost["agent"]]
    run_on(lost["agent"], f"rm -r {SESSIONS}/{created.record['id']}")
    refused = sessions.create(**FOUR)
    assert refused.code != 0
    removal = f"docker rm -f {' '.join(sorted(here))}"
    assert f"remove it there ({removal}), or choose another session_name" in refused.text, refused.output
    run_on(lost["agent"], removal)
    repaired = sessions.create(**FOUR)
    assert repaired.code == 0, repaired.output
    before, after = (dict(run.record["host_keys"]) for run in (created, repaired))
    assert before.pop(lost["hostname"]) != after.pop(lost["hostname"])
    assert {**repaired.record, "host_keys": after} == {**created.record, "host_keys": before}
    for kernel in (sub, lost):
        assert run_in(main, "ssh", kernel["hostname"], "hostname").strip() == kernel["hostname"]


def test_session_that_an_agent_cannot_read_is_ended(sessions: Sessions) -> None:
    created = sessions.create(**TWO, designated_agents=["agent1", "agent2"])
    assert created.code == 0, created.output
    run_on("agent1", f"echo '{{' > {SESSIONS}/{created.record['id']}/session.json")
    listed = sessions.run("list_sessions")
    assert (
        f"agent1: it receives no new sessions, because {SESSIONS}/{created.record['id']}/session.json is damaged"
        in (listed.text)
    )
    assert sessions.terminate().code == 0
    assert agent_state() == sessions.initial_state


def test_unusable_agents_are_skipped_with_a_warning(sessions: Sessions, unreachable_agent2: list[str]) -> None:
    with without_engine("agent3"):
        run = sessions.create(*unreachable_agent2, **TWO)
        assert run.code == 0, run.output
        assert "agent2 is left out:" in run.text
        assert "agent3 is left out: the Docker engine at unix:///var/run/docker.sock does not answer" in run.text
        assert {kernel["agent"] for kernel in run.record["kernels"]} == {"agent1"}
        designated = sessions.create(name=f"{sessions.name}-2", designated_agents=["agent3"])
        assert designated.code != 0
        assert "session_designated_agents: 'agent3' cannot be used: the Docker engine" in designated.text


def test_a_request_that_only_an_unreachable_agent_could_serve_waits_for_it(
    sessions: Sessions, unreachable_agent2: list[str]
) -> None:
    waiting = sessions.create(*unreachable_agent2, **SMALL, designated_agents=["agent2"])
    assert (waiting.code, waiting.record["status"]) == (0, "PENDING"), waiting.output
    assert "; agent2 does not answer (" in waiting.record["pending"]["reason"]
    assert sessions.run("schedule_sessions").code == 0
    assert sessions.list_by_name()[sessions.name]["status"] == "RUNNING"


def test_expired_claim_is_released_for_the_next_session(agent1_sessions: Sessions) -> None:
    # Gateways know only committed sessions, so they are excluded.
    created = agent1_sessions.create("-e", "gateway_group=nobody", **SMALL)
    assert created.code == 0, created.output
    agent = created.record["kernels"][0]["agent"]
    path = f"{SESSIONS}/{created.record['id']}/session.json"
    passed = '{"boot": "", "uptime": 0.0}'
    run_on(agent, f'sed -i \'s/"expires_at": null/"expires_at": {passed}/\' {path}')
    other = agent1_sessions.create(name=f"{agent1_sessions.name}-2", designated_agents=[agent], **SMALL)
    assert other.code == 0, other.output
    assert [session["plan"]["id"] for session in stored_sessions()[agent]] == [other.record["id"]]
