"""Inside containers: the environment, the user, apps, commands, signals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.containers import LOGIN, parse_environment, wait_for_exit
from tests.integration.internals import SESSIONS
from tests.integration.laboratory import (
    BUSYBOX,
    PYTHON,
    TIMEOUT,
    agent_state,
    command,
    launch,
    run_in,
    run_on,
    run_on_all,
    stored_sessions,
    unwrapped,
)
from tests.integration.programs import source
from tests.integration.session_requests import SMALL, THREE, TWO
from tests.integration.sessions import Sessions, StartedSession, started_session
from tests.integration.waiting import wait_until

pytestmark = pytest.mark.containers

WITH_ENTRYPOINT = "lab/entrypoint:1"

#: Its last command fails, which is no error: only ``exit`` reports a failure.
BOOTSTRAP = """
echo "bootstrapping $(id -un) in $PWD"
trap 'echo cleaned up' EXIT
export IFS=,
export EVERYWHERE="it's \\"here\\"" EMPTY=
case $BACKENDAI_CLUSTER_ROLE in
    late) export BACKENDAI_DIST_MASTER_PORT=32000 ;;
    late-addr) export MASTER_ADDR=elsewhere ;;
esac
[ "$BACKENDAI_CLUSTER_ROLE" = none ] && export NEVER=1
"""


def tf_config(base: int, rank: int) -> str:
    """Return the ``TF_CONFIG`` derived for the container of that rank."""
    hosts = ["main1", "user1", "image1", "late1"]
    workers = [f"{host}:{base + position}" for position, host in enumerate(hosts)]
    return json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}})


TABLE: dict[str, tuple[str, str, str, str]] = {
    # container: MASTER_PORT and TF_CONFIG in docker exec, then everywhere else
    "main1": ("29500", tf_config(29500, 0), "29500", tf_config(29500, 0)),
    "user1": ("1234", tf_config(29500, 1), "1234", tf_config(29500, 1)),
    "image1": ("31000", '{"image": 1}', "31000", '{"image": 1}'),
    "late1": ("29500", tf_config(29500, 3), "32000", tf_config(32000, 3)),
}
REQUEST = {
    **SMALL,
    "cluster_mode": "multi-node",
    "agent_selection": "dispersed",
    "roles": {
        "main": {},
        "user": {"env": {"MASTER_PORT": 1234}},
        "image": {"image": WITH_ENTRYPOINT},
        "late": {"image": BUSYBOX},
    },
    "bootstrap_script": BOOTSTRAP,
    "apps": [{"name": "seen", "port": 8888, "command": "env > /tmp/app; exec sleep 100000"}],
    "command": "env > /tmp/command; exec sleep 100000",
    "command_scope": "all",
}


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedSession]:
    """Four roles on three agents, each with its own source of environment variables; all run a command."""
    with started_session(tmp_path_factory.mktemp("four"), **REQUEST) as session:
        yield session


@pytest.mark.parametrize("hostname", TABLE)
def test_environment_is_the_same_in_exec_ssh_apps_and_command(four: StartedSession, hostname: str) -> None:
    main = four.kernels[0]
    kernel = next(kernel for kernel in four.kernels if kernel["hostname"] == hostname)
    at_create, later = TABLE[hostname][:2], TABLE[hostname][2:]
    environment = parse_environment(run_in(kernel, "env"))
    assert (environment["MASTER_PORT"], environment["TF_CONFIG"]) == at_create
    places = {
        "ssh": run_in(main, "ssh", hostname, "env"),
        "a login": run_in(main, "sh", "-c", f"echo env | ssh -T {hostname}"),
        "the command": run_in(kernel, "cat", "/tmp/command"),
    }
    if hostname == "main1":
        places["an app"] = run_in(kernel, "cat", "/tmp/app")
    for place, text in places.items():
        environment = parse_environment(text)
        values = (
            environment["MASTER_PORT"],
            environment["TF_CONFIG"],
            environment["MASTER_ADDR"],
            environment["EVERYWHERE"],
            environment["EMPTY"],
        )
        assert (place, *values) == (place, *later, "main1", 'it\'s "here"', "")
        assert (place, environment["USER"], environment["HOME"]) == (place, "work", "/home/work")
        assert "NEVER" not in environment


def test_bootstrap_script_is_sourced_as_work_in_its_home(four: StartedSession) -> None:
    for kernel in four.kernels:
        log = run_on(kernel["agent"], f"docker logs {kernel['container']}")
        assert "bootstrapping work in /home/work" in log
        assert "cleaned up" in log


def test_single_container_has_no_derived_variables(agent1_sessions: Sessions) -> None:
    # A number of nine digits, and a group that no image and no host has.
    run = agent1_sessions.create(**SMALL, bootstrap_script="export MINE=1", uid=123_456_789, gid=2345)
    assert run.code == 0, run.output
    (main,) = run.record["kernels"]
    assert (run.record["cluster_mode"], run.record["network"], main["address"]) == ("single-node", None, None)
    at_create, later = parse_environment(run_in(main, "env")), parse_environment(run_in(main, "ssh", "main1", "env"))
    session = {key: value for key, value in at_create.items() if key.startswith("BACKENDAI_")}
    assert len(session) == 15
    assert session["BACKENDAI_CLUSTER_SIZE"] == "1"
    assert session.items() <= later.items()
    assert later["MINE"] == "1"
    derived = {"MASTER_ADDR", "MASTER_PORT", "TF_CONFIG", "NCCL_SOCKET_IFNAME", "OMP_NUM_THREADS"}
    assert not derived & {*at_create, *later}
    look = "id -u; id -g; id -un; id -gn; stat -c %u:%g /home/work"
    expected = ["123456789", "2345", "work", "work", "123456789:2345"]
    assert run_in(main, "sh", "-c", look).split() == expected
    assert run_in(main, *LOGIN, "main1", look).split() == expected


def test_failed_bootstrap_script_is_reported_and_leaves_nothing(agent1_sessions: Sessions) -> None:
    bootstrap = r"printf '\033]0;owned\007\033[2Jno licence\n'; exit 7"
    lines = [
        r": \x1b]0;owned\x07\x1b[2Jno licence",
        "backendai: the session's environment could not be created: exit code 7.",
    ]
    run = agent1_sessions.create(**SMALL, cluster_size=2, bootstrap_script=bootstrap)
    assert run.code != 0
    assert "ended while it started" in run.text
    assert [line for line in lines if line not in run.text] == []
    assert "\x1b]" not in run.output
    assert run.record["status"] == "ERROR"
    # What a user's program prints may be secret.
    assert [line for line in lines if line in json.dumps(run.record)] == []
    assert agent_state() == agent1_sessions.initial_state


def test_session_terminates_while_its_bootstrap_script_hangs(sessions: Sessions, tmp_path: Path) -> None:
    extra_vars = {"session_name": sessions.name, "session_image": PYTHON, "session_bootstrap_script": "sleep 500"}
    with launch(command("create_session", tmp_path, extra_vars)) as run:
        started_containers = f"docker ps --quiet --filter name=backendai-{sessions.name}-main1"
        wait_until(lambda: "".join(run_on_all(started_containers)))
        ended = sessions.terminate()
        assert (ended.code, ended.record["status"]) == (0, "TERMINATED"), ended.output
        output, _nothing = run.communicate(timeout=TIMEOUT)
    assert run.returncode != 0
    assert "ended while it started" in unwrapped(output)
    assert agent_state() == sessions.initial_state


def test_apps_run_in_main1_restart_log_and_stop_on_sigterm(agent1_sessions: Sessions) -> None:
    trap = "trap 'echo stopped; exit 0' TERM; while :; do sleep 0.1; done"
    apps = [
        {"name": "web", "port": 8888, "command": "echo serving; exec python3 -m http.server 8888"},
        {"name": "own", "port": 9999, "protocol": "tcp"},
        {"name": "slow", "port": 7777, "command": trap},
    ]
    run = agent1_sessions.create(**SMALL, cluster_size=2, apps=apps)
    assert run.code == 0, run.output
    assert run.record["apps"] == [
        {"name": "web", "port": 8888, "protocol": "http"},
        {"name": "own", "port": 9999, "protocol": "tcp"},
        {"name": "slow", "port": 7777, "protocol": "http"},
    ]
    main, sub = run.record["kernels"]

    def serves() -> bool:
        page = run_in(sub, "python3", "-c", source("fetch"), "http://main1:8888/", check=False)
        return "Directory listing" in page

    wait_until(serves)
    assert (
        parse_environment(run_in(main, "env"))["BACKENDAI_SERVICE_PORTS"] == "web:http:8888,own:tcp:9999,slow:http:7777"
    )
    assert parse_environment(run_in(sub, "env"))["BACKENDAI_SERVICE_PORTS"] == ""
    run_in(main, "pkill", "-f", "^python3 -m http.server")

    def log() -> str:
        return run_in(main, "cat", "/var/log/backendai/web.log")

    wait_until(lambda: log().count("serving") == 2)
    wait_until(serves)
    assert "backendai: web ended with exit code 143 and starts again in 1 s." in log()
    assert run_in(sub, "ls", "/var/log/backendai").split() == []

    run_on(main["agent"], f"docker stop --time 120 {main['container']}")
    assert wait_for_exit(main) == 143
    run_on(main["agent"], f"docker cp {main['container']}:/var/log/backendai/slow.log - | tar -xO > /tmp/slow.log")
    assert "stopped" in run_on(main["agent"], "cat /tmp/slow.log; rm /tmp/slow.log")


def test_command_scope_all_ends_with_the_exit_code_of_main1(sessions: Sessions) -> None:
    script = """
        case $BACKENDAI_CLUSTER_HOST in
            main1) until [ -e /tmp/end ]; do sleep 0.2; done; exit 5 ;;
            *) echo "done by $BACKENDAI_CLUSTER_HOST" ;;
        esac
    """
    request = {**THREE, "command": script, "command_scope": "all", "failure_policy": "terminate"}
    run = sessions.create(**request)
    assert run.code == 0, run.output
    main, *subs = run.record["kernels"]
    for sub in subs:
        assert wait_for_exit(sub) == 0
        assert run_on(sub["agent"], f"docker logs {sub['container']}").strip() == f"done by {sub['hostname']}"
    assert sessions.list_by_name()[sessions.name]["status"] == "RUNNING"
    rerun = sessions.create(**request)
    assert (rerun.code, rerun.changed) == (0, 0), rerun.output
    run_in(main, "touch", "/tmp/end")
    assert wait_for_exit(main) == 5
    record = sessions.list_by_name()[sessions.name]
    assert (record["status"], record["exit_code"]) == ("TERMINATED", 5)
    assert sessions.run("schedule_sessions").code == 0
    assert agent_state() == sessions.initial_state


def test_command_scope_all_runs_nowhere_if_one_agent_fails(sessions: Sessions, tmp_path: Path) -> None:
    request = {**TWO, "designated_agents": ["agent1", "agent2"], "name": sessions.name, "image": PYTHON}
    request |= {"command": "sleep 1000", "command_scope": "all"}
    extra_vars = {f"session_{key}": value for key, value in request.items()}

    def plans() -> list[dict[str, Any]]:
        stored = [session["plan"] for sessions_there in stored_sessions().values() for session in sessions_there]
        return [plan for plan in stored if plan["name"] == sessions.name]

    with launch(command("create_session", tmp_path, extra_vars)) as run:
        wait_until(lambda: len(plans()) == 2)
        plan = plans()[0]
        sub = plan["kernels"][1]
        # The file that releases sub1 cannot be written.
        run_on(sub["agent"], f"ln -s /nowhere/go {SESSIONS}/{plan['id']}/sub1/go")
        output, _nothing = run.communicate(timeout=TIMEOUT)
    assert run.returncode != 0
    assert f"the session '{sessions.name}' was not created: " in unwrapped(output)
    assert agent_state() == sessions.initial_state
