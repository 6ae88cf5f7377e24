"""Verification of sessions: injected faults are reported and repaired."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from tests.integration.internals import DEFAULT_BRIDGE, SESSIONS, TABLE, TUNNEL_PREFIX
from tests.integration.laboratory import AGENTS, Kernel, Run, run_in, run_on, run_on_all
from tests.integration.reconciliation import reconcile_paused
from tests.integration.session_requests import FOUR, SMALL
from tests.integration.sessions import Sessions, StartedSession, started_session

pytestmark = pytest.mark.faults

FOLDER = "/mnt/verify-data"
MOUNTS = [{"source": FOLDER, "target": "/home/work/data"}]
PROGRAMS = "ssh timeout head cat hostname bash sh"
PROGRAM = "#!/opt/backendai/bin/busybox sh\ntrap '' HUP INT QUIT TERM\nwhile :; do {action}; done\n"
INSTALL = 'for name in $PROGRAMS; do rm -f /bin/$name; echo "$PROGRAM" > /usr/bin/$name; chmod 755 /usr/bin/$name; done'
NOTHING = {"name": None, "tcp": None, "frame": None, "ssh": None, "ssh_error": None}


@pytest.fixture(scope="module", autouse=True)
def storage() -> Iterator[None]:
    """Create a folder of the same name on each agent's local storage, not writable for user work."""
    run_on_all(f"mkdir {FOLDER}")
    yield
    run_on_all(f"rmdir {FOLDER}")


@pytest.fixture
def writable_storage() -> Iterator[None]:
    """Make the folder writable for user work for a while."""
    run_on_all(f"chmod 1777 {FOLDER}")
    yield
    run_on_all(f"chmod 755 {FOLDER}")


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedSession]:
    """Four containers on three agents with two engine versions."""
    with started_session(tmp_path_factory.mktemp("verify"), **FOUR, mounts=MOUNTS) as session:
        yield session


def verify(session: StartedSession, *options: str) -> Run:
    return session.sessions.run("verify_session", *options, name=session.record["name"])


def test_healthy_session_has_a_table_and_a_report(four: StartedSession) -> None:
    run = verify(four)
    report, names = run.record, [kernel["hostname"] for kernel in four.kernels]
    assert (run.code, run.changed) == (0, 0), run.output
    assert f"Session {four.record['name']} is healthy." in run.output
    assert report["session"]["name"] == four.record["name"]
    assert (report["session"]["status"], report["healthy"], report["error"]) == ("RUNNING", True, None)
    assert (report["agents"], report["drift"]) == ({}, [])
    assert [(pair["from"], pair["to"]) for pair in report["pairs"]] == [
        (source, target) for source in names for target in names
    ]
    for pair in report["pairs"]:
        expected = None if pair["from"] == pair["to"] else True
        assert (pair["name"], pair["tcp"], pair["frame"], pair["ssh"]) == (True, expected, expected, True)
    (mount,) = report["mounts"]
    assert (mount["target"], mount["compared"], mount["same"]) == ("/home/work/data", "names", True)


@pytest.mark.usefixtures("writable_storage")
def test_local_storage_of_agents_is_not_the_same_data(four: StartedSession) -> None:
    run = verify(four)
    (mount,) = run.record["mounts"]
    assert run.code != 0
    assert (mount["compared"], mount["same"], mount["marker_left"]) == ("marker", False, False)
    assert "mount /home/work/data: differs from main1 in" in run.output
    assert run_on_all(f"ls -A {FOLDER}") == [""] * 3


@pytest.mark.usefixtures("storage", "writable_storage")
def test_containers_of_one_agent_see_the_same_data(agent1_sessions: Sessions) -> None:
    session = agent1_sessions.start(**SMALL, cluster_size=2, mounts=MOUNTS)
    run = verify(session)
    assert (run.code, run.changed) == (0, 0), run.output
    assert [(mount["compared"], mount["same"]) for mount in run.record["mounts"]] == [("marker", True)]


def test_unreachable_agent_is_a_finding(four: StartedSession, unreachable_agent2: list[str]) -> None:
    run = verify(four, *unreachable_agent2)
    assert run.code != 0
    assert (list(run.record["agents"]), run.record["drift"]) == (["agent2"], [])
    unreachable = {kernel["hostname"] for kernel in four.kernels if kernel["agent"] == "agent2"}
    for pair in run.record["pairs"]:
        checks = {key: value for key, value in pair.items() if key not in ("from", "to")}
        assert (checks == NOTHING) is (pair["from"] in unreachable)


