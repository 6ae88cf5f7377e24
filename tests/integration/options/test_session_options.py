"""Options of sessions with other values: what is true then in containers, on agents and in files."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.ansible_settings import ROOT
from tests.integration.internals import OUTPUT, session_link
from tests.integration.interruptions import await_task
from tests.integration.laboratory import (
    BUSYBOX,
    QUEUE,
    TIMEOUT,
    agent_state,
    command,
    launch,
    run_in,
    run_on,
    run_on_all,
)
from tests.integration.session_requests import SMALL, TWO
from tests.integration.sessions import Sessions, StartedSession, started_session

pytestmark = pytest.mark.containers

BOTH = ["agent1", "agent2"]
TEMPLATES = ROOT / "roles" / "session" / "templates"
DAY = 86400
FOLLOW = "Show the logs"
#: Goes on after SIGTERM, and prints the time.
STUBBORN = "trap 'echo asked to end' TERM; while :; do date +%s; sleep 0.2; done"


@pytest.fixture(scope="module")
def spread(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedSession]:
    """A session on two agents, with templates, pools and ports of its own."""
    folder = tmp_path_factory.mktemp("spread")
    for name, first, last in (
        ("ssh_config.j2", "Host *\n    ServerAliveInterval 77\n", ""),
        ("environment.j2", "", "FROM_TEMPLATE={{ kernel.hostname }} of {{ plan.kernels | length }}\n"),
    ):
        (folder / name).write_text(first + (TEMPLATES / name).read_text() + last)
    request = {
        **TWO,
        "designated_agents": BOTH,
        "network_pool": "10.201.7.0/24",
        "vni_pool": "777-779",
        "vxlan_port": 4790,
        "published_port_pool": "30500-30520",
        "ssh_config_template": str(folder / "ssh_config.j2"),
        "environment_template": str(folder / "environment.j2"),
        "no_new_privileges": False,
    }
    with started_session(folder, **request) as session:
        yield session


def test_pools_and_ports_of_the_network_are_those_that_were_asked_for(spread: StartedSession) -> None:
    links = run_on_all(f"ip -details link show {session_link(spread.record['id'])}", BOTH)
    for kernel in spread.kernels:
        assert " 10.201.7." in run_in(kernel, "ip", "-4", "-oneline", "address", "show", "dev", "cluster0")
    for link in links:
        assert re.search(r"vxlan id 77[789] ", link), link
        assert " dstport 4790 " in link
    main = spread.kernels[0]
    shape = '{{(index (index .NetworkSettings.Ports "22/tcp") 0).HostPort}}'
    published = int(run_on(main["agent"], f"docker inspect --format '{shape}' {main['container']}"))
    assert 30500 <= published <= 30520


def test_templates_of_the_operator_are_in_force(spread: StartedSession) -> None:
    main, sub = spread.kernels
    assert "serveraliveinterval 77\n" in run_in(main, "ssh", "-G", "sub1")
    assert run_in(main, "ssh", "sub1", "echo $FROM_TEMPLATE") == "sub1 of 2\n"
    assert "FROM_TEMPLATE=sub1 of 2\n" in run_in(sub, "env")


def test_setuid_programs_work_where_that_is_asked_for(spread: StartedSession) -> None:
    for kernel in spread.kernels:
        assert run_in(kernel, "sed", "-n", "s/^NoNewPrivs:.//p", "/proc/self/status") == "0\n"


def test_the_list_has_more_columns_or_is_data(spread: StartedSession) -> None:
    table, wide, data = (
        spread.sessions.run("list_sessions", list_format=form).output for form in ("table", "wide", "json")
    )
    assert ("EACH" in table, "EACH" in wide) == (False, True)
    assert spread.record["id"] in wide
    assert f'"id": "{spread.record["id"]}"' in data


def test_the_list_says_what_a_session_uses(spread: StartedSession) -> None:
    listed = spread.sessions.run("list_sessions", list_format="json", list_use=True).output
    assert re.search(r'"use": \{\s*"cpu": \d', listed), listed


def test_a_token_ends_after_the_time_that_was_asked_for(spread: StartedSession, tmp_path: Path) -> None:
    path = tmp_path / "token"
    run = spread.sessions.run("session_token", name=spread.record["name"], token_path=str(path), token_ttl=120)
    assert run.code == 0, run.output
    claims = json.loads(base64.urlsafe_b64decode(path.read_text().split(".")[1] + "=="))
    assert claims["exp"] - claims["iat"] == 120


def test_containers_on_the_network_of_agents_have_sshds_at_ports_of_their_pool(sessions: Sessions) -> None:
    request = {**TWO, "designated_agents": BOTH, "network_driver": "host", "host_port_pool": "31500-31510"}
    session = sessions.start("-e", "agent_allow_host_network=true", **request)
    for kernel in session.kernels:
        assert run_on(kernel["agent"], "ss -Hltn '( sport >= :31500 and sport <= :31510 )'") != ""


def test_logs_are_followed_to_the_end_which_comes_with_the_grace(agent1_sessions: Sessions, tmp_path: Path) -> None:
    sessions = agent1_sessions
    started = sessions.start(command=STUBBORN, stop_grace=3, **SMALL)
    line = command("session_logs", tmp_path, {"session_name": sessions.name, "session_logs_follow": True})
    with launch(line) as following:
        assert FOLLOW in await_task(following, FOLLOW)
        assert following.stdout
        assert any(re.search(r"\b\d{10}\b", printed) for printed in following.stdout)
        ended = sessions.terminate()
        followed, _nothing = following.communicate(timeout=TIMEOUT)
    assert (ended.code, ended.record["grace_exceeded"]) == (0, True), ended.output
    assert "asked to end" in followed
    # What the agent has kept says how long it went on; what is late is asked a second time.
    kept = run_on("agent1", f"zcat {OUTPUT}/{started.record['id']}/main1@*@.gz").split("asked to end", 1)[1]
    times = [int(moment) for moment in re.findall(r"\b\d{10}\b", kept)]
    assert 1 <= max(times) - min(times) <= 15
    # The history forgets it after the days that were asked for, and not before.
    path = QUEUE / f"{started.record['id']}.json"
    entry = json.loads(path.read_text())
    path.write_text(json.dumps({**entry, "updated_at": entry["updated_at"] - 3 * DAY}))
    for days, known in ((4, True), (2, False)):
        assert sessions.run("schedule_sessions", history_days=days).code == 0
        assert path.exists() == known


def test_an_app_of_a_program_that_the_image_lacks_is_refused(agent1_sessions: Sessions) -> None:
    app = {"name": "own", "port": 8000, "command": "exec no-such-program", "program": "no-such-program"}
    refused = agent1_sessions.create(**SMALL, apps=["terminal", app])
    assert refused.code == 2, refused.output
    assert "session_apps: own needs the program no-such-program, which main1 does not have" in refused.text
    assert "terminal needs" not in refused.text
    assert agent_state() == agent1_sessions.initial_state


def test_no_agent_of_another_architecture_is_used(agent1_sessions: Sessions) -> None:
    refused = agent1_sessions.create(**SMALL, image=BUSYBOX, architecture="s390x")
    assert refused.code != 0
    assert "session_architecture: no agent is 's390x'; known are " in refused.text
    assert run_on("agent1", f"docker ps --all --quiet --filter name=backendai-{agent1_sessions.name}-") == ""
