"""The limit of tracked connections of each container, in the rules of an agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._firewall import connections
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.connections import (
    ConnectionLimit,
    parse_connection_limit,
    plan_connection_limit,
    read_connection_limit,
    render_connections,
    save_connection_limit,
)
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.sync import sync_ruleset
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import CorruptStateError, Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change
from ansible_collections.backendai.cluster.plugins.module_utils._model.validation import ValidationError
from tests.unit.fake_network import FakeNetwork

CHANGE = Change("firewall connections", None, "there")


def test_only_new_connections_are_counted() -> None:
    rules = [line.strip() for line in render_connections(5).splitlines()]
    first = rules.index("type filter hook prerouting priority mangle + 1; policy accept;") + 1
    assert rules[first : first + 3] == [
        "ct state != new return",
        'iifname "backendai0" add @container_connections { ip saddr ct count over 5 } goto drop_connections',
        'iifname "bai-*" add @bridge_connections { iifname ct count over 5 } goto drop_connections',
    ]


def test_without_a_limit_the_table_is_empty() -> None:
    assert render_connections(0).endswith("table ip backendai_connections {\n}\n")


def test_the_stored_limit_is_applied_with_the_other_rules(store: Store, kernel: FakeNetwork) -> None:
    sync_ruleset(store, check_mode=False)
    assert kernel.connections == render_connections(32768)
    save_connection_limit(store, ConnectionLimit(7))
    assert sync_ruleset(store, check_mode=True) == [CHANGE]
    assert kernel.connections == render_connections(32768)
    assert sync_ruleset(store, check_mode=False) == [CHANGE]
    assert kernel.connections == render_connections(7)
    assert sync_ruleset(store, check_mode=False) == []


def test_host_without_the_default_network_gets_no_rules(
    store: Store, kernel: FakeNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "interfaces", lambda: ["eth0"])
    kernel.connections = ""
    assert connections.sync_connections(store, check_mode=False) == []
    assert kernel.connections == ""


@pytest.mark.parametrize(("tracked", "limit"), [(262144, 32768), (65536, 16384)], ids=["as stored", "lowered"])
def test_a_container_gets_a_quarter_of_the_agents_table_at_most(
    store: Store, kernel: FakeNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tracked: int, limit: int
) -> None:
    (tmp_path / "tracked").write_text(f"{tracked}\n")
    monkeypatch.setattr(connections, "TRACKED", tmp_path / "tracked")
    sync_ruleset(store, check_mode=False)
    assert kernel.connections == render_connections(limit)


def test_damaged_limit_is_the_default_until_it_is_replaced(store: Store, kernel: FakeNetwork) -> None:
    store.limits_file.write_text("{")
    sync_ruleset(store, check_mode=False)
    assert kernel.connections == render_connections(32768)
    with pytest.raises(CorruptStateError, match=r"limits\.json is damaged .* provision this host again"):
        read_connection_limit(store)
    assert plan_connection_limit(store, ConnectionLimit(5)) == [Change("connections of each container", None, "5")]
    save_connection_limit(store, ConnectionLimit(5))
    assert plan_connection_limit(store, ConnectionLimit(5)) == []
    assert read_connection_limit(store) == ConnectionLimit(5)


@pytest.mark.parametrize(("value", "limit"), [(0, 0), (-1, 0), (100, 100)])
def test_zero_and_minus_one_are_no_limit(value: int, limit: int) -> None:
    assert parse_connection_limit(value) == ConnectionLimit(limit)


def test_invalid_limit_is_one_sentence() -> None:
    with pytest.raises(ValidationError) as refused:
        parse_connection_limit(-5)
    expected = "agent_connection_limit: -5 must be a whole number, zero or more; 0 and -1 are no limit."
    assert str(refused.value) == expected
