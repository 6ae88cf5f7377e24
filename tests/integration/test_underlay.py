"""Underlays: IPv4 or IPv6, a small MTU, used ports and subnets, and the errors of unusable ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration.inventories import inventory_options
from tests.integration.laboratory import AGENTS, agent_state, run_in, run_on
from tests.integration.programs import run_line
from tests.integration.session_requests import THREE, TWO
from tests.integration.sessions import Sessions

pytestmark = pytest.mark.network

ON_TWO = {**TWO, "designated_agents": ["agent1", "agent2"]}


@contextmanager
def arranged(agent: str, begin: str, end: str) -> Iterator[None]:
    """Run a shell line on an agent, and another one afterwards to undo it."""
    run_on(agent, begin)
    try:
        yield
    finally:
        run_on(agent, end)


@pytest.fixture
def ipv6_underlay() -> Iterator[dict[str, str]]:
    """Give each agent an IPv6 underlay address; return them by agent."""
    addresses = {agent: f"fd00:6261:6900::{number}" for number, agent in enumerate(AGENTS, 1)}
    for agent, address in addresses.items():
        run_on(agent, f"ip -6 addr add {address}/64 dev eth0 nodad")
    yield addresses
    for agent, address in addresses.items():
        run_on(agent, f"ip -6 addr del {address}/64 dev eth0")


def test_a_session_crosses_an_ipv6_underlay(sessions: Sessions, tmp_path: Path, ipv6_underlay: dict[str, str]) -> None:
    ipv6_options = inventory_options(
        tmp_path, **{agent: {"agent_underlay_address": address} for agent, address in ipv6_underlay.items()}
    )
    run = sessions.create(*ipv6_options, **THREE)
    assert run.code == 0, run.output
    assert run.record["network"]["mtu"] == 1430
    main, sub = run.record["kernels"][:2]
    assert run_in(main, "ssh", sub["hostname"], "hostname").strip() == sub["hostname"]
    (entry, *rest) = run_on(main["agent"], "bridge fdb show | grep 'dst fd00:'").splitlines()
    assert len(rest) == 1, "each container of another agent has one entry"
    assert any(address in entry for address in ipv6_underlay.values())
    rerun = sessions.create(*ipv6_options, **THREE)
    assert (rerun.code, rerun.changed) == (0, 0)


HOLD_PORT = f"systemd-run --quiet --unit=listener {run_line('hold_udp_port', 4789)}"
NARROW = "ip link add narrow mtu 1300 type bridge && ip addr add 198.18.0.1/32 dev narrow && ip link set narrow up"


@pytest.mark.parametrize(
    ("begin", "end", "variables", "sentence"),
    [
        (
            f"{HOLD_PORT}; until ss -Hlun | grep -q ':4789 '; do sleep 0.1; done",
            "systemctl stop listener",
            {},
            "session_vxlan_port: 4789 is used on agent2 by another program; choose another one for all sessions",
        ),
        (
            "ip link add foreign type vxlan id 42 local 127.0.0.1 dstport 4789",
            "ip link del foreign",
            {},
            "session_vxlan_port: 4789 is used on agent2 by the link foreign; choose another one for all sessions",
        ),
        (
            NARROW,
            "ip link del narrow",
            {"agent_underlay_address": "198.18.0.1"},
            "agent_underlay_address: narrow of agent2 has an MTU of 1300, a tunnel needs at least 1330",
        ),
    ],
    ids=["port of a program", "port of a link", "MTU"],
)
def test_unusable_underlay_is_an_error_and_nothing_is_created(
    sessions: Sessions,
    tmp_path: Path,
    begin: str,
    end: str,
    variables: dict[str, Any],
    sentence: str,
) -> None:
    with arranged("agent2", begin, end):
        before = agent_state()
        run = sessions.create(*inventory_options(tmp_path, agent2=variables), **ON_TWO)
        assert agent_state() == before
    assert run.code != 0
    assert sentence in run.text
    assert run.record["status"] == "ERROR"


def test_subnet_overlapping_a_route_is_skipped(sessions: Sessions) -> None:
    begin = "ip link add away type bridge && ip link set away up && ip route add 10.200.8.0/30 dev away"
    with arranged("agent2", begin, "ip link del away"):
        run = sessions.create("--check", "--diff", **ON_TWO, network_pool="10.200.8.0/28")
    assert run.code == 0, run.output
    assert "+network vxlan 10.200.8.8/29" in run.text
