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


class Rule(NamedTuple):
    """A rule as its firewall lists it, and which packets it lets in or denies, as far as that is simple.

    Those with a lower priority go first.
    """

    text: str
    accepts: bool
    packets: tuple[Opening, ...]
    priority: int = 0


ACCEPT_ALL = Rule("", True, (Opening("", ALL_PORTS),), 1 << 16)
"""What comes last where all is let in that no rule denies."""


def deciding(opening: Opening, rules: Iterable[Rule]) -> Rule | None:
    """Return the first rule, of those in their firewall's order, that decides before one of ours; ``None`` for none."""
    covering = (rule for rule in rules if any(each.covers(opening) for each in rule.packets))
    return next((rule for rule in covering if rule.accepts or rule.priority <= PRIORITY), None)


class Zone(NamedTuple):
    """A zone of firewalld: its ``rich`` rules as listed, and all that let in or deny, in their order."""

    interfaces: tuple[str, ...]
    sources: tuple[str, ...]
    rich: tuple[str, ...]
    rules: tuple[Rule, ...]


# Names of ports are not known here: a rule with one is not read.
_RANGE = r"\d+(?:-\d+)?"
_PORT = re.compile(rf"(?<!\S)({_RANGE})/(\w+)")
_RICH = re.compile(
    r'rule(?: priority="(-?\d+)")?(?: family="(\w+)")?(?: source address="([^"]+)")?'
    rf'(?: port port="({_RANGE})" protocol="(\w+)")?'
    r'(?: n?log(?: (?:limit )?[\w-]+="[^"]*")*)?(?: audit(?: limit value="[^"]*")?)?'
    r' (?:(accept)|drop|reject(?: type="[^"]*")?)'
)
_EVERYBODY = {"ipv4": "0.0.0.0/0", "ipv6": "::/0"}


def parse_zones(listing: str) -> dict[str, Zone]:
    """Return the zones of ``firewall-cmd --list-all-zones``, by name."""
    zones = {}
    for block in re.split(r"\n(?=\S)", listing.strip()):
        name, *lines = block.splitlines() or [""]
        fields = dict(line.strip().partition(": ")[::2] for line in lines)
        rich = tuple(line.strip() for line in lines if line.startswith("\trule "))
        rules = [_read_rich(*found.groups(), text=found[0]) for found in map(_RICH.fullmatch, rich) if found]
        ports = _PORT.findall(fields.get("ports", ""))
        rules += [Rule("", True, tuple(Opening(protocol, port) for port, protocol in ports))]
        rules += [ACCEPT_ALL] if fields.get("target") == "ACCEPT" else []
        # With one priority, what denies goes first.
        rules.sort(key=lambda rule: (rule.priority, rule.accepts))
        interfaces, sources = (tuple(fields.get(key, "").split()) for key in ("interfaces", "sources"))
        zones[name.partition(" ")[0]] = Zone(interfaces, sources, rich, tuple(rules))
    return zones


def _read_rich(priority: str, family: str, source: str, ports: str, protocol: str, accept: str, *, text: str) -> Rule:
    packets = Opening(protocol or "", ports or ALL_PORTS, source or _EVERYBODY.get(family, ""))
    return Rule(text, bool(accept), (packets,), int(priority or 0))


def zone_of(interface: str, zones: Mapping[str, Zone]) -> str:
    """Return the zone of an interface; empty if it has none."""
    names = [interface, *(f"{interface[:end]}+" for end in range(len(interface) - 1, 0, -1))]
    return next((zone for name in names for zone in zones if name in zones[zone].interfaces), "")


def zones_of(opening: Opening, zones: Mapping[str, Zone], default: str, interfaces: Iterable[str]) -> list[str]:
    """Return the zones that packets take: that of their source, or else those of the interfaces that they arrive on."""
    bound = [name for name, zone in zones.items() if any(opening.source and opening.within(s) for s in zone.sources)]
    return bound[:1] or [*dict.fromkeys(zone_of(name, zones) or default for name in interfaces)] or [default]


def rich_rule(opening: Opening) -> str:
    """Return a rule of ours as firewalld lists it."""
    family = "ipv6" if is_ipv6(opening.source) else "ipv4"
    source = f' family="{family}" source address="{_short(opening.source)}"' if opening.source else ""
    return f'rule priority="{PRIORITY}"{source} port port="{opening.ports}" protocol="{opening.protocol}" accept'


_UFW = re.compile(r"ufw (allow|deny|reject|limit)(?: in)?(?: log(?:-all)?)? (.*?)(?: comment '.*')?")
_PORTS = r"(\d[\d,:]*)"
_MATCHES = re.compile(rf"{_PORTS}(?:/(\w+))?|(?:from (\S+)|to any)(?: to any port {_PORTS})?(?: proto (\w+))?")


def parse_ufw(listing: str) -> list[Rule]:
    """Return the rules of ``ufw show added`` that are for packets to this host, in their order.

    What is limited is not let in by all means: so these deny.
    """
    rules = []
    for text in listing.splitlines():
        found = _UFW.fullmatch(text)
        simple = found and _MATCHES.fullmatch(found[2])
        if found and simple:
            ports, protocol, source, to, of = simple.groups()
            listed = (ports or to or ALL_PORTS).replace(":", "-").split(",")
            packets = tuple(Opening(protocol or of or "", port, source or "") for port in listed)
            rules.append(Rule(text, found[1] == "allow", packets))
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
