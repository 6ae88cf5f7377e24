"""Exposure of an agent by the network around it, and the separation of management and compute."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._firewall.audit import (
    NetworkExposure,
    Zones,
    audit,
    audit_zones,
    filters_ipv6,
)

GOOD = NetworkExposure(("10.77.9.11", "fd00::1", "100.64.0.1", "169.254.0.7"), ("10.77.9.0/24",), (), ("eth0",), True)
ADVICE = "put agents on a private network that only managers and gateways reach from outside"
APART = {"managers": {"manager1": "10.1.0.1"}, "users": {"user1": "10.2.0.1"}}


def audited(others: dict[str, dict[str, str]] | None = None, **changes: Any) -> list[tuple[str, str]]:
    findings = audit(GOOD._replace(**changes), APART if others is None else others)
    return [(finding.kind, finding.message) for finding in findings]


def test_an_isolated_agent_has_no_findings() -> None:
    assert audited() == []
    assert audited({}) == []


@pytest.mark.parametrize("address", ["192.88.99.7", "2600::7"])
def test_a_public_address_is_a_finding(address: str) -> None:
    ((kind, message),) = audited(addresses=("10.77.9.11", address))
    assert (kind, message) == (
        "public_address",
        f"it has the public address {address}, reachable from everywhere: {ADVICE}",
    )


def test_managers_and_users_on_the_agent_network_are_named() -> None:
    hosts = {"managers": {"manager1": "10.77.9.2"}, "users": {"user1": "10.77.9.31", "user2": "10.2.0.1"}}
    ((kind, message),) = audited(hosts)
    assert kind == "shared_network"
    assert message.startswith(
        "managers manager1 (10.77.9.2) and users user1 (10.77.9.31) share the agents' own network 10.77.9.0/24: "
    )


def test_users_are_findings_in_each_address_family() -> None:
    ((_kind, message),) = audited(
        {"managers": {}, "users": {"user1": "fd00::31"}}, networks=("10.77.9.0/24", "fd00::/64")
    )
    assert message.startswith("users user1 (fd00::31) share the agents' own network 10.77.9.0/24, fd00::/64: ")


@pytest.mark.parametrize(
    ("address", "place"), [("0.0.0.0", "0.0.0.0:2375"), ("::", "[::]:2375"), ("10.77.9.11", "10.77.9.11:2375")]
)
def test_a_tcp_socket_of_docker_is_a_finding(address: str, place: str) -> None:
    ((kind, message),) = audited(engine=((address, 2375),))
    assert kind == "engine_socket"
    assert message.startswith(f"the Docker engine listens at {place}: unless it requires certificates, ")


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_loopback_socket_of_docker_is_a_finding(address: str) -> None:
    ((kind, message),) = audited(engine=((address, 2375),))
    assert kind == "engine_socket"
    assert ":2375, on this host alone: every user of this host, " in message


def test_swarm_ports_are_not_findings() -> None:
    assert audited(engine=(("::", 2377), ("::", 7946))) == []


def test_unfiltered_ipv6_is_a_finding_with_interfaces() -> None:
    ((kind, message),) = audited(filtered6=False, local_ipv6=("eth0", "eth1"))
    assert kind == "ipv6"
    assert message.startswith("IPv6 is up on eth0, eth1 and no rule drops incoming IPv6: ")


def test_without_ipv6_no_filter_is_required() -> None:
    assert audited(filtered6=False, local_ipv6=()) == []


def chain(family: str, name: str, **more: str) -> dict[str, Any]:
    return {"chain": {"family": family, "table": "some", "name": name, **more}}


def rule(*words: str) -> dict[str, Any]:
    return {"rule": {"family": "inet", "table": "some", "chain": "in", "expr": [{word: None} for word in words]}}


INPUT = {"hook": "input", "policy": "accept"}


@pytest.mark.parametrize(
    ("entries", "filtered"),
    [
        ([], False),
        ([{"metainfo": {}}], False),
        ([chain("inet", "in", **INPUT)], False),
        ([chain("inet", "in", hook="input", policy="drop")], True),
        ([chain("ip6", "in", hook="input", policy="drop")], True),
        ([chain("ip", "in", hook="input", policy="drop")], False),
        ([chain("inet", "fwd", hook="forward", policy="drop")], False),
        ([chain("inet", "ours")], False),
        ([{"chain": {"family": "inet", "table": "backendai", "name": "ours"}}], True),
        ([chain("inet", "in", **INPUT), rule("match", "drop")], False),
        ([chain("inet", "in", **INPUT), rule("match", "accept"), rule("counter", "reject")], True),
        ([chain("inet", "in", **INPUT), rule("drop"), rule("match", "accept")], False),
    ],
)
def test_a_ruleset_filters_ipv6_if_it_drops_by_default(entries: list[Any], filtered: bool) -> None:
    assert filters_ipv6({"nftables": entries}, "backendai", "ours") == filtered


SEPARATE = Zones(
    management=("10.1.0.0/16", "fd01::/64"),
    compute=("10.2.0.0/16", "fd02::/64"),
    ssh_address="10.1.0.7",
    underlay_address="10.2.0.7",
    interfaces={"eth0": ("10.1.0.7", "fd01::7"), "eth1": ("10.2.0.7", "fd02::7"), "eth2": ("192.0.2.7",)},
)


def mixed(**changes: Any) -> list[tuple[str, str]]:
    return [(finding.kind, finding.message) for finding in audit_zones(SEPARATE._replace(**changes))]


def test_separate_networks_are_no_finding() -> None:
    assert mixed() == []
    assert mixed(ssh_address="fd01::7", underlay_address="fd02::7") == []


def test_networks_that_are_not_declared_are_no_finding() -> None:
    assert mixed(management=(), compute=()) == []


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ("agent_management_networks", "agent_compute_networks"),
        ("agent_compute_networks", "agent_management_networks"),
    ],
)
def test_one_zone_without_the_other_is_a_finding(given: str, missing: str) -> None:
    assert mixed(**{missing.removeprefix("agent_").removesuffix("_networks"): ()}) == [
        ("half_declared", f"{given} needs {missing} beside it, which is empty: declare both, or neither")
    ]


def test_overlapping_networks_are_one_finding_with_each_pair() -> None:
    ((kind, message),) = mixed(compute=("10.0.0.0/8", "fd01::/48", "192.0.2.0/24"), underlay_address="")
    assert kind == "overlap"
    assert message == (
        "agent_management_networks and agent_compute_networks overlap: 10.1.0.0/16 and 10.0.0.0/8, fd01::/64 and"
        " fd01::/48; give management and compute networks of their own"
    )


@pytest.mark.parametrize("address", ["10.2.0.7", "192.0.2.7", "fd02::7"])
def test_ssh_outside_of_management_is_a_finding(address: str) -> None:
    assert mixed(ssh_address=address) == [
        (
            "ssh_address",
            (
                f"SSH reaches it at {address}, which is not in agent_management_networks (10.1.0.0/16, fd01::/64): set"
                " ansible_host to its address there"
            ),
        )
    ]


def test_a_connection_without_ssh_has_no_address_to_judge() -> None:
    assert mixed(ssh_address="") == []


@pytest.mark.parametrize(("address", "shown"), [("10.1.0.7", "10.1.0.7"), ("", "none")])
def test_an_underlay_outside_of_compute_is_a_finding(address: str, shown: str) -> None:
    assert mixed(underlay_address=address) == [
        (
            "underlay_address",
            (
                f"its underlay address ({shown}) is not in agent_compute_networks (10.2.0.0/16, fd02::/64): set"
                " agent_underlay_address to its address there"
            ),
        )
    ]


def test_an_interface_with_addresses_of_both_is_a_finding() -> None:
    shared = {"eth0": ("10.1.0.7", "fd02::7"), "eth1": ("10.2.0.7",), "eth2": ("10.1.0.8", "10.2.0.8")}
    advice = "give each an interface or a VLAN of its own"
    assert mixed(interfaces=shared) == [
        ("shared_interface", f"eth0 has addresses of management (10.1.0.7) and of compute (fd02::7): {advice}"),
        ("shared_interface", f"eth2 has addresses of management (10.1.0.8) and of compute (10.2.0.8): {advice}"),
    ]
