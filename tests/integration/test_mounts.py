"""Folders of agents in containers: which ones an agent mounts, and what a lost file system does to other sessions."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.integration.internals import RECONCILE_AGENT, RESTORE
from tests.integration.laboratory import AGENTS, agent_state, in_parallel, run_in, run_on, run_on_all
from tests.integration.programs import run_line
from tests.integration.reboots import takes_sessions
from tests.integration.session_requests import SMALL
from tests.integration.sessions import Sessions
from tests.integration.waiting import wait_until

pytestmark = pytest.mark.faults

AGENT = AGENTS[0]
LOST, SHARED, LATE = "/srv/lost", "/srv/shared", "/srv/late"
ROOTS = ("-e", json.dumps({"agent_mount_roots": [SHARED]}))
SILENT = (
    f"session_mounts: {LOST} did not answer within 3 seconds on {AGENT}: repair or unmount its file system, or mount"
    " another folder."
)

#: The processes that look at a lost file system: killed, and kept by it.
# Processes end meanwhile.
LOOKING = r"grep -s -h -A2 '^Name:.python3' /proc/[0-9]*/status | grep -c '^State:.D' || true"


def request_of(source: str, **changes: Any) -> dict[str, Any]:
    mounts = [{"source": source, "target": "/data"}]
    return {**SMALL, "designated_agents": [AGENT], "mounts": mounts, **changes}


@pytest.fixture
def lost_share() -> Iterator[None]:
    """A file system that never answers, mounted on an agent."""
    run_on(AGENT, f"mkdir -p {LOST} && systemd-run --quiet --unit=lost-share {run_line('silent_mount', LOST)}")
    try:
        run_on(AGENT, "timeout 120 sh -c 'until journalctl -u lost-share -o cat | grep -q mounted; do sleep 0.1; done'")
        yield
    finally:
        run_on(AGENT, f"systemctl stop lost-share; umount --lazy {LOST}; rmdir {LOST}", check=False)
        assert run_on(AGENT, f"findmnt {LOST}", check=False) == ""


@pytest.fixture
def shared() -> Iterator[None]:
    """Folders on all agents, with links that lead out of them."""
    links = f"ln -s /etc {SHARED}/out; ln -s team {SHARED}/team-a; ln -s {SHARED} /srv/other"
    run_on_all(f"mkdir -p {SHARED}/team; touch {SHARED}/team/file; {links}")
    yield
    run_on_all(f"rm -r {SHARED} /srv/other")


@pytest.mark.usefixtures("lost_share")
def test_lost_file_system_stops_only_the_session_that_names_it(sessions: Sessions) -> None:
    names = [f"{sessions.name}-{name}" for name in ("a", "b", "c", "d")]
    lost = [partial(sessions.create, name=name, **request_of(LOST)) for name in names[:2]]
    good = partial(sessions.create, name=names[2], **SMALL, designated_agents=[AGENT])
    *refused, created = in_parallel(*lost, good)
    for run in refused:
        assert (run.code, run.text.count(SILENT) > 0) == (2, True), run.output
        assert (run.record["status"], run.record["error"]) == ("ERROR", SILENT)
        assert "Traceback" not in run.output
    assert (created.code, created.record["status"]) == (0, "RUNNING"), created.output
    # The file system keeps one process, and the next requests neither wait for it nor add another.
    assert run_on(AGENT, LOOKING).split() == ["1"]
    began = time.monotonic()
    ended, again = sessions.terminate(name=names[2]), lost[0]()
    assert (ended.code, ended.record["status"]) == (0, "TERMINATED"), ended.output
    assert SILENT in again.text
    assert time.monotonic() - began < 300
    assert run_on(AGENT, LOOKING).split() == ["1"]
    assert agent_state() == sessions.initial_state


@pytest.mark.usefixtures("lost_share")
def test_session_starts_once_the_file_system_answers_again(sessions: Sessions) -> None:
    assert SILENT in sessions.create(**request_of(LOST)).text
    run_on(AGENT, f"systemctl stop lost-share; umount --lazy {LOST}; touch {LOST}/found")
    run_on(AGENT, f"timeout 120 sh -c {shlex.quote(f'while [ $({LOOKING}) != 0 ]; do sleep 0.1; done')}")
    session = sessions.start(**request_of(LOST))
    assert run_in(session.kernels[0], "ls", "/data") == "found\n"
    run_on(AGENT, f"rm {LOST}/found")
    assert run_on(AGENT, "ls /run/backendai-looks") == ""


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("source", ["/etc", f"{SHARED}/out"])
def test_folders_outside_of_the_roots_are_refused(sessions: Sessions, source: str) -> None:
    run = sessions.create(*ROOTS, **request_of(source))
    assert run.code != 0
    assert f"its real path '/etc' is not in agent_mount_roots; allowed are folders in {SHARED}, except " in run.text
    assert agent_state() == sessions.initial_state


@pytest.mark.usefixtures("shared")
def test_a_strict_folder_is_where_root_has_put_it(sessions: Sessions) -> None:
    source = f"{SHARED}/team-a"
    run = sessions.create(**request_of(source, mounts=[{"source": source, "target": "/data", "strict": True}]))
    assert run.code != 0
    problem = f"{source} may not be mounted on {AGENT}: {source} is a symbolic link, so that others than root"
    assert f"session_mounts: {problem}" in run.text
    assert agent_state() == sessions.initial_state


@pytest.mark.usefixtures("shared")
def test_engines_mount_strict_folders_by_the_path_that_is_given(sessions: Sessions) -> None:
    mounts = [{"source": f"{SHARED}/team", "target": "/data", "strict": True}]
    session = sessions.start(**request_of(f"{SHARED}/team", mounts=mounts))
    assert run_in(session.kernels[0], "ls", "/data") == "file\n"


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("agent", [AGENTS[0], AGENTS[2]])
def test_read_only_folder_is_so_with_all_file_systems_below_or_refused(sessions: Sessions, agent: str) -> None:
    """Engine 20.10 leaves what is mounted below writable, 26.1 does not."""
    inner = f"{SHARED}/team/inner"
    run_on(agent, f"mkdir {inner} && mount -t tmpfs none {inner}")
    try:
        mounts = [{"source": f"{SHARED}/team", "target": "/data", "read_only": True}]
        run = sessions.create(**{**SMALL, "designated_agents": [agent], "mounts": mounts})
        if run.code == 0:
            kernel = run.record["kernels"][0]
            touched = f"docker exec -u 0 {kernel['container']} sh -c 'touch /data/inner/x 2> /dev/null || echo refused'"
            assert run_on(agent, touched) == "refused\n"
        else:
            assert f"the engine would leave {inner} below {SHARED}/team writable" in run.text
        version = run_on(agent, "docker version --format '{{.Server.Version}}'")
        assert (run.code == 0) == (int(version.split(".")[0]) >= 25), run.output
        sessions.terminate()
    finally:
        run_on(agent, f"umount {inner}; rmdir {inner}")


@pytest.mark.usefixtures("shared")
def test_engines_mount_real_paths(sessions: Sessions) -> None:
    mounts = [{"source": f"{SHARED}/team-a", "target": "/data"}, {"source": "/srv/other/team", "target": "/other"}]
    session = sessions.start(
        *ROOTS, **SMALL, cluster_mode="multi-node", cluster_size=3, agent_selection="dispersed", mounts=mounts
    )
    for kernel in session.kernels:
        assert run_in(kernel, "ls", "/data", "/other").split() == ["/data:", "file", "/other:", "file"]
        inspect = f"docker inspect --format '{{{{json .HostConfig.Mounts}}}}' {kernel['container']}"
        sources = {mount["Target"]: mount["Source"] for mount in json.loads(run_on(kernel["agent"], inspect))}
        assert (sources["/data"], sources["/other"]) == (f"{SHARED}/team", f"{SHARED}/team")
    again = session.create_again(*ROOTS)
    assert (again.code, again.changed) == (0, 0), again.output


@pytest.mark.usefixtures("shared")
def test_stopped_container_does_not_start_with_a_folder_that_was_replaced_by_a_link(sessions: Sessions) -> None:
    session = sessions.start(**request_of(f"{SHARED}/team"))
    (main,) = session.kernels
    run_on(AGENT, f"docker kill {main['container']}; mv {SHARED}/team {SHARED}/old; ln -s /etc {SHARED}/team")
    repaired = session.create_again()
    assert repaired.code != 0
    assert (
        f"session_mounts: {SHARED}/team on {AGENT} was the folder that the session mounts, and leads to"
        in repaired.text
    )
    run_on(AGENT, f"rm {SHARED}/team; mv {SHARED}/old {SHARED}/team")
    repaired = session.create_again()
    assert (repaired.code, repaired.record["status"]) == (0, "RUNNING"), repaired.output


@pytest.fixture
def late_share() -> Iterator[str]:
    """A file system with a folder, mounted on an agent over another one, and the command that mounts it."""
    mount = f"mount -t tmpfs late {LATE} && mkdir {LATE}/team && touch {LATE}/team/file"
    run_on(AGENT, f"mkdir -p {LATE}/team && {mount}")
    try:
        yield mount
    finally:
        run_on(AGENT, f"while umount {LATE}; do :; done; rm -r {LATE}", check=False)
        assert run_on(AGENT, f"findmnt {LATE}", check=False) == ""


def reconcile() -> None:
    run_on(AGENT, f"systemctl start {RECONCILE_AGENT}.service", check=False)


def test_session_waits_for_a_file_system_that_is_mounted_after_the_engine_has_started(
    sessions: Sessions, late_share: str
) -> None:
    session = sessions.start(**request_of(f"{LATE}/team"))
    (main,) = session.kernels
    running = f"docker inspect --format '{{{{.State.Running}}}}' {main['container']}"
    refused = (
        f"{sessions.name}: session_mounts: {LATE}/team on {AGENT} was on the mount at {LATE} (tmpfs of late), and is on"
        " the mount at "
    )
    journal = f"journalctl --no-pager --output cat --unit '{RESTORE}'"
    run_on(AGENT, f"umount {LATE} && systemctl restart docker")
    wait_until(lambda: refused in run_on(AGENT, journal))
    reconcile()
    assert run_on(AGENT, running) == "false\n"
    assert run_on(AGENT, f"ls {LATE}/team") == ""
    run_on(AGENT, late_share)
    reconcile()
    wait_until(lambda: run_on(AGENT, running) == "true\n", seconds=90)
    assert run_in(main, "ls", "/data") == "file\n"
    wait_until(lambda: takes_sessions(AGENT))
    # That was for once: what is stopped from now on is not the timer's to start.
    run_on(AGENT, f"docker kill {main['container']}")
    reconcile()
    assert run_on(AGENT, running) == "false\n"
    repaired = session.create_again()
    assert (repaired.code, repaired.record["status"]) == (0, "RUNNING"), repaired.output
