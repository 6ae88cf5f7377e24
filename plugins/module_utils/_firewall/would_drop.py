# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host firewall in report mode counts and logs instead of dropping it: by source, protocol and port.

Beside that, what is dropped on the way from containers to storage services.

The sets are limited; what does not fit is only counted. A table that is replaced keeps what they hold, unless the
firewall is another one.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from .._model.errors import one_line
from .._model.reported_traffic import ReportedTraffic
from .table import LOG_RATE, TABLE, FirewallError

INGRESS, ROUTED = "report_ingress", "report_routed"
"""The chains of packets for this host, and of those for its containers and virtual machines."""

MAX_ELEMENTS = 4096
"""How many different entries each set holds: a scan of ports must not fill the memory."""

# By set: the key of its elements, and what a packet needs for it.
_KEYS = {
    "reported_ports4": ("ip saddr . meta l4proto . th dport", "meta l4proto { tcp, udp } "),
    "reported_ports6": ("ip6 saddr . meta l4proto . th dport", "meta l4proto { tcp, udp } "),
    "reported_others4": ("ip saddr . meta l4proto", "meta l4proto != { tcp, udp } "),
    "reported_others6": ("ip6 saddr . meta l4proto", "meta l4proto != { tcp, udp } "),
}
_ROUTED_KEYS = {
    "reported_routed_ports4": ("ip saddr . meta l4proto . th dport . ip daddr", "meta l4proto { tcp, udp } "),
    "reported_routed_ports6": ("ip6 saddr . meta l4proto . th dport . ip6 daddr", "meta l4proto { tcp, udp } "),
}

# Of a set without a counter, nft 0.9.8 takes no elements with one: it crashes.
SETS = {
    name: f"typeof {key}; size {MAX_ELEMENTS}; flags dynamic; counter"
    for name, (key, _when) in {**_KEYS, **_ROUTED_KEYS}.items()
}
"""The types of the sets, by name."""

STORAGE_SET, STORAGE_CHAIN = "dropped_storage4", "drop_storage"
_STORAGE_KEY, _STORAGE_WHEN = _ROUTED_KEYS["reported_routed_ports4"]
STORAGE_TYPE = f"typeof {_STORAGE_KEY}; size {MAX_ELEMENTS}; flags dynamic; counter"


class WouldDrop(NamedTuple):
    """The ``elements`` of all sets, as set name, key and counters; ``unlisted`` packets are in none of them:
    they did not fit, or are of other protocols than TCP and UDP and routed.

    ``dropped`` are the elements of what is dropped in any mode, from containers to storage services.
    """

    elements: tuple[tuple[str, tuple[str, ...], int, int], ...] = ()
    unlisted: int = 0
    dropped: tuple[tuple[str, tuple[str, ...], int, int], ...] = ()

    @property
    def traffic(self) -> list[ReportedTraffic]:
        """What would have been dropped, most packets first."""
        return _sorted(self.elements)

    @property
    def storage(self) -> list[ReportedTraffic]:
        """What was dropped on the way from containers to storage services, most packets first."""
        return _sorted(self.dropped)


def _sorted(elements: Iterable[tuple[str, tuple[str, ...], int, int]]) -> list[ReportedTraffic]:
    listed = [_traffic(key, packets) for _name, key, packets, _bytes in elements]
    return sorted(listed, key=lambda entry: (-entry.packets, entry.source, entry.protocol, entry.port or 0))


def render_chains() -> str:
    """Return the chains that count and log packets, and let them pass."""
    ingress, routed = _render_chain(INGRESS, _KEYS), _render_chain(ROUTED, _ROUTED_KEYS)
    return f"    # Report mode: what would be dropped is logged, counted, and passes.\n{ingress}{routed}"


def render_storage_chain() -> str:
    """Return the chain that counts, logs and drops packets of containers to storage services."""
    log = f'limit rate {LOG_RATE} burst 5 packets log prefix "{TABLE} {STORAGE_CHAIN}: "'
    # An entry that does not fit ends its rule; the next one drops the packet.
    add = f"{_STORAGE_WHEN}add @{STORAGE_SET} {{ {_STORAGE_KEY} counter }}"
    return (
        "    # From a container to a storage service that this host has mounted.\n"
        f"    chain {STORAGE_CHAIN} {{\n        {log}\n        {add}\n        counter drop\n    }}\n"
    )


def _render_chain(name: str, keys: Mapping[str, tuple[str, str]]) -> str:
    # An entry that does not fit ends its rule: the next ones count the packet.
    adds = "".join(f"        {when}add @{to} {{ {key} counter }} return\n" for to, (key, when) in keys.items())
    log = f'limit rate {LOG_RATE} burst 5 packets log prefix "{TABLE} {name}: "'
    return f"    chain {name} {{\n        {log}\n{adds}        counter\n    }}\n"


def read_would_drop() -> WouldDrop:
    """Return what the firewall of this host has reported since it was loaded; nothing where it does not report.

    Raises :class:`FirewallError`.
    """
    command = ["nft", "--json", "list", "table", "inet", TABLE]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise FirewallError(f"{error.filename} is not installed on this host") from error
    if result.returncode:
        if "No such file or directory" in result.stderr:
            return WouldDrop()
        raise FirewallError(f"nft: {one_line(result.stderr)}")
    return parse_would_drop(json.loads(result.stdout))


def parse_would_drop(listing: Mapping[str, Any]) -> WouldDrop:
    """Return what a listing of the table, as data of ``nft --json``, has reported."""
    parts = listing["nftables"]
    named = [part["set"] for part in parts if "set" in part]
    sets = [entries for entries in named if entries["name"] in SETS]
    storage = [entries for entries in named if entries["name"] == STORAGE_SET]
    rules = [part["rule"] for part in parts if "rule" in part and part["rule"]["chain"] in (INGRESS, ROUTED)]
    return WouldDrop(
        tuple(element for entries in sets for element in _elements(entries)),
        sum(rule["expr"][0]["counter"]["packets"] for rule in rules if "counter" in rule["expr"][0]),
        tuple(element for entries in storage for element in _elements(entries)),
    )


def _elements(entries: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, ...], int, int]]:
    for element in entries.get("elem", []):
        counter = element["elem"]["counter"]
        key = tuple(map(str, element["elem"]["val"]["concat"]))
        yield entries["name"], key, counter["packets"], counter["bytes"]


def _traffic(key: tuple[str, ...], packets: int) -> ReportedTraffic:
    source, protocol, *rest = key
    return ReportedTraffic(
        source=source,
        protocol=protocol,
        port=int(rest[0]) if rest else None,
        destination=rest[1] if len(rest) > 1 else None,
        packets=packets,
    )


def render_elements(elements: Iterable[tuple[str, tuple[str, ...], int, int]]) -> str:
    """Return the ``nft`` input that adds elements with their counters to the sets of a new table."""
    return "".join(
        f"add element inet {TABLE} {name} {{ {' . '.join(key)} counter packets {packets} bytes {size} }}\n"
        for name, key, packets, size in elements
    )
