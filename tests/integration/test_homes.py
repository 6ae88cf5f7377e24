"""The homes of sessions: they may be full, or full of files, and are removed after the end."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.integration.internals import AGENT_STATE, HOMES_UNIT, RECONCILE_AGENT
from tests.integration.laboratory import Kernel, run_in, run_on, stored_sessions
from tests.integration.session_requests import SMALL
from tests.integration.sessions import Sessions
from tests.integration.waiting import wait_until

pytestmark = pytest.mark.containers

AGENT = "agent1"
HOMES = f'"$(readlink {AGENT_STATE}/homes)"'
SETTINGS = f"/run/systemd/system/{HOMES_UNIT}.d"
MAKE_FILES = """
import os, sys
for number in range(int(sys.argv[1])):
    if number % 1000 == 0:
        os.makedirs(f"/home/work/{number}", exist_ok=True)
    os.close(os.open(f"/home/work/{number // 1000 * 1000}/{number}", os.O_CREAT))
"""


@pytest.fixture
def small_disk() -> Iterator[None]:
    """Have the homes of the agent on a file system of its own, of 64 MiB."""
    mount = f"mount -t tmpfs -o size=64m,mode=700,nosuid,nodev small {HOMES}"
    run_on(AGENT, f"{mount} && mkdir -m 700 {HOMES}/sessions {HOMES}/removed")
    yield
    run_on(AGENT, f"systemctl stop {HOMES_UNIT}; umount {HOMES}")


@pytest.fixture
def removal_stopped() -> Iterator[None]:
    """Keep homes of ended sessions from being removed."""
    condition = "[Unit]\\nConditionPathExists=!/\\n"
    write = f"mkdir -p {SETTINGS} && printf '{condition}' > {SETTINGS}/stopped.conf"
    run_on(AGENT, f"{write} && systemctl daemon-reload")
    yield
    let_remove()


def let_remove() -> None:
    run_on(AGENT, f"rm -rf {SETTINGS}; systemctl daemon-reload; systemctl start {HOMES_UNIT}")
    wait_until_removed()


def retired() -> list[str]:
    """Return what is to be removed on the agent."""
    return run_on(AGENT, f"ls {HOMES}/removed").split()


def wait_until_removed(seconds: float = 180) -> float:
    """Wait until nothing is left to be removed; return how many seconds that took."""
    return wait_until(lambda: not retired(), seconds)


def make_files(main: Kernel, count: int) -> None:
    run_in(main, "python3", "-c", MAKE_FILES, str(count))


@pytest.mark.usefixtures("small_disk")
def test_a_home_filled_to_the_last_byte_leaves_the_agent_able_to_claim_end_and_write(agent1_sessions: Sessions) -> None:
    started = agent1_sessions.start(**SMALL)
    (main,) = started.kernels
    fill = "head -c 1G /dev/zero >/home/work/full; echo x >/home/work/more"
    assert "No space left on device" in run_in(main, "sh", "-c", fill, check=False)
    # A session is claimed and started, or all of it is taken back.
    another = agent1_sessions.create(name=f"{agent1_sessions.name}-2", **SMALL)
    there = {session["plan"]["name"] for session in stored_sessions()[AGENT]}
    assert (f"{agent1_sessions.name}-2" in there) == (another.record["status"] == "RUNNING"), another.output
    repaired = started.create_again()
    assert repaired.code == 0, repaired.output
    ended = agent1_sessions.terminate(name=agent1_sessions.name)
    assert ended.code == 0, ended.output
    wait_until_removed()
    agent1_sessions.start(**SMALL)


@pytest.mark.usefixtures("removal_stopped")
def test_an_end_renames_homes_and_does_not_wait_for_their_files(agent1_sessions: Sessions) -> None:
    started = agent1_sessions.start(**SMALL)
    (main,) = started.kernels
    make_files(main, 20_000)
    ended = agent1_sessions.terminate()
    assert ended.code == 0, ended.output
    (name,) = [name for name in retired() if name.startswith(started.record["id"])]
    count = run_on(AGENT, f"find {HOMES}/removed/{name}/main1/home -name '[0-9]*' -type f | wc -l")
    assert int(count) == 20_000
    assert started.record["id"] not in run_on(AGENT, f"ls {HOMES}/sessions")


@pytest.mark.usefixtures("removal_stopped")
def test_homes_of_a_session_that_is_gone_are_found_by_the_timer() -> None:
    lost = "00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
    run_on(AGENT, f"mkdir -p {HOMES}/sessions/{lost}/main1/home && systemctl start {RECONCILE_AGENT}.service")
    assert [name.startswith(lost) for name in retired()] == [True]


@pytest.mark.usefixtures("removal_stopped")
def test_no_session_starts_below_the_reserve_until_homes_are_removed(agent1_sessions: Sessions) -> None:
    agent1_sessions.start(**SMALL)
    assert agent1_sessions.terminate().code == 0
    reserve = '{"agent_disk_reserve": "900t"}'
    waiting = agent1_sessions.create("-e", reserve, **SMALL)
    assert waiting.record["status"] == "PENDING", waiting.output
    reason = waiting.record["pending"]["reason"]
    assert "it receives no new sessions until the homes of ended sessions have been removed" in reason
    agent1_sessions.terminate()
    let_remove()
    agent1_sessions.start("-e", reserve, **SMALL)


@pytest.mark.long
def test_a_session_with_a_million_files_ends_within_ten_seconds(agent1_sessions: Sessions) -> None:
    def seconds_of_end(files: int) -> float:
        started = agent1_sessions.start(**SMALL)
        for _part in range(0, files, 100_000):
            make_files(started.kernels[0], min(files, 100_000))
            run_in(started.kernels[0], "sh", "-c", "mkdir -p ~/all && mv ~/*000 ~/0 $(mktemp -d -p ~/all)")
        began = time.monotonic()
        ended = agent1_sessions.terminate()
        assert ended.code == 0, ended.output
        return time.monotonic() - began

    without, full = seconds_of_end(0), seconds_of_end(1_000_000)
    print(f"the end of a session took {full:.1f} s with 1,000,000 files, {without:.1f} s without")
    assert full <= 10
    print(f"their removal took {wait_until_removed(900):.0f} s more")


def test_a_repair_keeps_the_home_unless_it_is_to_be_fresh(agent1_sessions: Sessions) -> None:
    started = agent1_sessions.start(**SMALL)
    (main,) = started.kernels
    run_in(main, "sh", "-c", "echo kept >~/file")
    run_on(AGENT, f"docker rm -f {main['container']}")
    assert agent1_sessions.run("repair_session", name=agent1_sessions.name).code == 0
    assert run_in(main, "cat", "/home/work/file") == "kept\n"
    assert agent1_sessions.run("repair_session", name=agent1_sessions.name, fresh_home=True).code == 0
    assert "file" not in run_in(main, "ls", "/home/work")


def test_a_repair_that_is_refused_leaves_the_home_and_the_container(agent1_sessions: Sessions) -> None:
    folder = "/srv/fresh-home"
    run_on(AGENT, f"mkdir -m 755 {folder}")
    try:
        started = agent1_sessions.start(**SMALL, mounts=[{"source": folder, "target": "/data"}])
        (main,) = started.kernels
        run_in(main, "sh", "-c", "echo kept >~/file")
        run_on(AGENT, f"mv {folder} {folder}.away")
        refused = agent1_sessions.run("repair_session", name=agent1_sessions.name, fresh_home=True)
        assert refused.code != 0
        assert f"session_mounts: {folder} is not a folder on {AGENT}" in refused.text
        assert run_in(main, "cat", "/home/work/file") == "kept\n"
    finally:
        run_on(AGENT, f"rm -rf {folder} {folder}.away")


def test_a_mount_in_another_one_needs_its_folder_there(agent1_sessions: Sessions) -> None:
    outer, inner = "/srv/nested/outer", "/srv/nested/inner"
    mounts = [{"source": outer, "target": "/home/work/data"}, {"source": inner, "target": "/home/work/data/x/y"}]
    run_on(AGENT, f"mkdir -p {outer} {inner} && touch {inner}/file && chown -R 1000:1000 /srv/nested")
    try:
        run_on(AGENT, f"ln -s / {outer}/x && mkdir -p /y")
        refused = agent1_sessions.create(**SMALL, mounts=mounts)
        assert refused.code != 0
        assert f"{outer} on {AGENT} has no folder x/y that its root reaches without a symbolic link" in refused.text
        run_on(AGENT, f"rm {outer}/x && mkdir -p {outer}/x/y && chown -R 1000:1000 {outer}")
        started = agent1_sessions.start(**SMALL, mounts=mounts)
        assert run_in(started.kernels[0], "ls", "/home/work/data/x/y") == "file\n"
    finally:
        run_on(AGENT, "rm -rf /srv/nested; rmdir /y", check=False)
