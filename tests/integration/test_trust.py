"""What an agent says of a session is not carried out: the plan is that of the control node that started it."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.internals import SESSIONS
from tests.integration.laboratory import QUEUE, agent_state, queue_entries, run_in, run_on, stored_sessions
from tests.integration.session_requests import SMALL, TWO
from tests.integration.sessions import StartedSession, started_session

pytestmark = pytest.mark.faults

REQUEST = {**TWO, "designated_agents": ["agent1", "agent2"], "env": {"TOKEN": "hunter2"}}
CHANGE = (
    "import json, sys; name, code = sys.argv[1:]; s = json.load(open(name)); exec(code); json.dump(s, open(name, 'w'))"
)
EXTENSIONS = {
    "a mount": (
        "s['plan']['mounts'].append({'source': '/', 'target': '/mnt/host', 'read_only': False, 'strict': False})"
    ),
    "a kernel": (
        "s['plan']['kernels'].append({**s['plan']['kernels'][1], 'agent': 'agent3', 'hostname': 'sub9', 'index': 9,"
        " 'rank': 9, 'container': s['plan']['kernels'][1]['container'] + '9'});"
        " s['plan']['underlays']['agent3'] = s['plan']['underlays']['agent2']"
    ),
    "an image": "[kernel.update(image='lab/busybox:1') for kernel in s['plan']['kernels']]",
}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedSession]:
    with started_session(tmp_path_factory.mktemp("trust"), **REQUEST) as started:
        yield started


def change_plan(session: StartedSession, agent: str, code: str) -> None:
    """Change what an agent has stored of a session, as somebody could who took the agent over."""
    path = f"{SESSIONS}/{session.record['id']}/session.json"
    run_on(agent, shlex.join(["python3", "-c", CHANGE, path, code]))


def containers(agent: str) -> list[dict[str, object]]:
    """Return name, image and bind mounts of all containers of sessions on an agent, sorted by name."""
    listed = run_on(agent, "docker ps -aq --filter label=ai.backend.session-id | xargs -r docker inspect")
    return sorted(
        (
            {
                "name": found["Name"],
                "image": found["Config"]["Image"],
                "binds": sorted(found["HostConfig"]["Binds"] or []),
            }
            for found in json.loads(listed or "[]")
        ),
        key=lambda container: str(container["name"]),
    )


def test_what_an_agent_adds_to_its_plan_is_not_carried_out(session: StartedSession) -> None:
    agents = ("agent1", "agent2", "agent3")
    before = {agent: containers(agent) for agent in agents}
    stored = stored_sessions()
    for extension in EXTENSIONS.values():
        change_plan(session, "agent1", extension)
    run_on("agent2", f"docker rm -f {session.container_on('agent2')['container']}")

    listed = session.sessions.run("list_sessions")
    name, session_id = session.record["name"], session.record["id"]
    assert f"agent1 has another plan of the session {name} than this control node, which started it" in listed.text
    (record,) = [each for each in listed.record if each["id"] == session_id]
    assert record["status"] == "DEGRADED"
    assert [kernel["agent"] for kernel in record["kernels"]] == [kernel["agent"] for kernel in session.kernels]
    verified = session.sessions.run("verify_session", name=name)
    assert verified.code != 0
    assert any(change["subject"].startswith("plan: ") for change in verified.record["drift"]), verified.output

    repaired = session.sessions.run("repair_session", name=name)
    assert (repaired.code, repaired.record["status"]) == (0, "RUNNING"), repaired.output
    assert {agent: containers(agent) for agent in agents} == before
    plans = [held["plan"] for each in stored_sessions().values() for held in each]
    assert plans == [held["plan"] for each in stored.values() for held in each]
    assert "hunter2" in run_in(session.container_on("agent2"), "sh", "-lc", "echo $TOKEN")
    again = session.sessions.run("verify_session", name=name)
    assert again.code == 0, again.output


def test_a_control_node_with_a_copy_of_the_queue_takes_its_sessions_over(
    session: StartedSession, tmp_path: Path
) -> None:
    copied = {"queue_path": str(shutil.copytree(QUEUE, tmp_path / "queue"))}
    before = {agent: containers(agent) for agent in ("agent1", "agent2")}
    again = session.create_again(**copied)
    assert (again.code, again.changed) == (0, 0), again.output
    run_on("agent2", f"docker rm -f {session.container_on('agent2')['container']}")
    repaired = session.sessions.run("repair_session", name=session.record["name"], **copied)
    assert (repaired.code, repaired.record["status"]) == (0, "RUNNING"), repaired.output
    assert {agent: containers(agent) for agent in before} == before
    assert repaired.record["id"] == session.record["id"]


def test_a_session_without_a_record_is_only_listed_shown_and_ended(session: StartedSession, tmp_path: Path) -> None:
    sessions, elsewhere = session.sessions, {"queue_path": str(tmp_path / "queue")}
    name, session_id = session.record["name"], session.record["id"]
    change_plan(session, "agent1", EXTENSIONS["a mount"])
    before = agent_state()

    listed = sessions.run("list_sessions", **elsewhere)
    (record,) = [each for each in listed.record if each["id"] == session_id]
    assert (record["name"], record["status"], record["recorded"], record["user"]) == (name, "RUNNING", False, None)
    assert sorted((kernel["agent"], kernel["status"]) for kernel in record["kernels"]) == sorted(
        (kernel["agent"], "running") for kernel in session.kernels
    )
    logs = sessions.run("session_logs", id=session_id, **elsewhere)
    assert logs.code == 0, logs.output
    assert {kernel["hostname"] for kernel in logs.record["kernels"]} == {
        kernel["hostname"] for kernel in session.kernels
    }

    unknown = f"this control node has no record of the session '{name}'"
    for refused, error in (
        (session.create_again(**elsewhere), f"'{name}' is also the name of a session on agent1, agent2 that this"),
        (sessions.run("verify_session", name=name, **elsewhere), unknown),
        (sessions.run("session_logs", name=name, **elsewhere), unknown),
        (sessions.run("repair_session", name=name, **elsewhere), f"has no request of '{name}'"),
        (sessions.terminate(name=name, **elsewhere), f"this control node has no record of '{name}', and agents hold"),
    ):
        assert refused.code != 0, refused.output
        assert error in refused.text
    assert sessions.run("schedule_sessions", **elsewhere).code == 0
    assert agent_state() == before

    other = sessions.create(name=name, **{**SMALL, "designated_agents": ["agent3"]}, **elsewhere)
    assert (other.code, other.record["status"]) == (0, "RUNNING"), other.output
    assert sessions.terminate(id=other.record["id"], **elsewhere).code == 0
    ended = sessions.terminate(id=session_id, **elsewhere)
    assert (ended.code, ended.record["status"]) == (0, "TERMINATED"), ended.output
    assert stored_sessions() == {"agent1": [], "agent2": [], "agent3": []}

    # The request ends with its session, also where it was started.
    path = QUEUE / f"{session_id}.json"
    assert (queue_entries()[session_id]["state"], path.stat().st_mode & 0o777) == ("RUNNING", 0o600)
    assert "hunter2" in path.read_text()
    assert sessions.run("schedule_sessions").code == 0
    entry = queue_entries()[session_id]
    assert (entry["state"], entry["record"]["reason"]) == ("TERMINATED", "no agent holds a part of it any more")
    assert "hunter2" not in path.read_text()
