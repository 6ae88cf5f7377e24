"""Sessions are restored without Ansible: after a reboot, an engine restart, a lost link."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from tests.integration.containers import all_can_log_in
from tests.integration.internals import RECONCILE_AGENT, SESSION_CHAIN, TABLE, TUNNEL_PREFIX
from tests.integration.laboratory import Kernel, address, in_parallel, run_in, run_on, run_on_all
from tests.integration.reboots import reboot, takes_sessions
from tests.integration.session_requests import FOUR, TWO
from tests.integration.sessions import Sessions, StartedSession, started_session
from tests.integration.waiting import wait_until

pytestmark = pytest.mark.faults

KILL_ENGINE = "kill -9 $(pidof dockerd)"
VIEW_INSIDE = (
    "hostname; cat /proc/net/route | awk '$2 == \"00000000\" {print $1}'; cat /etc/hosts; "
    "cat /sys/class/net/cluster0/address /sys/class/net/cluster0/mtu; "
    "cat ~/.ssh/id_ed25519.pub; sha256sum < ~/.ssh/known_hosts"
)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedSession]:
    """Four containers on three agents with two engine versions; in the end a second run changes nothing."""
    with started_session(tmp_path_factory.mktemp("restore"), **FOUR) as session:
        yield session
        run_on_all(f"systemctl start {RECONCILE_AGENT}.service")
        unchanged = session.create_again()
        assert (unchanged.code, unchanged.changed) == (0, 0), unchanged.output
        assert unchanged.record == session.record


def view_inside(kernels: Sequence[Kernel]) -> list[str]:
    """Return the view from inside containers: names, addresses, MACs, MTUs, the default route, keys."""
    return in_parallel(*[partial(run_in, kernel, "sh", "-c", VIEW_INSIDE) for kernel in kernels])


@pytest.mark.parametrize("agent", ["agent1", "agent3"])
def test_reboot_restores_containers_unchanged(session: StartedSession, agent: str) -> None:
    kernels = session.kernels
    others = [kernel for kernel in kernels if kernel["agent"] != agent]
    before = view_inside(kernels)
    is_back = reboot(agent)
    wait_until(lambda: not takes_sessions(agent))
    assert all_can_log_in(others), "the agents that did not restart have lost each other"
    wait_until(lambda: is_back() and takes_sessions(agent))
    seconds = wait_until(lambda: all_can_log_in(kernels))
    print(f"{agent}: restored {seconds:.1f} s after its engine was up")
    assert view_inside(kernels) == before


def test_agent_without_rules_of_its_engine_gets_no_session_until_that_restarts(
    session: StartedSession, tmp_path: Path
) -> None:
    kernels = session.kernels
    run_on("agent2", f"nft flush ruleset; systemctl start {RECONCILE_AGENT}.service", check=False)
    assert "restart the engine" in run_on("agent2", f"journalctl --unit {RECONCILE_AGENT} --lines 20 --no-pager")
    verified = session.sessions.run("verify_session", name=session.record["name"])
    assert verified.code != 0
    assert "rules of the engine" in verified.output
    with Sessions(tmp_path) as others:
        run = others.create(**TWO, name=others.name, designated_agents=["agent2"])
        assert run.record["status"] == "PENDING"
        assert "agent2: the engine's own rules are missing" in run.text
    run_on("agent2", "systemctl restart docker")
    wait_until(lambda: all_can_log_in(kernels))
    assert session.sessions.run("verify_session", name=session.record["name"]).code == 0


def test_engine_restart_and_kill_restore_containers(session: StartedSession) -> None:
    before = view_inside(session.kernels)
    restarts = {"agent1": "systemctl restart docker", "agent2": KILL_ENGINE, "agent3": KILL_ENGINE}
    in_parallel(*[partial(run_on, agent, restart) for agent, restart in restarts.items()])
    wait_until(lambda: all(takes_sessions(agent) for agent in restarts))
    seconds = wait_until(lambda: all_can_log_in(session.kernels))
    print(f"restored {seconds:.1f} s after the last engine was up")
    assert view_inside(session.kernels) == before


def test_lost_links_entries_and_rules_are_restored(session: StartedSession) -> None:
    kernels = session.kernels
    link = run_on("agent1", f"ls /sys/class/net | grep ^{TUNNEL_PREFIX}").strip()
    entries = f"bridge -j fdb show dev {link}"
    run_on("agent1", f"ip link del {link}")
    mac = next(entry["mac"] for entry in json.loads(run_on("agent2", entries)) if "dst" in entry)
    run_on("agent2", f"bridge fdb del {mac} dev {link}")
    run_on("agent3", f"nft delete table {TABLE}; ip link set {link} nomaster")
    chain, look_for = f"chain {SESSION_CHAIN} {{", f"nft list table {TABLE}"
    wait_until(lambda: chain in run_on("agent3", look_for, check=False) and all_can_log_in(kernels))
    journal = run_on("agent1", f"journalctl --unit {RECONCILE_AGENT} --no-pager --since -15min")
    assert f"link {link}: missing -> vni" in journal


def test_sessions_outlive_a_new_name_of_the_underlay_interface(session: StartedSession, tmp_path: Path) -> None:
    interfaces = json.loads(run_on("agent2", f"ip -j addr show to {address('agent2')}"))
    (name,) = [link["ifname"] for link in interfaces if link]
    run_on("agent2", f"ip link set dev {name} name uplink0 && systemctl start {RECONCILE_AGENT}.service")
    try:
        assert all_can_log_in(session.kernels)
        verified = session.sessions.run("verify_session", name=session.record["name"])
        assert verified.code == 0, verified.output
        with started_session(tmp_path, **TWO, designated_agents=["agent1", "agent2"]) as other:
            assert all_can_log_in(other.kernels)
    finally:
        run_on("agent2", f"ip link set dev uplink0 name {name} && systemctl start {RECONCILE_AGENT}.service")
    assert all_can_log_in(session.kernels)
