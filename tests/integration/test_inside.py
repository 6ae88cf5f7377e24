"""What is inside of containers: the environment wherever one looks, the user, apps, commands, signals."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.integration.conftest import Sessions
from tests.integration.laboratory import (
    AGENTS,
    BUSYBOX,
    PYTHON,
    TIMEOUT,
    Run,
    at_once,
    command,
    held,
    inside,
    launch,
    on,
    remains,
)

pytestmark = pytest.mark.long

T = TypeVar("T")

SMALL = {"resources": {"cpu": 1, "mem": "128m"}}
WITH_ENTRYPOINT = "lab/entrypoint:1"

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
"""Its last command fails: only an ``exit`` says that a script has failed."""


def tf_config(base: int, rank: int) -> str:
    """Return ``TF_CONFIG`` as it is derived for the container of that rank."""
    hosts = ["main1", "user1", "image1", "late1"]
    workers = [f"{host}:{base + position}" for position, host in enumerate(hosts)]
    return json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}})


TABLE: dict[str, tuple[str, str, str, str]] = {
    # container: MASTER_PORT and TF_CONFIG as docker exec sees them, then as everything else does
    "main1": ("29500", tf_config(29500, 0), "29500", tf_config(29500, 0)),
    "user1": ("1234", tf_config(29500, 1), "1234", tf_config(29500, 1)),
    "image1": ("31000", '{"image": 1}', "31000", '{"image": 1}'),
    "late1": ("29500", tf_config(29500, 3), "32000", tf_config(32000, 3)),
}


def variables(text: str) -> dict[str, str]:
    """Return what ``env`` printed."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Four roles over three agents, each with another say about its environment; all run a command."""
    made = Sessions(tmp_path_factory.mktemp("four"))
    run = made.create(
        **SMALL,
        cluster_mode="multi-node",
        agent_selection="dispersed",
        roles={
            "main": {},
            "user": {"env": {"MASTER_PORT": 1234}},
            "image": {"image": WITH_ENTRYPOINT},
            "late": {"image": BUSYBOX},
        },
        bootstrap_script=BOOTSTRAP,
        apps=[{"name": "seen", "port": 8888, "command": "env > /tmp/app; exec sleep 100000"}],
        command="env > /tmp/command; exec sleep 100000",
        command_scope="all",
    )
    assert run.code == 0, run.output
    yield run
    assert made.terminate().code == 0


def kernel_of(run: Run, hostname: str) -> dict[str, Any]:
    """Return one container of a session's record."""
    return next(kernel for kernel in run.record["kernels"] if kernel["hostname"] == hostname)


@pytest.mark.parametrize("hostname", TABLE)
def test_the_environment_is_the_same_wherever_one_looks(four: Run, hostname: str) -> None:
    kernel, main = kernel_of(four, hostname), kernel_of(four, "main1")
    at_create, later = TABLE[hostname][:2], TABLE[hostname][2:]
    seen = variables(inside(kernel, "env"))
    assert (seen["MASTER_PORT"], seen["TF_CONFIG"]) == at_create
    places = {
        "ssh": inside(main, "ssh", hostname, "env"),
        "a login": inside(main, "sh", "-c", f"echo env | ssh -T {hostname}"),
        "the command": inside(kernel, "cat", "/tmp/command"),
    }
    if hostname == "main1":
        places["an app"] = inside(kernel, "cat", "/tmp/app")
    for place, text in places.items():
        seen = variables(text)
        told = (seen["MASTER_PORT"], seen["TF_CONFIG"], seen["MASTER_ADDR"], seen["EVERYWHERE"], seen["EMPTY"])
        assert (place, *told) == (place, *later, "main1", 'it\'s "here"', "")
        assert (place, seen["USER"], seen["HOME"]) == (place, "work", "/home/work")
        assert "NEVER" not in seen


def test_a_bootstrap_script_is_sourced_as_work_in_its_home(four: Run) -> None:
    for kernel in four.record["kernels"]:
        log = on(kernel["agent"], f"docker logs {kernel['container']}")
        assert "bootstrapping work in /home/work" in log
        assert "cleaned up" in log


