# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a firewall of others has to let in, for the roles of this host, and how firewalld and ufw write such rules.

Nothing here is about SSH, which is the operator's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from ipaddress import ip_network
from typing import Any, NamedTuple

from .._model.addressing import is_ipv6
from .._model.plan import SessionPlan
from .._model.port_ranges import format_ranges, parse_ranges
from .isolation_policy import list_peers

MARK = "backendai.cluster"
"""The comment of our rules of ufw."""

PRIORITY = 4789
"""The priority of our rules of firewalld, which have no comments: what denies, with the usual one of 0, goes first."""

ALL_PORTS = "1-65535"


class Opening(NamedTuple):
    """Packets to this host: to a port or a range of a protocol, empty for each, from a network, empty for all."""

    protocol: str
    ports: str
    source: str = ""

    def covers(self, other: Opening) -> bool:
        """Return whether what lets these packets in lets the others in, too."""
        (first, last), (low, high) = (each.ports.partition("-")[::2] for each in (self, other))
        inside = int(first) <= int(low) and int(high or low) <= int(last or first)
        return self.protocol in ("", other.protocol) and inside and other.within(self.source)

    def within(self, network: str) -> bool:
        """Return whether all senders are of a network, empty for all; a name or a MAC is none."""
        if not network or not self.source:
            return not network
        try:
            outer, inner = ip_network(network, strict=False), ip_network(self.source)
        except ValueError:
            return False
        return inner.version == outer.version and int(outer[0]) <= int(inner[0]) and int(inner[-1]) <= int(outer[-1])


def openings_of_rules(rules: Iterable[Mapping[str, Any]]) -> list[Opening]:
    """Return the openings of rules in the form of ``firewall_allow``, one for each range of ports and source."""
    return [
        Opening(rule["protocol"], format_ranges([ports]), source and str(ip_network(source)))
        for rule in rules
        for ports in parse_ranges(",".join(map(str, rule["ports"])))
        for source in rule.get("sources", [""])
    ]


def openings_of_session(plan: SessionPlan, agent: str) -> list[Opening]:
    """Return what the tunnel of a session needs on one of its agents, also if it is encrypted; nothing without one."""
    own, port = plan.underlays.get(agent), plan.network and plan.network.port
    if own is None or not port:
        return []
    peers = list_peers(plan, agent)
    outer = [(peer.endpoint.rpartition(":")[0].strip("[]"), own.endpoint.rpartition(":")[2]) for peer in peers]
    senders = [*(pair for pair in outer if all(pair)), *((peer.address, str(port)) for peer in peers)]
    return [Opening("udp", to, str(ip_network(address))) for address, to in senders]


class Zone(NamedTuple):
    """A zone of firewalld: its ``rules`` are rich ones, ``open`` is what it lets in as far as that is simple."""

    interfaces: tuple[str, ...]
    sources: tuple[str, ...]
    rules: tuple[str, ...]
    open: tuple[Opening, ...]


# Names of ports are not known here: what a rule with one lets in counts as closed.
_RANGE = r"\d+(?:-\d+)?"
_PORT = re.compile(rf"(?<!\S)({_RANGE})/(\w+)")
_RICH = re.compile(
    r'rule(?: priority="[^"]*")?(?: family="\w+" source address="([^"]+)")?'
    rf'(?: port port="({_RANGE})" protocol="(\w+)")? accept'
)


def parse_zones(listing: str) -> dict[str, Zone]:
    """Return the zones of ``firewall-cmd --list-all-zones``, by name."""
    zones = {}
    for block in re.split(r"\n(?=\S)", listing.strip()):
        name, *lines = block.splitlines() or [""]
        fields = dict(line.strip().partition(": ")[::2] for line in lines)
        rules = tuple(line.strip() for line in lines if line.startswith("\trule "))
        simple = [found.groups() for found in map(_RICH.fullmatch, rules) if found]
        opened = [Opening(protocol or "", ports or ALL_PORTS, source or "") for source, ports, protocol in simple]
        opened += [Opening(protocol, ports) for ports, protocol in _PORT.findall(fields.get("ports", ""))]
        opened += [Opening("", ALL_PORTS)] if fields.get("target") == "ACCEPT" else []
        interfaces, sources = (tuple(fields.get(key, "").split()) for key in ("interfaces", "sources"))
        zones[name.partition(" ")[0]] = Zone(interfaces, sources, rules, tuple(opened))
    return zones


def zone_of(interface: str, zones: Mapping[str, Zone]) -> str:
    """Return the zone of an interface; empty if it has none."""
    names = [interface, *(f"{interface[:end]}+" for end in range(len(interface) - 1, 0, -1))]
    return next((zone for name in names for zone in zones if name in zones[zone].interfaces), "")


def zones_of(opening: Opening, zones: Mapping[str, Zone], default: str, interfaces: Iterable[str]) -> list[str]:
    """Return the zones that packets take: that of their source, or else those of the interfaces that they arrive on."""
    bound = [name for name, zone in zones.items() if any(opening.source and opening.within(s) for s in zone.sources)]
    return bound[:1] or [*dict.fromkeys(zone_of(name, zones) or default for name in interfaces)] or [default]


def rich_rule(opening: Opening, *, marked: bool = True) -> str:
    """Return a rule as firewalld lists it, with our mark or as an operator writes it."""
    mark = f' priority="{PRIORITY}"' if marked else ""
    family = "ipv6" if is_ipv6(opening.source) else "ipv4"
    source = f' family="{family}" source address="{_short(opening.source)}"' if opening.source else ""
    return f'rule{mark}{source} port port="{opening.ports}" protocol="{opening.protocol}" accept'


class UfwRule(NamedTuple):
    """A rule of ufw: what it ``matches``, as ufw writes that, and what it lets in, as far as that is simple (``open``).

    A second rule that matches the same replaces it, whatever the action of either, and takes its comment away.
    """

    matches: str
    open: tuple[Opening, ...]


_UFW = re.compile(r"ufw (allow|deny|reject|limit)(?: in)?(?: log(?:-all)?)? (.*?)(?: comment '.*')?")
_PORTS = r"(\d[\d,:]*)"
_MATCHES = re.compile(rf"{_PORTS}(?:/(\w+))?|from (\S+)(?: to any)?(?: port {_PORTS})?(?: proto (\w+))?")


def parse_ufw(listing: str) -> list[UfwRule]:
    """Return the rules of ``ufw show added`` that are for packets to this host."""
    rules = []
    for found in filter(None, map(_UFW.fullmatch, listing.splitlines())):
        action, matches = found.groups()
        simple = _MATCHES.fullmatch(matches) if action == "allow" else None
        ports, protocol, source, to, of = simple.groups() if simple else ("",) * 5
        listed = (ports or to or ALL_PORTS).replace(":", "-").split(",") if simple else []
        opened = tuple(Opening(protocol or of or "", port, source or "") for port in listed)
        rules.append(UfwRule(matches, opened))
    return rules


def ufw_rule(opening: Opening) -> str:
    """Return what a rule of ufw matches, as ufw lists that."""
    ports = opening.ports.replace("-", ":")
    if not opening.source:
        return f"{ports}/{opening.protocol}"
    return f"from {_short(opening.source)} to any port {ports} proto {opening.protocol}"


def _short(network: str) -> str:
    parsed = ip_network(network)
    return str(parsed[0]) if parsed.num_addresses == 1 else network
