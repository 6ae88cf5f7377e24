"""What only has the labels of a session is never taken for its own, and what a killed run has left is."""

from __future__ import annotations

import json
import random
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.containers import parse_environment
from tests.integration.internals import AGENT_STATE, CONTAINER_IDS, PROGRAM, SESSIONS
from tests.integration.interruptions import kill_run
from tests.integration.laboratory import BUSYBOX, PYTHON, TIMEOUT, command, launch, run_in, run_on
from tests.integration.session_requests import SMALL
from tests.integration.sessions import Sessions

AGENT = "agent1"
SAVED, BUILT = "test-saved:1", "test-built:1"
OWN, PROBE = "test-own", "test-probe"
#: Kills what creates the next container of a session, at about the time when its id is recorded.
KILL = f"""
events() {{ exec timeout 60 docker events --filter event=create --filter label=ai.backend.session-id "$@" 2>&-; }}
read -r id < <(events --format '{{{{.ID}}}}') && kill -KILL $(pgrep -f '{PROGRAM}') && echo "$id"
"""

pytestmark = pytest.mark.faults


@pytest.fixture
def images(agent1_sessions: Sessions) -> Iterator[None]:
    """Remove the images of the test, and what runs from them, before the agents are looked at."""
    assert agent1_sessions.name
    yield
    run_on(AGENT, f"docker rm -f {OWN} {PROBE}; docker rmi -f {BUILT} {SAVED}", check=False)


def states(*containers: str) -> list[str]:
    shape = "{{.State.Running}}"
    return run_on(AGENT, f"docker inspect --format '{shape}' {' '.join(containers)}").split()


def agent_row(sessions: Sessions, path: Path) -> tuple[dict[str, Any], str]:
    """Return agent1 in the list of agents, and all that was printed."""
    listed = sessions.run("list_agents", "-e", f"agent_list_path={path}")
    assert listed.code == 0, listed.output
    (row,) = (each for each in json.loads(path.read_text())["agents"] if each["name"] == AGENT)
    return row, listed.text


@pytest.mark.usefixtures("images")
def test_what_runs_from_a_saved_session_is_neither_the_session_nor_ended_with_it(
    agent1_sessions: Sessions, tmp_path: Path
) -> None:
    sessions = agent1_sessions
    created = sessions.create(image=BUSYBOX, command="sleep 900", **SMALL)
    assert created.code == 0, created.output
    (main,) = created.record["kernels"]
    run_on(AGENT, f"docker commit {main['container']} {SAVED}")
    run_on(AGENT, f"printf 'FROM {SAVED}\\nCMD [\"true\"]\\n' | docker build -q -t {BUILT} -")
    quiet = "--network none --entrypoint /bin/sleep"
    run_on(AGENT, f"docker run --name {PROBE} --network none --entrypoint /bin/true {SAVED}")
    run_on(AGENT, f"docker run --rm --network none --entrypoint /bin/true {BUILT}")
    assert sessions.run("schedule_sessions").code == 0
    assert sessions.list_by_name()[sessions.name]["status"] == "RUNNING"

    before, _text = agent_row(sessions, tmp_path / "before.json")
    run_on(AGENT, f"docker run -d --name {OWN} --cpus 2 --memory 128m {quiet} {BUILT} 900")
    after, text = agent_row(sessions, tmp_path / "after.json")
    assert f"agent1: containers {OWN}, {PROBE}: of no session here" in text
    assert f"docker rm -f {OWN} {PROBE}" in text
    assert {slot: before["free"][slot] - after["free"][slot] for slot in ("cpu", "mem")} == {"cpu": 2, "mem": 128 << 20}

    assert sessions.terminate().code == 0
    assert states(OWN, PROBE) == ["true", "false"]
    assert run_on(AGENT, f"docker ps -aq --filter name=^{main['container']}$") == ""


@pytest.mark.usefixtures("images")
def test_a_session_from_a_saved_one_derives_its_variables_anew_and_has_no_key_of_it(agent1_sessions: Sessions) -> None:
    sessions = agent1_sessions
    first = sessions.create(image=PYTHON, cluster_size=2, **SMALL)
    assert first.code == 0, first.output
    main = first.record["kernels"][0]
    public = run_in(main, "cat", "/home/work/.ssh/id_ed25519.pub").split()[1]
    private = run_in(main, "cat", "/home/work/.ssh/id_ed25519").splitlines()[-2]
    run_on(AGENT, f"docker commit {main['container']} {SAVED}")
    assert sessions.terminate().code == 0
    search = f"docker export $(docker create --name {PROBE} {SAVED}) | tar -xO --wildcards '*' | grep -ac"
    for text in (public, private):
        assert run_on(AGENT, f"{search} -e {shlex.quote(text)}; docker rm -f {PROBE}", check=False).split()[0] == "0"

    request = {"cluster_size": 3, "resources": {"cpu": 2, "mem": "128m"}}
    second = sessions.create(name=f"{sessions.name}-2", image=SAVED, **request)
    assert second.code == 0, second.output
    _main, _sub, last = second.record["kernels"]
    environment = parse_environment(run_in(last, "sh", "-lc", "env"))
    config = json.loads(environment["TF_CONFIG"])
    assert (len(config["cluster"]["worker"]), config["task"]["index"]) == (3, 2)
    assert environment["OMP_NUM_THREADS"] == "2"
    assert environment["OMPI_MCA_btl_tcp_if_include"] == second.record["network"]["subnet"]
    assert run_in(last, "ssh", "sub1", "hostname").strip() == "sub1"
    argv = run_on(AGENT, f"docker inspect --format '{{{{json .Args}}}}' {last['container']}")
    assert "/opt/backendai/bin/entrypoint" not in json.loads(argv)

    third = sessions.create(name=f"{sessions.name}-3", image=SAVED, **SMALL)
    assert third.code == 0, third.output
    assert "TF_CONFIG" not in parse_environment(run_in(third.record["kernels"][0], "env"))


