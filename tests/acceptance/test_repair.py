"""What heals: a session of its own that is damaged, found, repaired and ended; agents that reboot, engines that die."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.acceptance.conftest import WEB, Training
from tests.acceptance.hosts import answers_ssh, containers, curl, network_state, runs
from tests.integration.containers import all_can_log_in
from tests.integration.gateway_client import GATEWAY, USER, signed_token
from tests.integration.internals import session_link
from tests.integration.laboratory import AGENTS, Kernel, address, agent_state, in_parallel, run_in, run_on, run_on_all
from tests.integration.reboots import reboot, takes_sessions
from tests.integration.reconciliation import reconcile_paused
from tests.integration.session_requests import SMALL, THREE
from tests.integration.sessions import Sessions, StartedSession
from tests.integration.waiting import wait_until

INSIDE = """
hostname; ip -4 -oneline address show dev cluster0 | awk '{print $4}'; cat /etc/hosts ~/.ssh/id_ed25519.pub
ip route show default | cut -c-20
"""


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedSession]:
    """A session that the first tests of this file damage, repair and end, in this order."""
    folder = tmp_path_factory.mktemp("damaged")
    with Sessions(folder) as sessions:
        started = sessions.start(**THREE, apps=[WEB], access_path=str(folder / "access.json"))
        run_in(started.kernels[1], "sh", "-c", "echo kept > /home/work/mine")
        yield started


def inside(kernels: list[Kernel]) -> list[str]:
    """Return names, addresses, keys and routes as containers see them."""
    return in_parallel(*[partial(run_in, kernel, "sh", "-c", INSIDE) for kernel in kernels])


def test_a_test_of_a_session_finds_what_is_broken(damaged: StartedSession) -> None:
    verify = partial(damaged.sessions.run, "verify_session", name=damaged.record["name"])
    healthy = verify()
    assert healthy.code == 0, healthy.output
    main, sub, last = damaged.kernels
    with reconcile_paused(*AGENTS):
        run_on(sub["agent"], f"docker rm --force {sub['container']}")
        link = run_on(last["agent"], "ip -oneline link show type vxlan | grep -o 'bax-[^:@]*' | tail -1").strip()
        for entry in run_on(last["agent"], f"bridge fdb show dev {link} | grep -w dst | cut -d ' ' -f 1").split():
            run_on(last["agent"], f"bridge fdb del {entry} dev {link}")
        assert "ended with 1" in run_in(last, "sh", "-c", f"ping -c 1 -W 2 {main['address']}; echo ended with $?")
        assert damaged.sessions.list_by_name()[damaged.record["name"]]["status"] == "DEGRADED"
        broken = verify()
        assert broken.code != 0
        assert f"{sub['agent']}: container {sub['container']}: missing -> running" in broken.text
        assert f"{last['agent']}: forwarding entry " in broken.text
        assert "sub2 -> main1: tcp" in broken.text


def test_the_same_command_again_and_a_repair_replace_what_is_lost_and_touch_nothing_else(
    damaged: StartedSession,
) -> None:
    name, sub = damaged.record["name"], damaged.kernels[1]
    before = {hostname: runs(container) for hostname, container in containers(name).items()}
    # A repair that fails, because somebody else has the name, leaves alone what runs.
    run_on(sub["agent"], f"docker create --name {sub['container']} lab/busybox:1 true")
    failed = damaged.create_again()
    assert failed.code != 0
    assert f"the session '{name}' was not repaired, and what ran before still runs: {sub['agent']}: " in failed.text
    left = containers(name)
    assert [runs(left[each]) for each in ("main1", "sub2")] == [before[each] for each in ("main1", "sub2")]
    run_on(sub["agent"], f"docker rm {sub['container']}")
    for repair in (damaged.create_again, partial(damaged.sessions.run, "repair_session", name=name)):
        run_on(sub["agent"], f"docker rm --force {sub['container']} || true")
        repaired = repair()
        assert repaired.code == 0, repaired.output
        after = {hostname: runs(container) for hostname, container in containers(name).items()}
        assert sorted(after) == ["main1", "sub1", "sub2"]
        assert {**after, "sub1": before.get("sub1")} == {**before, "sub1": before.get("sub1")}
        assert all_can_log_in(damaged.kernels)
        # The home is still the same.
        assert run_in(sub, "cat", "/home/work/mine") == "kept\n"
    again = damaged.sessions.run("repair_session", name=name)
    assert (again.code, again.changed) == (0, 0), again.output
    # Entries that are wrong are mended by one repair, as those that are missing.
    main, _sub, last = damaged.kernels
    link = session_link(damaged.record["id"])
    entries = f"bridge fdb show dev {link} | grep -w dst | sort; ip neigh show dev {link} nud permanent | sort"
    right = run_on(last["agent"], entries)
    (mac,) = re.findall(rf"^{main['address']} lladdr (\S+)", right, re.MULTILINE)
    with reconcile_paused(last["agent"]):
        run_on(last["agent"], f"ip neigh replace {main['address']} lladdr 02:00:00:00:00:01 nud permanent dev {link}")
        run_on(last["agent"], f"bridge fdb replace {mac} dst 192.0.2.1 dev {link}")
        assert run_on(last["agent"], entries) != right
        repaired = damaged.sessions.run("repair_session", name=name)
        assert (repaired.code, run_on(last["agent"], entries)) == (0, right), repaired.output
        assert all_can_log_in(damaged.kernels)


def test_the_end_of_a_session_leaves_nothing_and_closes_its_access(damaged: StartedSession) -> None:
    name, sessions = damaged.record["name"], damaged.sessions
    url = f"https://{address(GATEWAY)}/s/{name}/web/hostname"
    (access,) = json.loads(Path(damaged.request["access_path"]).read_text())
    assert curl(USER, url)[0] == 403
    assert answers_ssh(USER, access["ssh"]["host"], access["ssh"]["port"])
    checked = sessions.terminate("--check", "--diff", name=name)
    assert f"-container backendai-{name}-main1: running" in checked.text, checked.output
    assert len(containers(name)) == 3
    # The gateway does not hear of it.
    ended = sessions.terminate("--limit", ",".join(["localhost", *AGENTS]), name=name)
    assert (ended.code, ended.record["status"]) == (0, "TERMINATED"), ended.output
    assert containers(name) == {}
    subnet = damaged.record["network"]["subnet"].rpartition(".")[0]
    look = f"(ip -4 address; ip -4 route; ip neigh; nft list ruleset 2> /dev/null) | grep -F '{subnet}.'"
    assert run_on_all(look, check=False) == [""] * 3
    assert run_on_all(f"ip -oneline link show | grep {session_link(damaged.record['id'])}", check=False) == [""] * 3

    # The next one under its name is what its address shows, and nobody else.
    elsewhere = next(agent for agent in AGENTS if agent != damaged.kernels[0]["agent"])
    later = sessions.create("--limit", f"localhost,{GATEWAY},{elsewhere}", **SMALL, apps=[WEB])
    assert (later.code, later.record["status"]) == (0, "RUNNING"), later.output
    tokens = [signed_token(sub=each["id"]) for each in (damaged.record, later.record)]
    headers = [("--header", f"Authorization: Bearer {token}") for token in tokens]
    wait_until(lambda: curl(USER, url, *headers[1]) == (200, "main1\n"), seconds=60)
    assert curl(USER, url, *headers[0])[0] == 403
    assert sessions.terminate(name=name).code == 0
    assert [curl(USER, url, *options)[0] for options in headers] == [404, 404]
    assert not answers_ssh(USER, access["ssh"]["host"], access["ssh"]["port"])
    # The next pass gives the port back, because the gateway has heard of the end since.
    assert sessions.run("schedule_sessions").code == 0
    assert agent_state() == sessions.initial_state
    again = sessions.terminate(id=damaged.record["id"])
    assert (again.code, again.changed) == (0, 0), again.output


def test_an_agent_that_reboots_restores_its_sessions_and_is_closed_before_anything_listens(train: Training) -> None:
    """One of each engine version, at the same time."""
    kernels, agents = train.session.kernels, ("agent1", "agent3")
    before, ids = inside(kernels), {name: container["Id"] for name, container in containers(train.name).items()}
    are_back = {agent: reboot(agent) for agent in agents}
    wait_until(lambda: all(is_back() and takes_sessions(agent) for agent, is_back in are_back.items()))
    wait_until(lambda: all_can_log_in(kernels))
    assert inside(kernels) == before
    assert {name: container["Id"] for name, container in containers(train.name).items()} == ids
    began = "systemctl show --property=ActiveEnterTimestampMonotonic --value "
    timers = "systemctl is-active backendai-reconcile.timer backendai-health.timer"
    for agent in agents:
        rules, *others = [int(run_on(agent, began + unit)) for unit in ("backendai-firewall", "ssh", "docker")]
        assert 0 < rules < min(others)
        assert run_on(agent, timers).split() == ["active"] * 2


def test_agents_heal_lost_links_entries_and_rules_by_themselves(train: Training) -> None:
    before = network_state()
    link = run_on("agent1", "ip -oneline link show type vxlan | grep -o 'bax-[^:@]*'").split()[0]
    run_on("agent1", f"ip link delete {link}")
    mac = run_on("agent2", f"bridge fdb show dev {link} | grep -w dst | head -1 | cut -d ' ' -f 1").strip()
    run_on("agent2", f"bridge fdb del {mac} dev {link}")
    run_on("agent3", f"nft delete table inet backendai; nft delete table bridge backendai; ip link set {link} nomaster")
    # Their timers look every 30 seconds.
    wait_until(lambda: network_state() == before and all_can_log_in(train.session.kernels), seconds=120)


def test_sessions_outlive_their_engines(train: Training) -> None:
    before = inside(train.session.kernels)
    restarts = {"agent1": "systemctl restart docker", "agent2": "kill -9 $(pidof dockerd)"}
    in_parallel(*[partial(run_on, agent, line) for agent, line in restarts.items()])
    wait_until(lambda: all(takes_sessions(agent) for agent in restarts))
    wait_until(lambda: all_can_log_in(train.session.kernels))
    assert inside(train.session.kernels) == before
