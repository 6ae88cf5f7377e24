"""The tables of an agent in each state that the benchmark compares."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._firewall.isolation_policy import IsolationPolicy
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.policy import Firewall
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.ruleset import render
from ansible_collections.backendai.cluster.plugins.module_utils._network.name_servers import name_servers
from ansible_collections.backendai.cluster.plugins.module_utils._network.pins import Pin
from ansible_collections.backendai.cluster.plugins.plugin_utils import host_program
from tests.bench import agent_rules, lab, rulesets
from tests.bench.errors import BenchError
from tests.bench.figures import FIGURES

FIREWALL = Firewall(ssh_sources=("192.0.2.10/32",), ssh_ports=(22,), gateways=(), agents=("192.0.2.0/28",), allow=())
EXTERNAL = ("eth0",)
POLICY = IsolationPolicy(
    agents=("192.0.2.0/28",),
    bridges=(),
    ports=(4789,),
    peers={"pinned4": (("192.0.2.2", "02:00:00:00:00:02", "4096"),)},
    pins=(Pin("veth1", "02:42:ac:1e:00:02", "172.30.0.2"),),
)
RULESET = render(POLICY, FIREWALL, EXTERNAL)


def unquoted(elements: list[str]) -> list[tuple[str, ...]]:
    """Return the parts of each element, without quotation marks."""
    return [tuple(element.replace('"', "").split(" . ")) for element in elements]


def test_other_sessions_have_the_elements_that_real_ones_would_have() -> None:
    added, peers = rulesets.other_sessions(), rulesets.other_peers()
    more = dataclasses.replace(
        POLICY,
        bridges=tuple(bridge for bridge, _same in unquoted(added["session_bridges"])),
        peers={"pinned4": (*POLICY.peers["pinned4"], *peers)},
        published=tuple((address, port) for address, port in unquoted(added["published4"])),
        pins=(*POLICY.pins, *(Pin(*sender) for sender in unquoted(added["senders"]))),
    )
    assert rulesets.with_peers(rulesets.with_elements(RULESET, added), peers) == render(more, FIREWALL, EXTERNAL)


def test_other_sessions_are_as_many_as_the_figures_say() -> None:
    sizes = {name: len(set(elements)) for name, elements in rulesets.other_sessions().items()}
    per_session, per_container = ("session_bridges", "published4"), ("containers", "ports", "senders")
    assert {len(set(rulesets.other_peers())), *(sizes[name] for name in per_session)} == {rulesets.SESSIONS}
    assert {sizes[name] for name in per_container} == {rulesets.CONTAINERS}
    for name in ("many_sessions_stream", "many_sessions_cpu_per_packet"):
        assert f"the rules of {rulesets.SESSIONS} other sessions" in FIGURES[name].what


def test_other_sessions_have_addresses_and_names_that_no_host_has() -> None:
    added, peers = rulesets.other_sessions(), rulesets.other_peers()
    elements = [*unquoted([element for listed in added.values() for element in listed]), *peers]
    addresses = {part for element in elements for part in element if re.fullmatch(r"[\d.]+\.\d+", part)}
    reserved = [ip_network(network) for network in ("198.51.100.0/24", "203.0.113.0/24", "198.18.0.0/15")]
    assert len(addresses) == rulesets.SESSIONS + rulesets.CONTAINERS + 1
    assert all(any(ip_address(address) in network for network in reserved) for address in addresses)
    names = {part for element in elements for part in element if "bench" in part}
    assert len(names) == rulesets.SESSIONS + rulesets.CONTAINERS
    assert max(map(len, names)) <= 15
    assert all(int(vni) < 1 << 24 for _address, _mac, vni in peers)


def test_a_ruleset_that_lacks_a_set_is_an_error() -> None:
    with pytest.raises(BenchError, match="no set senders"):
        rulesets.with_elements("    set sender { type ifname;  }\n", {"senders": ["a"]})


def test_a_ruleset_without_tunnels_is_an_error() -> None:
    with pytest.raises(BenchError, match="no tunnel"):
        rulesets.with_peers(render(dataclasses.replace(POLICY, peers={})), rulesets.other_peers())


def test_each_state_replaces_any_other() -> None:
    states = rulesets.states(RULESET)
    assert states["applied"] == RULESET
    assert states["unguarded"] == f"{RULESET}flush chain inet backendai ingress\n"
    assert states["without_tables"] == (
        "table inet backendai\ndelete table inet backendai\ntable bridge backendai\ndelete table bridge backendai\n"
    )
    assert all(text.startswith("table inet backendai\ndelete table inet backendai\n") for text in states.values())
    assert "chain ingress {" in RULESET


def test_tables_are_replaced_on_both_agents_when_the_state_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, str, str]] = []

    def run_on(agent: str, line: str, text: str = "") -> str:
        calls.append((agent, line, text))
        return RULESET.strip()

    monkeypatch.setattr(lab, "run_on", run_on)
    tables = rulesets.Rulesets()
    source = Path(agent_rules.__file__).read_text()
    line = "PYTHONPATH=/usr/local/lib/backendai/current/source.pyz python3 - /var/lib/backendai"
    assert calls == [("agent1", line, source), ("agent2", line, source)]
    calls.clear()
    for state in ("applied", "unguarded", "unguarded", "applied"):
        tables.apply(state)
    states = rulesets.states(f"{RULESET.strip()}\n")
    expected = [(agent, states[state]) for state in ("unguarded", "applied") for agent in ("agent1", "agent2")]
    assert sorted(calls) == sorted((agent, "nft --file -", text) for agent, text in expected)
    assert [text for _agent, _line, text in calls] == [text for _agent, text in expected]


def test_reconciliation_continues_even_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[dict[str, str]] = []
    monkeypatch.setattr(lab, "run_on_each", lines.append)

    def fail() -> None:
        with rulesets.stopped_reconciliation():
            assert len(lines) == 1
            raise BenchError

    with pytest.raises(BenchError):
        fail()
    stop = "systemctl stop backendai-reconcile.timer && systemctl start backendai-reconcile.service"
    start = "systemctl start backendai-reconcile.service backendai-reconcile.timer"
    assert lines == [dict.fromkeys(("agent1", "agent2", "agent3"), line) for line in (stop, start)]


def test_an_agent_prints_its_tables_with_the_installed_program(tmp_path: Path) -> None:
    (tmp_path / "source.pyz").write_bytes(host_program.archive())
    for command in ("ip", "bridge"):
        (tmp_path / command).write_text("#!/bin/sh\necho '[]'\n")
        (tmp_path / command).chmod(0o755)
    # Without site-packages, as on an agent.
    process = subprocess.run(
        [sys.executable, "-S", "-", str(tmp_path / "state")],
        input=Path(agent_rules.__file__).read_text(),
        env={"PYTHONPATH": str(tmp_path / "source.pyz"), "PATH": f"{tmp_path}:{os.defpath}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout == render(IsolationPolicy((), (), (), {}, name_servers=tuple(name_servers())))
