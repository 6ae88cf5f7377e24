"""Sessions come back without Ansible: after a reboot, an engine's restart, a lost link."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from tests.integration.conftest import Sessions
from tests.integration.laboratory import AGENTS, TIMEOUT, Run, at_once, inside, on
from tests.integration.test_create import MULTI_NODE

LOGIN = ("ssh", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "ConnectTimeout=2")
LOOK = (
    "hostname; cat /proc/net/route | awk '$2 == \"00000000\" {print $1}'; cat /etc/hosts; "
    "cat /sys/class/net/cluster0/address /sys/class/net/cluster0/mtu; "
    "cat ~/.ssh/id_ed25519.pub; sha256sum < ~/.ssh/known_hosts"
)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Four containers over three agents, of two engines."""
    made = Sessions(tmp_path_factory.mktemp("restore"))
    run = made.create(**MULTI_NODE)
    assert run.code == 0, run.output
    yield run
    unchanged = made.create(**MULTI_NODE)
    assert made.terminate().code == 0
    assert (unchanged.code, unchanged.changed) == (0, 0), unchanged.output
    assert unchanged.record == run.record


def eventually(holds: Callable[[], bool]) -> float:
    """Wait until something holds; return the seconds that it took."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < TIMEOUT
        time.sleep(0.2)
    return time.monotonic() - began


def reaches(source: dict[str, Any], target: dict[str, Any]) -> bool:
    """Tell whether a container logs in to another by its name, at once."""
    return inside(source, *LOGIN, target["hostname"], "hostname", check=False).strip() == target["hostname"]


def answers(agent: str) -> bool:
    """Tell whether a host takes logins and its engine is up."""
    try:
        return on(agent, "systemctl is-active docker", check=False).strip() == "active"
    except subprocess.TimeoutExpired:
        return False


def look(kernels: list[dict[str, Any]]) -> list[str]:
    """Return what containers are to those inside: names, addresses, MACs, MTUs, the default route, keys."""
    return at_once(*[partial(inside, kernel, "sh", "-c", LOOK) for kernel in kernels])


def whole(kernels: list[dict[str, Any]]) -> bool:
    """Tell whether every container logs in to the next in rank order."""
    ring = zip(kernels, [*kernels[1:], kernels[0]], strict=True)
    return all(at_once(*[partial(reaches, one, other) for one, other in ring]))


@pytest.mark.parametrize("agent", ["agent1", "agent3"])
def test_a_rebooted_agent_has_its_containers_back_as_they_were(session: Run, agent: str) -> None:
    kernels = session.record["kernels"]
    others = [kernel for kernel in kernels if kernel["agent"] != agent]
    before = look(kernels)
    on(agent, "systemctl reboot", check=False)
    eventually(lambda: not answers(agent))
    assert whole(others), "the agents that did not restart have lost each other"
    eventually(lambda: answers(agent))
    seconds = eventually(lambda: whole(kernels))
    print(f"{agent}: whole {seconds:.1f} s after its engine was up")
    assert look(kernels) == before


@pytest.mark.parametrize("restart", ["systemctl restart docker", "kill -9 $(pidof dockerd)"])
def test_a_restarted_engine_has_its_containers_back(session: Run, restart: str) -> None:
    kernels = session.record["kernels"]
    before = look(kernels)
    at_once(*[partial(on, agent, restart) for agent in AGENTS])
    eventually(lambda: all(answers(agent) for agent in AGENTS))
    seconds = eventually(lambda: whole(kernels))
    print(f"{restart}: whole {seconds:.1f} s after the last engine was up")
    assert look(kernels) == before


def test_lost_links_entries_and_rules_come_back_by_themselves(session: Run) -> None:
    kernels = session.record["kernels"]
    link = on("agent1", "ls /sys/class/net | grep ^bax-").strip()
    entry = "bridge -j fdb show dev " + link
    on("agent1", f"ip link del {link}")
    mac = next(one["mac"] for one in json.loads(on("agent2", entry)) if "dst" in one)
    on("agent2", f"bridge fdb del {mac} dev {link}")
    on("agent3", f"nft delete table inet backendai; ip link set {link} nomaster")
    eventually(lambda: whole(kernels) and "chain forward" in on("agent3", "nft list tables; nft list ruleset"))
    journal = on("agent1", "journalctl --unit backendai-heal --no-pager --since -2min")
    assert f"link {link}: missing -> vni" in journal


@pytest.mark.parametrize("agent", ["agent1", "agent3"])
def test_the_default_route_is_the_default_networks_and_the_agent_is_not_on_the_session_bridge(
    session: Run, agent: str
) -> None:
    kernel = next(one for one in session.record["kernels"] if one["agent"] == agent)
    assert inside(kernel, "sh", "-c", "awk '$2 == \"00000000\" {print $1}' /proc/net/route").split() == ["eth0"]
    assert sorted(inside(kernel, "ls", "/sys/class/net").split()) == ["cluster0", "eth0", "lo"]
    bridge = json.loads(on(agent, "ip -j addr show type bridge"))
    (ours,) = [link for link in bridge if link["ifname"].startswith("bai-")]
    assert ours["addr_info"] == []
