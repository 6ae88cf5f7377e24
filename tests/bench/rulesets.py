"""Replaces the firewall tables of both agents for a while: without rules, or with those of more sessions."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path

from ansible_collections.backendai.cluster.plugins.module_utils._firewall.table import AGENTS_TABLE
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.tunnel_rules import build_tunnel_rules
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import PROGRAM
from ansible_collections.backendai.cluster.plugins.module_utils._model.addressing import mac_of
from ansible_collections.backendai.cluster.plugins.module_utils._model.network import BRIDGE_PREFIX
from tests.bench import agent_rules, lab
from tests.bench.errors import BenchError
from tests.bench.paths import FAR, NEAR

# Other sessions over both agents, and their containers on each.
SESSIONS, CONTAINERS = 200, 400
# Made-up peers, host addresses and containers, in ranges for documentation and benchmarks (RFC 5737, RFC 2544).
PEERS, HOST, CONTAINER_ADDRESSES = IPv4Address("198.51.100.0"), IPv4Address("203.0.113.1"), IPv4Address("198.18.0.0")
VNI, PUBLISHED_PORT = 16_000_000, 30_000

# States of the tables: as reconciliation applies them, and others.
APPLIED = "applied"
UNGUARDED, MANY_SESSIONS, WITHOUT_TABLES = "unguarded", "many_sessions", "without_tables"


def states(ruleset: str) -> dict[str, str]:
    """Return the input of ``nft`` for each state, given that for the tables of an agent; each can follow any other.

    ``unguarded`` accepts all that arrives at the agent; the difference is the cost of the firewall for a datagram.
    ``many_sessions`` has the rules of :data:`SESSIONS` more sessions.
    """
    tables = [f"table {family} {AGENTS_TABLE.name}" for family in AGENTS_TABLE.families]
    return {
        APPLIED: ruleset,
        UNGUARDED: f"{ruleset}flush chain inet {AGENTS_TABLE.name} ingress\n",
        MANY_SESSIONS: with_peers(with_elements(ruleset, other_sessions()), other_peers()),
        WITHOUT_TABLES: "".join(f"{table}\ndelete {table}\n" for table in tables),
    }


def other_sessions() -> dict[str, list[str]]:
    """Return the elements of other sessions, by set, with values that no session has.

    They are those of sessions over both agents, and the bridges that as many sessions on one agent have.
    """
    numbers = range(1, SESSIONS + 1)
    bridges = [f'"{BRIDGE_PREFIX}bench-{number}"' for number in numbers]
    containers = [(f'"bench-{number}"', str(CONTAINER_ADDRESSES + number)) for number in range(1, CONTAINERS + 1)]
    return {
        "session_bridges": [f"{bridge} . {bridge}" for bridge in bridges],
        "published4": [f"{HOST} . {PUBLISHED_PORT + number}" for number in numbers],
        "containers": [f"{address} . {mac_of(address)}" for _port, address in containers],
        "container_addresses": [address for _port, address in containers],
        "ports": [port for port, _address in containers],
        "port_macs": [mac_of(address) for _port, address in containers],
        "senders": [f"{port} . {mac_of(address)} . {address}" for port, address in containers],
    }


def other_peers() -> list[tuple[str, str, str]]:
    """Return who may send to the tunnels of other sessions over both agents: address, MAC and network of each."""
    numbers = range(1, SESSIONS + 1)
    return [(str(PEERS + number), mac_of(str(PEERS + number)), str(VNI + number)) for number in numbers]


def with_peers(ruleset: str, peers: Iterable[tuple[str, str, str]]) -> str:
    """Return a ruleset with more networks. Raises :class:`BenchError` if it has none, beside which they would be."""
    added = build_tunnel_rules({"pinned4": peers})
    sets = [
        f"    set {name} {{ {kind}; elements = {{ {added.elements[name][0]} }} }}\n"
        for name, kind in added.sets.items()
    ]
    lookup, _end, chains = added.chains.partition("    }\n")
    for pattern, text in (
        (r"^    set pinned4_\d+ .*\n", "".join(sets)),
        (r"vmap \{ .*(?= \})", f", {lookup.partition('vmap { ')[2].partition(' }')[0]}"),
        (r"^    chain vni_\d+ \{\n(?: {8}.*\n)*    \}\n", chains),
    ):
        found = [*re.finditer(pattern, ruleset, re.MULTILINE)]
        if not found:
            raise BenchError("the rules of an agent have no tunnel, and those of more sessions are added beside one")
        ruleset = f"{ruleset[: found[-1].end()]}{text}{ruleset[found[-1].end() :]}"
    return ruleset


def with_elements(ruleset: str, added: Mapping[str, Iterable[str]]) -> str:
    """Return a ruleset with more elements in its sets. Raises :class:`BenchError` if it lacks one of the sets."""
    for name, elements in added.items():
        line = re.search(rf"^( *set {name} {{ .*?;) (?:elements = {{ (.*) }})? }}$", ruleset, re.MULTILINE)
        if not line:
            raise BenchError(f"the rules of an agent have no set {name}, which those of more sessions are added to")
        listed = ", ".join([*filter(None, [line[2]]), *elements])
        ruleset = f"{ruleset[: line.start()]}{line[1]} elements = {{ {listed} }} }}{ruleset[line.end() :]}"
    return ruleset


@contextlib.contextmanager
def stopped_reconciliation() -> Iterator[None]:
    """Stop reconciliation on all agents, which share the machine's cores; afterwards it restores their tables."""
    service, timer = "backendai-reconcile.service", "backendai-reconcile.timer"
    try:
        # A run that has begun is waited for.
        lab.run_on_each(dict.fromkeys(lab.AGENTS, f"systemctl stop {timer} && systemctl start {service}"))
        yield
    finally:
        lab.run_on_each(dict.fromkeys(lab.AGENTS, f"systemctl start {service} {timer}"))


class Rulesets:
    """The tables of both agents, while reconciliation is stopped; the sessions must exist already."""

    def __init__(self) -> None:
        self._states = {agent: states(_read(agent)) for agent in (NEAR, FAR)}
        self._current = APPLIED

    def apply(self, state: str) -> None:
        """Bring the tables of both agents into a state."""
        if state != self._current:
            lab.in_parallel(
                [partial(lab.run_on, agent, "nft --file -", texts[state]) for agent, texts in self._states.items()]
            )
            self._current = state


def _read(agent: str) -> str:
    source = Path(agent_rules.__file__).read_text()
    return f"{lab.run_on(agent, f'PYTHONPATH={PROGRAM} python3 - {lab.AGENT_STATE}', source)}\n"