def test_a_session_of_one_has_the_same_environment_too_and_nothing_derived(near: Sessions) -> None:
    run = near.create(**SMALL, bootstrap_script="export MINE=1", uid=1234, gid=2345)
    assert run.code == 0, run.output
    (main,) = run.record["kernels"]
    assert (run.record["cluster_mode"], run.record["network"], main["address"]) == ("single-node", None, None)
    at_create, later = variables(inside(main, "env")), variables(inside(main, "ssh", "main1", "env"))
    session = {key: value for key, value in at_create.items() if key.startswith("BACKENDAI_")}
    assert len(session) == 14
    assert session["BACKENDAI_CLUSTER_SIZE"] == "1"
    assert session.items() <= later.items()
    assert later["MINE"] == "1"
    assert not {"MASTER_ADDR", "MASTER_PORT", "TF_CONFIG", "NCCL_SOCKET_IFNAME"} & {*at_create, *later}
    assert inside(main, "sh", "-c", "id -u; id -g; id -un; stat -c %u:%g /home/work").split() == [
        "1234",
        "2345",
        "work",
        "1234:2345",
    ]


@pytest.mark.parametrize(
    ("bootstrap", "said"),
    [
        (
            "echo no licence; exit 7",
            "no licence / backendai: the session's environment could not be made: exit code 7.",
        ),
        ("export BACKENDAI_DIST_MASTER_PORT=http", "BACKENDAI_DIST_MASTER_PORT: 'http' is not a port."),
        ("trap - EXIT; exit 0", "backendai: session_bootstrap_script ended before the session's environment was made."),
    ],
)
def test_a_bootstrap_script_that_fails_is_told_and_leaves_nothing(near: Sessions, bootstrap: str, said: str) -> None:
    before = remains()
    run = near.create(**SMALL, cluster_size=2, bootstrap_script=bootstrap)
    assert run.code != 0
    assert "ended while it started; its log ends with: " in run.said
    assert said in run.said
    assert run.record["status"] == "ERROR"
    assert remains() == before


def test_a_session_can_be_ended_while_a_bootstrap_script_hangs(sessions: Sessions, tmp_path: Path) -> None:
    before = remains()
    asked = {"session_name": sessions.name, "session_image": PYTHON, "session_bootstrap_script": "sleep 500"}
    with launch(command("create_session", tmp_path, asked)) as run:
        started = f"docker ps --quiet --filter name=backendai-{sessions.name}-main1"
        assert until(lambda: "".join(at_once(*[partial(on, agent, started) for agent in AGENTS])) != "", True)
        ended = sessions.terminate()
        assert (ended.code, ended.record["status"]) == (0, "TERMINATED"), ended.output
        output, _nothing = run.communicate(timeout=TIMEOUT)
    assert run.returncode != 0
    assert "ended while it started" in " ".join(output.split())
    assert remains() == before


def test_apps_are_started_again_in_main1_alone_keep_a_log_and_end_before_it_is_stopped(near: Sessions) -> None:
    trap = "trap 'echo stopped; exit 0' TERM; while :; do sleep 0.1; done"
    apps = [
        {"name": "web", "port": 8888, "command": "echo serving; exec python3 -m http.server 8888"},
        {"name": "own", "port": 9999, "protocol": "tcp"},
        {"name": "slow", "port": 7777, "command": trap},
    ]
    run = near.create(**SMALL, cluster_size=2, apps=apps)
    assert run.code == 0, run.output
    assert run.record["apps"] == [
        {"name": "web", "port": 8888, "protocol": "http"},
        {"name": "own", "port": 9999, "protocol": "tcp"},
        {"name": "slow", "port": 7777, "protocol": "http"},
    ]
    main, sub = run.record["kernels"]
    fetch = "import urllib.request as r; print(r.urlopen('http://main1:8888/').status)"
    served = until(lambda: inside(sub, "python3", "-c", fetch, check=False).strip(), "200")
    assert served == "200"
    assert variables(inside(main, "env"))["BACKENDAI_SERVICE_PORTS"] == "web:http:8888,own:tcp:9999,slow:http:7777"
    assert variables(inside(sub, "env"))["BACKENDAI_SERVICE_PORTS"] == ""
    inside(main, "pkill", "-f", "^python3 -m http.server")
    assert until(lambda: inside(sub, "python3", "-c", fetch, check=False).strip(), "200") == "200"
    log = inside(main, "cat", "/var/log/backendai/web.log")
    assert log.count("serving") == 2
    assert "backendai: web ended with exit code 143 and starts again in 1 s." in log
    assert inside(sub, "ls", "/var/log/backendai").split() == []

    on(main["agent"], f"docker stop --time 20 {main['container']}")
    assert on(main["agent"], f"docker inspect --format '{{{{.State.ExitCode}}}}' {main['container']}").strip() == "143"
    on(main["agent"], f"docker cp {main['container']}:/var/log/backendai/slow.log - | tar -xO > /tmp/slow.log")
    assert "stopped" in on(main["agent"], "cat /tmp/slow.log; rm /tmp/slow.log")


