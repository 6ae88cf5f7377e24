"""The encrypted underlay of agents, and their peers."""

from __future__ import annotations

import base64
import dataclasses

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.network import (
    BRIDGE_PREFIX,
    Underlay,
    inner_address,
)
from ansible_collections.backendai.cluster.plugins.module_utils._wireguard.mesh import (
    DEVICE,
    WireGuardConfig,
    build_wireguard_config,
    endpoint_port,
    wireguard_underlay,
)
from tests.unit.builders import agent_facts, plan

KEYS = {number: base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2, 3, 4)}
PLAIN = {number: Underlay(f"192.0.2.{number}", "eth0", 1500, f"02:00:00:00:00:0{number}") for number in KEYS}
SECRET = {number: wireguard_underlay(plain, KEYS[number], 51820) for number, plain in PLAIN.items()}
AGENTS = [agent_facts(f"agent{number}", underlay=dataclasses.asdict(SECRET[number])) for number in (1, 2, 3)]


def by_address(*numbers: int) -> tuple[Underlay, ...]:
    return tuple(sorted((SECRET[number] for number in numbers), key=lambda peer: peer.address))


@pytest.mark.parametrize(
    ("address", "mtu", "endpoint"),
    [("192.0.2.1", 1440, "192.0.2.1:51820"), ("2001:db8::1", 1420, "[2001:db8::1]:51820")],
    ids=["IPv4", "IPv6"],
)
def test_encrypted_underlay_has_a_smaller_mtu_and_an_endpoint(address: str, mtu: int, endpoint: str) -> None:
    underlay = wireguard_underlay(Underlay(address, "eth0", 1500, "02:00:00:00:00:01"), KEYS[1], 51820)
    assert underlay == Underlay(inner_address(KEYS[1]), DEVICE, mtu, "", KEYS[1], endpoint)
    assert endpoint_port(underlay) == 51820


def test_the_vxlan_of_an_encrypted_underlay_of_1500_bytes_has_1370() -> None:
    session_plan = plan({"agent1": 1, "agent2": 1}, AGENTS)
    assert session_plan.network is not None
    assert session_plan.network.mtu == 1370


def test_the_device_is_no_bridge_of_a_session() -> None:
    assert not DEVICE.startswith(BRIDGE_PREFIX)


def test_peers_of_all_sessions_are_listed_once() -> None:
    first, two = plan({"agent1": 1, "agent2": 1}, AGENTS), plan({"agent1": 1, "agent2": 1, "agent3": 1}, AGENTS)
    assert build_wireguard_config([(first, "agent1"), (two, "agent1")], KEYS[1]) == WireGuardConfig(
        SECRET[1], by_address(2, 3)
    )


def test_newest_plan_has_the_endpoint_of_an_agent() -> None:
    moved = dataclasses.replace(SECRET[2], endpoint="192.0.2.99:51820")
    old = plan({"agent1": 1, "agent2": 1}, AGENTS)
    new = dataclasses.replace(old, created_at=old.created_at + 1, underlays={**old.underlays, "agent2": moved})
    for order in ([old, new], [new, old]):
        assert build_wireguard_config([(session_plan, "agent1") for session_plan in order], KEYS[1]) == WireGuardConfig(
            SECRET[1], (moved,)
        )


@pytest.mark.parametrize("first", ["agent2", "agent3"])
def test_a_key_that_two_agents_report_is_that_of_the_agent_whose_session_is_older(first: str) -> None:
    lie = dataclasses.replace(SECRET[2], endpoint="192.0.2.3:51820")
    by_agent = {"agent2": plan({"agent1": 1, "agent2": 1}, AGENTS), "agent3": plan({"agent1": 1, "agent3": 1}, AGENTS)}
    underlays = {"agent2": SECRET[2], "agent3": lie}
    held = [
        dataclasses.replace(of, created_at=of.created_at + (name != first), underlays={"agent1": SECRET[1], name: told})
        for (name, of), told in zip(by_agent.items(), underlays.values(), strict=True)
    ]
    config = build_wireguard_config([(of, "agent1") for of in held], KEYS[1])
    assert config == WireGuardConfig(SECRET[1], (underlays[first],))


@pytest.mark.parametrize("counts", [{"agent1": 2}, {"agent1": 1, "agent2": 1}], ids=["one agent", "in the clear"])
def test_a_session_without_encryption_needs_no_mesh(counts: dict[str, int]) -> None:
    assert build_wireguard_config([(plan(counts), "agent1")], KEYS[1]) is None


def test_session_with_a_removed_key_is_ignored() -> None:
    assert build_wireguard_config([(plan({"agent1": 1, "agent2": 1}, AGENTS), "agent1")], KEYS[4]) is None
