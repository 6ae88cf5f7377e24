"""Tests for what containers may not reach of the world."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._firewall.egress import (
    NOTHING_CLOSED,
    NOTHING_OPEN,
    EgressPolicy,
    Service,
    parse_egress,
    plan_egress,
    read_egress,
    save_egress,
)
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.isolation_policy import IsolationPolicy
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.policy import Firewall
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.ruleset import render
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.state import FirewallState
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.sync import sync_ruleset
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import CorruptStateError, Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change
from ansible_collections.backendai.cluster.plugins.module_utils._model.validation import ValidationError
from tests.unit.fake_network import FakeNetwork

STORAGE = EgressPolicy(
    closed_networks=("192.0.2.0/24", "198.51.100.7/32"),
    closed_services=(Service("tcp", ("22",), ("203.0.113.4/32",)),),
    allowed=(Service("udp", ("123", "8000-8099"), ("192.0.2.9/32", "192.0.2.16/28")),),
)


def options(**changes: Any) -> dict[str, Any]:
    return {"closed_networks": [], "closed_services": [], "allow": [], "open_storage": [], **changes}


def test_networks_and_services_are_parsed_without_ipv6() -> None:
    assert parse_egress(options()) == NOTHING_CLOSED
    assert (
        parse_egress(
            options(
                closed_networks=["198.51.100.7", "192.0.2.0/25", "192.0.2.128/25", "2001:db8::/32"],
                closed_services=[
                    {"ports": [22], "destinations": ["203.0.113.4"]},
                    {"ports": [22], "destinations": ["2001:db8::1"]},
                ],
                allow=[
                    {"protocol": "udp", "ports": ["123", "8000-8099"], "destinations": ["192.0.2.9", "192.0.2.16/28"]}
                ],
            )
        )
        == STORAGE
    )


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"closed_networks": ["192.0.2.1/24"]},
            (
                "agent_closed_networks: '192.0.2.1/24' is a network with host bits: it must be the network's own"
                " address, such as 10.0.0.0/8."
            ),
        ),
        (
            {"open_storage": ["storage"]},
            "agent_open_storage: 'storage' must be an address or a network, such as 192.0.2.7 or 192.0.2.0/24.",
        ),
        (
            {"closed_networks": ["storage"]},
            "agent_closed_networks: 'storage' must be an address or a network, such as 192.0.2.7 or 192.0.2.0/24.",
        ),
        (
            {"allow": [{"ports": [1], "destinations": ["192.0.2.1"], "protocol": "any"}]},
            "agent_egress_allow[0].protocol: 'any' must be one of tcp, udp.",
        ),
        ({"allow": [{"ports": [1]}]}, "agent_egress_allow[0].destinations is required."),
        ({"allow": [{"destinations": ["192.0.2.1"]}]}, "agent_egress_allow[0].ports is required."),
        (
            {"allow": [{"ports": ["0"], "destinations": ["192.0.2.1"]}]},
            "agent_egress_allow[0].ports: '0' must be ports from 1 to 65535, ranges from low to high.",
        ),
        (
            {"allow": [{"ports": [1], "sources": ["192.0.2.1"], "destinations": ["192.0.2.1"]}]},
            "agent_egress_allow[0].sources is not known; allowed are protocol, ports, destinations.",
        ),
    ],
)
def test_invalid_policy_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError) as raised:
        parse_egress(options(**changes))
    assert str(raised.value) == sentence


def test_stored_policy_is_compared_and_applied(store: Store, kernel: FakeNetwork) -> None:
    assert read_egress(store) == NOTHING_CLOSED
    assert plan_egress(store, NOTHING_CLOSED) == []
    only_networks = EgressPolicy(closed_networks=STORAGE.closed_networks)
    assert plan_egress(store, only_networks) == [
        Change("egress closed_networks", "[]", '["192.0.2.0/24", "198.51.100.7/32"]')
    ]
    save_egress(store, STORAGE)
    assert (read_egress(store), plan_egress(store, STORAGE)) == (STORAGE, [])
    assert store.egress_file.stat().st_mode & 0o777 == 0o600
    sync_ruleset(store, check_mode=False)
    assert "set closed_networks { type ipv4_addr; flags interval; elements = { 192.0.2.0/24, 198.51.100.7/32 } }" in (
        kernel.table
    )


def test_damaged_policy_closes_everything_until_provisioning_replaces_it(store: Store, kernel: FakeNetwork) -> None:
    FirewallState(store).save(Firewall(("192.0.2.7/32",)), None)
    store.egress_file.write_text("{")
    with pytest.raises(CorruptStateError, match=r"egress\.json is damaged \(.*\): provision this host again"):
        read_egress(store)
    sync_ruleset(store, check_mode=False)
    assert (
        f"set closed_networks {{ type ipv4_addr; flags interval; elements = {{ {NOTHING_OPEN.closed_networks[0]} }}"
        in (kernel.table)
    )
    assert "chain host_firewall {" in kernel.table
    assert plan_egress(store, STORAGE)[0] == Change(
        "egress closed_networks", None, '["192.0.2.0/24", "198.51.100.7/32"]'
    )


def test_exceptions_precede_what_is_closed_and_open_no_agent() -> None:
    isolation = IsolationPolicy(("192.0.2.1",), (), (), {}, egress=STORAGE, name_servers=("192.0.2.53",))
    text = render(isolation)
    _before, _drop, rules = text[: text.index("# Incoming traffic")].partition("ip daddr 169.254.0.0/16")
    assert [line for line in map(str.strip, rules.splitlines()[1:]) if not line.startswith("#")][:5] == [
        "ip daddr @name_servers meta l4proto { tcp, udp } th dport 53 return",
        "ip daddr @agents goto drop_agent",
        "ip daddr { 192.0.2.9/32, 192.0.2.16/28 } udp dport { 123, 8000-8099 } return",
        "ip daddr { 203.0.113.4/32 } tcp dport { 22 } goto drop_closed",
        "ip daddr @closed_networks goto drop_closed",
    ]
    assert "set name_servers { type ipv4_addr; elements = { 192.0.2.53 } }" in text
