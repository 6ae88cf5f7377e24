# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Limits the connections that the kernel tracks for each container, so that none fills the table of the whole agent.

The rules are in a table of their own: it counts connections, and a table that is replaced begins at 0.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from .._host.store import CorruptStateError, Store
from .._model.change import Change
from .._model.errors import as_phrase
from .._model.files import write_atomically
from .._model.limits import parse_limit
from .._model.network import BRIDGE_PREFIX, DEFAULT_BRIDGE
from .._model.state_format import StateFormat
from .._model.validation import ValidationErrors
from .._network.host import interfaces
from .table import LOG_RATE, TABLE, Table

NAME = f"{TABLE}_connections"
CONNECTIONS_TABLE = Table(NAME, "provision_agents", ("ip",))

# The kernel's limit of tracked connections; missing until something tracks connections.
TRACKED = Path("/proc/sys/net/netfilter/nf_conntrack_max")

# A container may use this part of the agent's table at most.
SHARE = 4


@dataclasses.dataclass(frozen=True)
class ConnectionLimit:
    """How many connections of a container the agent tracks at a time; 0 for any number."""

    connections: int = 32768


_FORMAT = StateFormat("the limits", ConnectionLimit)


def parse_connection_limit(value: int) -> ConnectionLimit:
    """Return the limit of the option ``agent_connection_limit``; raises :class:`ValidationError`."""
    problems = ValidationErrors()
    limit = parse_limit(problems, "agent_connection_limit", value)
    problems.raise_if_any()
    return ConnectionLimit(limit)


def read_connection_limit(store: Store) -> ConnectionLimit:
    """Return the stored limit of this host, by default that of the class; raises :class:`CorruptStateError`."""
    try:
        return parse_connection_limit(_FORMAT.load(store.limits_file.read_bytes()).connections)
    except FileNotFoundError:
        return ConnectionLimit()
    except (OSError, ValueError) as error:
        raise CorruptStateError(
            f"{store.limits_file} is damaged ({as_phrase(error)}): provision this host again, which replaces it."
        ) from error


def plan_connection_limit(store: Store, limit: ConnectionLimit) -> list[Change]:
    """Return the difference of the stored limit from ``limit``; a damaged file is replaced."""
    try:
        before = str(read_connection_limit(store).connections)
    except CorruptStateError:
        before = None
    after = str(limit.connections)
    return [] if before == after else [Change("connections of each container", before, after)]


def save_connection_limit(store: Store, limit: ConnectionLimit) -> None:
    """Store the limit; the rules change with the next :func:`sync_connections`."""
    write_atomically(store.limits_file, _FORMAT.dump(limit))


def sync_connections(store: Store, *, check_mode: bool) -> list[Change]:
    """Apply the stored limit and return the changes; with ``check_mode`` they are only computed.

    While the stored limit is damaged, the default one applies. A host without the default network, such as a gateway,
    has no containers and gets no rules. Raises :class:`FirewallError`.
    """
    if DEFAULT_BRIDGE not in interfaces():
        return []
    try:
        limit = read_connection_limit(store)
    except CorruptStateError:
        limit = ConnectionLimit()
    ruleset = render_connections(_lower_limit(limit.connections))
    changes = CONNECTIONS_TABLE.plan(ruleset)
    if changes and not check_mode:
        CONNECTIONS_TABLE.apply(ruleset)
    return changes


def _lower_limit(limit: int) -> int:
    try:
        return min(limit, int(TRACKED.read_text()) // SHARE)
    except FileNotFoundError:
        return limit


def render_connections(limit: int) -> str:
    """Return the ``nft`` input that replaces the table; with a limit of 0 it is empty.

    Connections over the default network are counted by the address of the container, which :mod:`.ruleset` has
    verified by then. Those over the bridge of a session, which the kernel tracks if bridged packets are filtered, are
    counted by the bridge: its containers can forge addresses there.
    """
    body = f"""\
    set container_connections {{ type ipv4_addr; size 65535; flags dynamic; }}
    set bridge_connections {{ type ifname; size 65535; flags dynamic; }}
    # Too many connections of a container, or of those of a session on this agent with each other.
    chain drop_connections {{
        limit rate {LOG_RATE} burst 5 packets log prefix "{TABLE} drop_connections: "
        counter drop
    }}
    # After the chains that drop forged packets, and before addresses are translated.
    chain new_connections {{
        type filter hook prerouting priority mangle + 1; policy accept;
        ct state != new return
        iifname "{DEFAULT_BRIDGE}" add @container_connections {{ ip saddr ct count over {limit} }} goto drop_connections
        iifname "{BRIDGE_PREFIX}*" add @bridge_connections {{ iifname ct count over {limit} }} goto drop_connections
    }}
"""
    return f"table ip {NAME}\ndelete table ip {NAME}\ntable ip {NAME} {{\n{body if limit else ''}}}\n"
