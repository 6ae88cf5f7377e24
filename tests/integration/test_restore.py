"""Sessions come back without Ansible: after a reboot, an engine's restart, a lost link."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial

import pytest

from tests.integration.containers import whole
from tests.integration.internals import CHAIN_OF_SESSIONS, HEAL_AGENT, TABLE, TUNNEL_PREFIX
from tests.integration.laboratory import Kernel, at_once, inside, on
from tests.integration.reboots import engine_answers, reboot
from tests.integration.session_requests import FOUR
from tests.integration.sessions import Started, started
from tests.integration.waiting import eventually

pytestmark = pytest.mark.faults

KILL_ENGINE = "kill -9 $(pidof dockerd)"
LOOK = (
    "hostname; cat /proc/net/route | awk '$2 == \"00000000\" {print $1}'; cat /etc/hosts; "
    "cat /sys/class/net/cluster0/address /sys/class/net/cluster0/mtu; "
    "cat ~/.ssh/id_ed25519.pub; sha256sum < ~/.ssh/known_hosts"
)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    """Four containers over three agents, of two engines; in the end a second run finds nothing to change."""
    with started(tmp_path_factory.mktemp("restore"), **FOUR) as session:
        yield session
        unchanged = session.again()
        assert (unchanged.code, unchanged.changed) == (0, 0), unchanged.output
        assert unchanged.record == session.record


def look(kernels: Sequence[Kernel]) -> list[str]:
    """Return what containers are to those inside: names, addresses, MACs, MTUs, the default route, keys."""
    return at_once(*[partial(inside, kernel, "sh", "-c", LOOK) for kernel in kernels])


@pytest.mark.parametrize("agent", ["agent1", "agent3"])
def test_a_rebooted_agent_has_its_containers_back_as_they_were(session: Started, agent: str) -> None:
    kernels = session.kernels
    others = [kernel for kernel in kernels if kernel["agent"] != agent]
    before = look(kernels)
    is_back = reboot(agent)
    eventually(lambda: not engine_answers(agent))
    assert whole(others), "the agents that did not restart have lost each other"
    eventually(lambda: is_back() and engine_answers(agent))
    seconds = eventually(lambda: whole(kernels))
    print(f"{agent}: whole {seconds:.1f} s after its engine was up")
    assert look(kernels) == before


def test_restarted_and_killed_engines_have_their_containers_back(session: Started) -> None:
    before = look(session.kernels)
    restarts = {"agent1": "systemctl restart docker", "agent2": KILL_ENGINE, "agent3": KILL_ENGINE}
    at_once(*[partial(on, agent, restart) for agent, restart in restarts.items()])
    eventually(lambda: all(engine_answers(agent) for agent in restarts))
    seconds = eventually(lambda: whole(session.kernels))
    print(f"whole {seconds:.1f} s after the last engine was up")
    assert look(session.kernels) == before


def test_lost_links_entries_and_rules_come_back_by_themselves(session: Started) -> None:
    kernels = session.kernels
    link = on("agent1", f"ls /sys/class/net | grep ^{TUNNEL_PREFIX}").strip()
    entries = f"bridge -j fdb show dev {link}"
    on("agent1", f"ip link del {link}")
    mac = next(entry["mac"] for entry in json.loads(on("agent2", entries)) if "dst" in entry)
    on("agent2", f"bridge fdb del {mac} dev {link}")
    on("agent3", f"nft delete table {TABLE}; ip link set {link} nomaster")
    chain, look_for = f"chain {CHAIN_OF_SESSIONS} {{", f"nft list table {TABLE}"
    eventually(lambda: chain in on("agent3", look_for, check=False) and whole(kernels))
    journal = on("agent1", f"journalctl --unit {HEAL_AGENT} --no-pager --since -2min")
    assert f"link {link}: missing -> vni" in journal
