"""Where sessions are placed, and what becomes of one that has no room."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.hosts import containers
from tests.integration.containers import LOGIN
from tests.integration.internals import session_link
from tests.integration.laboratory import AGENTS, BUSYBOX, address, run_in, run_on
from tests.integration.probes import all_targets, list_addresses, reachable_from_container, targets_with_ports
from tests.integration.sessions import Sessions, StartedSession, started_session
from tests.integration.waiting import wait_until

FOLDER = "/srv/acceptance-agent2"
DEVICES = {"/dev/fuse", "/dev/net/tun"}
HOSTS = """\
127.0.0.1 localhost
192.0.2.7 licence-server
{% for kernel in plan.kernels %}
{{ kernel.address }} {{ kernel.hostname }}
{% endfor %}
"""


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedSession]:
    """A session that may be on several agents and fits on one; its folder is on agent2 alone, its devices on each.

    Its image has nothing but busybox, and its names come from a template of the operator.
    """
    run_on("agent2", f"install -d -m 1777 {FOLDER}")
    folder = tmp_path_factory.mktemp("together")
    hosts = folder / "my-hosts.j2"
    hosts.write_text(HOSTS)
    request = {
        "image": BUSYBOX,
        "cluster_mode": "multi-node",
        "cluster_size": 2,
        "resources": {"cpu": 1, "mem": "128m", "lab.device": 1},
        "mounts": [{"source": FOLDER, "target": "/home/work/data"}],
        "hosts_template": str(hosts),
    }
    with started_session(folder, **request) as session:
        yield session
    run_on("agent2", f"rm -r {FOLDER}")


def test_a_session_that_fits_on_one_agent_is_on_one_that_has_its_folder(together: StartedSession) -> None:
    found = containers(together.record["name"])
    assert {name: container["agent"] for name, container in found.items()} == {"main1": "agent2", "sub1": "agent2"}
    # A private bridge and the default network; no tunnel.
    networks = {network for container in found.values() for network in container["NetworkSettings"]["Networks"]}
    drivers = run_on("agent2", f"docker network inspect --format '{{{{.Driver}}}}' {' '.join(networks)}")
    assert drivers.split() == ["bridge"] * 2
    assert run_on("agent2", f"ip -oneline link show | grep {session_link(together.record['id'])}", check=False) == ""


def test_a_session_on_one_agent_reaches_no_other_agent_either(together: StartedSession) -> None:
    """It is the only one there: sessions on several agents close all of these to everybody."""
    assert len(run_on("agent2", "docker ps --quiet --filter name=^backendai-").split()) == 2
    world = targets_with_ports(address("user1"))
    closed = all_targets(*list_addresses("agent2"), *map(address, [*AGENTS, "manager1"]))
    assert reachable_from_container(together.kernels[0], [*world, *closed]) == {*world}


def test_containers_on_one_agent_see_the_same_data_at_once(together: StartedSession) -> None:
    main, sub = together.kernels
    run_in(main, "sh", "-c", "echo from main1 > ~/data/file")
    assert run_in(sub, "cat", "/home/work/data/file") == "from main1\n"
    assert run_on("agent2", f"stat -c '%u %s' {FOLDER}/file").split() == ["1000", "11"]


def test_an_image_needs_no_sshd_no_python_and_no_bash(together: StartedSession) -> None:
    main, sub = together.kernels
    for program in ("sshd", "python3", "bash"):
        assert "absent" in run_in(
            main, "/bin/sh", "-c", f"PATH=/usr/sbin:/usr/bin:/bin; which {program} || echo absent"
        )
    assert run_in(main, *LOGIN, "sub1", "hostname; id -un") == "sub1\nwork\n"
    assert run_in(sub, *LOGIN, "main1", "echo $MASTER_ADDR") == "main1\n"
    assert "192.0.2.7 licence-server\n" in run_in(sub, "cat", "/etc/hosts")


def test_a_device_is_given_to_one_container_only(together: StartedSession) -> None:
    found = containers(together.record["name"])
    given = [{each["PathInContainer"] for each in found[name]["HostConfig"]["Devices"]} for name in ("main1", "sub1")]
    assert sorted(map(len, given)) == [1, 1]
    assert set.union(*given) == DEVICES
    opened = "for device in /dev/fuse /dev/net/tun; do (: <> $device) 2> /dev/null && echo $device; done; true"
    assert [{*run_in(kernel, "sh", "-c", opened).split()} for kernel in together.kernels] == given


def test_what_has_no_room_waits_whole_and_starts_in_the_order_of_priority(sessions: Sessions, tmp_path: Path) -> None:
    """agent1 has two devices: room for one pair, and no pair gets one device of its two."""
    sessions.limit_to("agent1")
    one = {"resources": {"cpu": 1, "mem": "64m", "lab.device": 1}, "designated_agents": ["agent1"]}
    pair = {**one, "cluster_size": 2}
    first, low, high, late = names = [f"{sessions.name}-{name}" for name in ("first", "low", "high", "late")]
    assert sessions.create(**pair, name=first).record["status"] == "RUNNING"
    for name, request in ((low, {**pair, "priority": 5}), (high, {**one, "priority": 50})):
        waiting = sessions.create(**request, name=name)
        assert (waiting.code, waiting.record["status"]) == (0, "PENDING"), waiting.output
        assert f"it fits when these end: {first}" in waiting.text
    assert [len(containers(name)) for name in names] == [2, 0, 0, 0]

    ended = sessions.terminate(name=first)
    assert f"Session {high} is RUNNING." in ended.text, ended.output
    assert [len(containers(name)) for name in names] == [0, 0, 1, 0]

    # There is room for one, but whoever comes later passes nobody who has been passed often enough.
    behind = sessions.create(**one, name=late, priority=5, queue_patience=0, pending_timeout=1)
    assert (behind.code, behind.record["status"]) == (0, "PENDING"), behind.output
    assert f"it waits behind {low}, which 0 later sessions have skipped" in behind.text
    wait_until(lambda: time.time() > behind.record["created_at"] + 1)

    cancelled = sessions.terminate(name=low)
    assert cancelled.record["status"] == "CANCELLED"
    report = tmp_path / "history.json"
    listed = sessions.run("list_sessions", history=True, list_path=str(report))
    records = {record["name"]: record for record in json.loads(report.read_text())}
    states = [records[name]["status"] for name in names]
    assert states == ["TERMINATED", "CANCELLED", "RUNNING", "CANCELLED"], listed.output
    assert records[late]["reason"] == "it waited longer than session_pending_timeout, 1 seconds"
    assert [len(containers(name)) for name in names] == [0, 0, 1, 0]