def break_everything(four: list[Kernel], session_id: str) -> dict[str, list[str]]:
    """Inject one fault of each kind, none of which hides another; return the expected messages by agent."""
    by_agent = {agent: [container for container in four if container["agent"] == agent] for agent in AGENTS}
    first = max(AGENTS, key=lambda agent: len(by_agent[agent]))
    second, third = (agent for agent in AGENTS if agent != first)
    link = run_on(first, f"ls /sys/class/net | grep ^{TUNNEL_PREFIX}").strip()
    entries = json.loads(run_on(first, f"bridge -j fdb show dev {link}"))
    missing_entry, wrong_entry = [entry for entry in entries if "dst" in entry][:2]
    address = by_agent[second][0]["address"]
    narrow, detached = by_agent[first][:2]
    pids = dict.fromkeys((narrow["container"], detached["container"]), "")
    for container in pids:
        pids[container] = run_on(first, f"docker inspect --format '{{{{.State.Pid}}}}' {container}").strip()
    inside = f"nsenter --target={pids[narrow['container']]} --net"
    run_on(first, f"{inside} ip link set cluster0 mtu 1300; {inside} ip route del default src {narrow['address']}")
    inside = f"nsenter --target={pids[detached['container']]} --net"
    peer = json.loads(run_on(first, f"{inside} ip -j link show eth0"))[0]["link_index"]
    port = run_on(first, f"ip -o link | awk -F'[ :@]+' '$1 == {peer} {{print $2}}'").strip()
    run_on(first, f"ip link set {port} nomaster; {inside} nft delete table ip backendai")
    run_on(first, f"bridge fdb del {missing_entry['mac']} dev {link}")
    run_on(first, f"bridge fdb replace {wrong_entry['mac']} dev {link} dst 192.0.2.9 self permanent")
    run_on(first, f"ip neigh del {address} dev {link}; ip link set {link} mtu 1400")
    run_on(second, f"ip link del {link}")
    run_on(second, f"echo 192.0.2.9 main1 >> {SESSIONS}/{session_id}/{by_agent[second][0]['hostname']}/hosts")
    run_on(third, f"docker kill {by_agent[third][0]['container']}; nft delete table {TABLE}")
    return {
        first: [
            f"cluster0 of {narrow['hostname']}: mtu 1300",
            f"default route of {narrow['hostname']}: missing",
            f"port of {detached['hostname']} on {DEFAULT_BRIDGE}: detached",
            f"port {port}: not isolated",
            f"translation of {detached['hostname']}: missing",
            f"forwarding entry {missing_entry['mac']} on {link}: missing",
            f"forwarding entry {wrong_entry['mac']} on {link}: to 192.0.2.9",
            f"neighbour {address} on {link}: missing",
            f"link {link}: mtu 1400",
        ],
        second: [
            f"link {link}: missing",
            f"cluster0 of {by_agent[second][0]['hostname']}: missing",
            f"/{by_agent[second][0]['hostname']}/hosts: changed",
        ],
        third: [f"container {by_agent[third][0]['container']}: exited", "firewall table inet backendai: missing"],
    }


def test_every_fault_is_reported_and_repaired(four: StartedSession) -> None:
    with reconcile_paused(*AGENTS):
        faults = break_everything(four.kernels, four.run.record["id"])
        broken = verify(four)
        assert broken.code != 0
        drift = [
            f"{entry['agent']}: {entry['subject']}: {entry['actual'] or 'missing'}" for entry in broken.record["drift"]
        ]
        for agent, phrase in ((agent, phrase) for agent, phrases in faults.items() for phrase in phrases):
            assert [line for line in drift if line.startswith(agent) and line.endswith(phrase)], (phrase, drift)
            assert phrase in broken.output
        repaired = four.create_again("--diff")
        assert repaired.code == 0, repaired.output
        assert repaired.changed > 0
        for phrase in (phrase for phrases in faults.values() for phrase in phrases):
            assert phrase.rpartition(": ")[0] in repaired.output, phrase
        healthy = verify(four, "--check")
        assert (healthy.code, healthy.changed) == (0, 0), healthy.output


def test_programs_of_a_container_that_never_end_hold_nobody_up(agent1_sessions: Sessions) -> None:
    """Those of main1 print without end, those of sub1 are silent."""
    session = agent1_sessions.start(**SMALL, cluster_size=2)
    busybox = "/opt/backendai/bin/busybox"
    for kernel, action in zip(session.kernels, ("echo y", "sleep 1"), strict=True):
        variables = [f"PROGRAMS={PROGRAMS}", f"PROGRAM={PROGRAM.format(action=action)}"]
        run_in(kernel, busybox, "env", *variables, busybox, "sh", "-c", INSTALL, user="0")
    began = time.monotonic()
    run = verify(session)
    assert time.monotonic() - began < 300
    assert run.code != 0
    assert {(pair["name"], pair["tcp"], pair["ssh"]) for pair in run.record["pairs"] if pair["from"] != pair["to"]} == {
        (True, True, False)
    }
    began = time.monotonic()
    repair = session.create_again()
    assert time.monotonic() - began < 450
    assert repair.code != 0
    assert "was not repaired, and what ran before still runs: agent1: ssh from main1 to sub1 fails: " in repair.text
    assert agent1_sessions.terminate().code == 0
