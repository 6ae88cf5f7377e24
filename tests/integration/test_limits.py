"""Limits of containers: what one of them does, its agent and its neighbours hardly notice."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import pytest

from tests.integration.containers import can_log_in
from tests.integration.internals import CONNECTIONS_TABLE, LIMITS_STATE, RECONCILE_AGENT, SESSIONS
from tests.integration.laboratory import Kernel, address, run_in, run_on
from tests.integration.processes import container_processes
from tests.integration.programs import source
from tests.integration.reconciliation import reconcile_paused
from tests.integration.session_requests import FOUR
from tests.integration.sessions import StartedSession, started_session
from tests.integration.waiting import wait_until

pytestmark = pytest.mark.containers

# With both versions of the engine.
BOTH = ("agent1", "agent3")
PIDS, PER_CORE, LOG_FILE, LOG_FILES = 700, 10, 64 << 10, 2
OPTIONS = {
    "agent_pids_limit": PIDS,
    "agent_pids_per_core": PER_CORE,
    "agent_log_max_size": "64k",
    "agent_log_max_files": LOG_FILES,
}
MEMORY = 256
# Unfinished logins of one source: one for each six megabytes of the container's memory.
PER_SOURCE = MEMORY // 6
STARTED, KEPT, OVER = "/tmp/started", "/tmp/kept", "/tmp/over"
CONNECTIONS = 300


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedSession]:
    """Four containers with low limits, two on each of two agents."""
    options = [word for name, value in OPTIONS.items() for word in ("-e", f"{name}={value}")]
    request = {**FOUR, "designated_agents": list(BOTH), "resources": {"cpu": 1, "mem": f"{MEMORY}m"}}
    with started_session(tmp_path_factory.mktemp("four"), *options, **request) as session:
        yield session


@pytest.fixture
def few_connections() -> Iterator[None]:
    """Let containers of the agents have few connections."""
    stored = shlex.quote(json.dumps({"version": 3, "connections": CONNECTIONS}))
    apply = f"systemctl start {RECONCILE_AGENT}.service"
    for agent in BOTH:
        # The file does not exist while the default applies.
        run_on(agent, f"test ! -e {LIMITS_STATE}")
    try:
        for agent in BOTH:
            run_on(agent, f"echo {stored} > {LIMITS_STATE} && {apply}")
        yield
    finally:
        for agent in BOTH:
            run_on(agent, f"rm -f {LIMITS_STATE} && {apply}")


def by_agent(session: StartedSession) -> list[tuple[Kernel, Kernel]]:
    """Return two containers of each agent."""
    pairs = []
    for agent in BOTH:
        first, second = [kernel for kernel in session.kernels if kernel["agent"] == agent]
        pairs.append((first, second))
    return pairs


@contextmanager
def running(program: str, *arguments: str, kernels: Sequence[Kernel], writes: str) -> Iterator[None]:
    """Run a program in containers, from when it has written a file until the end."""

    def outside(kernel: Kernel, line: str, path: str) -> str:
        # A container that is full starts no process.
        pid = f"$(docker inspect --format '{{{{.State.Pid}}}}' {kernel['container']})"
        return run_on(kernel["agent"], f"{line} /proc/{pid}/root{path}", check=False)

    with ThreadPoolExecutor() as pool:
        run = [pool.submit(run_in, kernel, "python3", "-c", source(program), *arguments) for kernel in kernels]
        try:
            wait_until(lambda: all(outside(kernel, "cat", writes).isdecimal() for kernel in kernels))
            yield
        finally:
            for kernel in kernels:
                outside(kernel, "touch", OVER)
        for program_run in run:
            program_run.result()
    for kernel in kernels:
        run_in(kernel, "rm", "-f", OVER, user="0")


def written_number(kernel: Kernel, path: str) -> int:
    return int(run_in(kernel, "cat", path))


def assert_gains_no_capability(kernel: Kernel) -> None:
    """Fail if a process of a container has SYS_NICE, or any other capability, or could get it."""
    processes = container_processes(kernel)
    assert len(processes) > 1
    assert {(process.capabilities, process.gains_nothing) for process in processes} == {(0, True)}


def tracked_connections(agent: str) -> int:
    return int(run_on(agent, "cat /proc/sys/net/netfilter/nf_conntrack_count"))


def test_processes_stop_at_the_limit_while_neighbours_work(four: StartedSession) -> None:
    (first, second), (other, last) = by_agent(four)
    with running("forks", "2000", STARTED, OVER, kernels=(first, other), writes=STARTED):
        assert can_log_in(second, last)
    for kernel in (first, other):
        # The container has processes of its own.
        assert PIDS - 50 < written_number(kernel, STARTED) < PIDS + PER_CORE
    assert can_log_in(first, other)


def test_core_dumps_are_off_in_logins_too(four: StartedSession) -> None:
    for kernel in four.kernels:
        for words in (("sh", "-c", "ulimit -Hc"), ("ssh", kernel["hostname"], "ulimit -Hc")):
            assert run_in(kernel, *words).strip() == "0"


def log_is_complete(kernel: Kernel) -> bool:
    return run_on(kernel["agent"], f"docker logs --tail 1 {kernel['container']}").strip() == "100000"


def test_log_is_rotated_and_readable(four: StartedSession) -> None:
    (first, _second), (other, _last) = by_agent(four)
    for kernel in (first, other):
        run_in(kernel, "sh", "-c", "seq 100000 > /proc/1/fd/1")
        # The engine writes what it has read later.
        wait_until(partial(log_is_complete, kernel))
        path = run_on(kernel["agent"], f"docker inspect --format '{{{{.LogPath}}}}' {kernel['container']}").strip()
        sizes = [int(size) for size in run_on(kernel["agent"], f"stat -c %s {path}*").split()]
        assert len(sizes) == LOG_FILES
        assert LOG_FILE // 2 < sum(sizes) < LOG_FILES * LOG_FILE + 4096
    run = four.sessions.run("session_logs", name=four.sessions.name, logs_lines=5)
    assert run.code == 0, run.output
    ends = {kernel["hostname"]: kernel["log"][-1].split()[-1] for kernel in run.record["kernels"] if kernel["log"]}
    assert (ends[first["hostname"]], ends[other["hostname"]]) == ("100000", "100000")


def test_container_cannot_write_its_hosts_file(four: StartedSession) -> None:
    (first, _second), (other, _last) = by_agent(four)
    for kernel in (first, other):
        hosts = run_in(kernel, "cat", "/etc/hosts")
        for line in (
            "truncate -s 4G /etc/hosts",
            "echo 192.0.2.9 main1 >> /etc/hosts",
            "mount -o remount,rw /etc/hosts",
        ):
            tried = run_in(kernel, "sh", "-c", f"({line}) 2> /dev/null || echo refused", user="0")
            assert tried.strip() == "refused", line
        assert run_in(kernel, "cat", "/etc/hosts") == hosts


@pytest.mark.parametrize("damage", ["truncate -s 256M", r"printf '\377\n' >>"], ids=["sparse", "no text"])
def test_any_hosts_file_is_reported_and_repaired(four: StartedSession, damage: str) -> None:
    (first, _second), _others = by_agent(four)
    hosts, path = run_in(first, "cat", "/etc/hosts"), f"{four.record['id']}/{first['hostname']}/hosts"
    with reconcile_paused(*BOTH):
        run_on(first["agent"], f"{damage} {SESSIONS}/{path}")
        run = four.sessions.run("verify_session", name=four.sessions.name)
        assert [entry["actual"] for entry in run.record["drift"] if path in entry["subject"]] == ["changed"]
        repaired = four.create_again()
    assert repaired.code == 0, repaired.output
    assert run_in(first, "cat", "/etc/hosts") == hosts


def test_memory_is_bound_without_the_capability(four: StartedSession) -> None:
    (first, _second), (other, _last) = by_agent(four)
    for kernel in (first, other):
        program = shlex.join(["python3", "-c", source("memory_binding")])
        bound = json.loads(run_in(kernel, "ssh", kernel["hostname"], program))
        assert (bound["set_mempolicy"], bound["mbind"]) == (0, 0)
        assert_gains_no_capability(kernel)


@pytest.mark.usefixtures("few_connections")
def test_connections_of_a_container_are_limited_and_those_of_neighbours_are_not(four: StartedSession) -> None:
    for first, second in by_agent(four):
        agent, target = first["agent"], address("user1")
        before = tracked_connections(agent)
        run_in(first, "python3", "-c", source("connections"), target, "2000")
        flooded = tracked_connections(agent)
        assert flooded - before < CONNECTIONS + 50
        dropped = run_on(agent, f"nft list chain {CONNECTIONS_TABLE} drop_connections")
        assert int(dropped.split("packets ")[-1].split()[0]) >= 1500
        run_in(second, "python3", "-c", source("connections"), target, "200")
        assert tracked_connections(agent) - flooded > 150
        assert can_log_in(first, second)


def test_silent_logins_of_one_source_leave_room_for_others(four: StartedSession) -> None:
    (first, second), (other, last) = by_agent(four)
    inspect = f"docker inspect --format '{{{{.State.Pid}}}} {{{{.State.OOMKilled}}}}' {other['container']}"
    before = run_on(other["agent"], inspect)
    with running("silent_logins", other["hostname"], "400", KEPT, OVER, kernels=[first], writes=KEPT):
        for kernel in (second, last):
            wait_until(partial(can_log_in, kernel, other))
    assert PER_SOURCE // 2 < written_number(first, KEPT) <= PER_SOURCE
    assert run_on(other["agent"], inspect) == before
    assert before.split()[1] == "false"