def test_a_device_of_a_session_whose_folder_was_moved_away_is_given_to_nobody(
    agent1_sessions: Sessions, tmp_path: Path
) -> None:
    sessions = agent1_sessions
    resources = {"cpu": 1, "mem": "128m", "lab.device": 2}
    created = sessions.create(image=BUSYBOX, resources=resources)
    assert created.code == 0, created.output
    (main,) = created.record["kernels"]
    folder, away = f"{SESSIONS}/{created.record['id']}", f"{AGENT_STATE}/moved-away"
    run_on(AGENT, f"mv {folder} {away}")
    try:
        row, text = agent_row(sessions, tmp_path / "agents.json")
        assert row["free"]["lab.device"] == 0
        assert f"docker rm -f {main['container']}" in text
        waits = sessions.create(name=f"{sessions.name}-2", image=BUSYBOX, resources={**resources, "lab.device": 1})
        assert waits.record["status"] == "PENDING", waits.output
        assert states(main["container"]) == ["true"]
    finally:
        left = f"{AGENT_STATE}/ports/*@{created.record['id']} {AGENT_STATE}/homes/sessions/{created.record['id']}"
        run_on(AGENT, f"docker rm -f {main['container']}; rm -rf {away} {left}; rmdir {AGENT_STATE}/ports", check=False)


def test_a_container_under_the_name_of_one_that_is_gone_is_never_adopted(agent1_sessions: Sessions) -> None:
    sessions = agent1_sessions
    created = sessions.create(image=BUSYBOX, **SMALL)
    (main,) = created.record["kernels"]
    name = main["container"]
    try:
        run_on(AGENT, f"docker commit {name} {SAVED}; docker rm -f {name}")
        run_on(AGENT, f"docker run -d --name {name} --network none --entrypoint /bin/sleep {SAVED} 900")
        assert sessions.list_by_name()[sessions.name]["status"] == "DEGRADED"
        refused = sessions.run("repair_session", name=sessions.name)
        assert refused.code != 0
        assert f"remove it there (docker rm -f {name}), or choose another session_name" in refused.text
        assert states(name) == ["true"]
        run_on(AGENT, f"docker rm -f {name}")
        repaired = sessions.run("repair_session", name=sessions.name)
        assert (repaired.code, repaired.record["status"]) == (0, "RUNNING"), repaired.output
    finally:
        run_on(AGENT, f"docker rmi -f {SAVED}", check=False)


@pytest.mark.soak
def test_runs_that_are_killed_between_creation_and_record_leave_nothing_but_what_the_next_one_takes_over(
    agent1_sessions: Sessions, tmp_path: Path, rounds: Iterator[random.Random]
) -> None:
    sessions = agent1_sessions
    request = {"image": BUSYBOX, "designated_agents": [AGENT], **SMALL}
    variables = {"session_name": sessions.name, **{f"session_{name}": value for name, value in request.items()}}
    listing = "docker ps -a --no-trunc --filter label=ai.backend.session-id --format '{{.ID}} {{.Names}}'"
    name = f"backendai-{sessions.name}-main1"
    for number, _rng in enumerate(rounds):
        with launch(command("create_session", tmp_path, variables)) as run:
            killed = run_on(AGENT, KILL).strip()
            kill_run(run)
            run.communicate(timeout=TIMEOUT)
        left = [line.split()[1] for line in run_on(AGENT, listing).splitlines()]
        assert (bool(killed), left) == (True, [name]), f"kill {number}: {left}"
        created = sessions.create(**request)
        assert (created.code, created.record["status"]) == (0, "RUNNING"), created.output
        ((container, there),) = (line.split() for line in run_on(AGENT, listing).splitlines())
        assert there == name
        assert run_on(AGENT, f"cat {SESSIONS}/{created.record['id']}/{CONTAINER_IDS}/main1") == container
        _row, text = agent_row(sessions, tmp_path / "agents.json")
        assert "of no session here" not in text
        assert sessions.terminate().code == 0