def until(look: Callable[[], T], wanted: T, seconds: float = 30) -> T:
    """Look again until it is as wanted, that long at most, and return what was seen last."""
    last = time.monotonic() + seconds
    while (seen := look()) != wanted and time.monotonic() < last:
        time.sleep(0.5)
    return seen


def test_a_command_for_all_runs_in_every_container_once_and_main1_has_the_last_word(sessions: Sessions) -> None:
    script = """
        case $BACKENDAI_CLUSTER_HOST in
            main1) until [ -e /tmp/end ]; do sleep 0.2; done; exit 5 ;;
            *) echo "done by $BACKENDAI_CLUSTER_HOST" ;;
        esac
    """
    asked = {"cluster_mode": "multi-node", "cluster_size": 3, "agent_selection": "dispersed", **SMALL}
    asked |= {"command": script, "command_scope": "all", "failure_policy": "terminate"}
    run = sessions.create(**asked)
    assert run.code == 0, run.output
    main, *subs = run.record["kernels"]
    for sub in subs:
        assert on(sub["agent"], f"docker wait {sub['container']}").strip() == "0"
        assert on(sub["agent"], f"docker logs {sub['container']}").strip() == f"done by {sub['hostname']}"
    assert sessions.listed()[sessions.name]["status"] == "RUNNING"
    again = sessions.create(**asked)
    assert (again.code, again.changed) == (0, 0), again.output
    inside(main, "touch", "/tmp/end")
    assert on(main["agent"], f"docker wait {main['container']}").strip() == "5"
    assert sessions.listed() == {}
    record = sessions.listed(history=True)[sessions.name]
    assert (record["status"], record["exit_code"]) == ("TERMINATED", 5)


def test_a_command_for_all_that_one_agent_cannot_start_runs_nowhere(sessions: Sessions, tmp_path: Path) -> None:
    before = remains()
    asked = {"cluster_mode": "multi-node", "cluster_size": 2, "designated_agents": ["agent1", "agent2"], **SMALL}
    asked |= {"agent_selection": "dispersed", "name": sessions.name, "image": PYTHON}
    asked |= {"command": "sleep 1000", "command_scope": "all"}
    given = {f"session_{key}": value for key, value in asked.items()}

    def plans() -> list[dict[str, Any]]:
        return [one["plan"] for stored in held().values() for one in stored if one["plan"]["name"] == sessions.name]

    with launch(command("create_session", tmp_path, given)) as run:
        assert until(lambda: len(plans()), 2) == 2
        sub = plans()[0]["kernels"][1]
        # The file that lets sub1 go on cannot be written.
        folder = f"/var/lib/backendai/sessions/{plans()[0]['id']}/sub1"
        on(sub["agent"], f"ln -s /nowhere/go {folder}/go")
        output, _nothing = run.communicate(timeout=TIMEOUT)
    assert run.returncode != 0
    assert f"the session '{sessions.name}' was not created: " in " ".join(output.split())
    assert remains() == before
