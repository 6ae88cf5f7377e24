# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What containers of an agent may not reach of the world: closed networks and services, and exceptions from them.

Containers have no IPv6, so IPv6 networks need no rules.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from .._host.store import CorruptStateError, Store
from .._model.change import Change
from .._model.files import write_atomically
from .._model.plain_data import to_plain
from .._model.state_format import StateFormat
from .._model.storage import OPENED_BY
from .._model.validation import ValidationErrors, choice, list_of_mappings
from .policy import filter_family, parse_networks, parse_port_ranges

CLOSED, ALLOWED = "agent_closed_networks", "agent_egress_allow"


@dataclasses.dataclass(frozen=True)
class Service:
    """Ports of ``protocol`` (``tcp`` or ``udp``) at ``destinations``; ``ports`` are like ``22`` or ``9100-9199``."""

    protocol: str
    ports: tuple[str, ...]
    destinations: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class EgressPolicy:
    """Containers reach neither ``closed_networks`` nor ``closed_services``, except for ``allowed`` services there.

    Nor do they reach the storage services that the agent has mounted, except those in the networks ``open_storage``.
    """

    closed_networks: tuple[str, ...] = ()
    closed_services: tuple[Service, ...] = ()
    allowed: tuple[Service, ...] = ()
    open_storage: tuple[str, ...] = ()


_FORMAT = StateFormat("the egress policy", EgressPolicy)

NOTHING_CLOSED = EgressPolicy()
NOTHING_OPEN = EgressPolicy(closed_networks=("0.0.0.0/0",))


def parse_egress(options: Mapping[str, Any]) -> EgressPolicy:
    """Return the policy of the options with the names of its fields and ``allow``, with the addresses of IPv4.

    Services are mappings of ``protocol``, ``ports`` and ``destinations``. Raises :class:`ValidationError` with a
    sentence for each problem.
    """
    problems = ValidationErrors()
    policy = EgressPolicy(
        closed_networks=_parse_networks(problems, CLOSED, options["closed_networks"]),
        closed_services=_parse_services(problems, "closed_services", options["closed_services"]),
        allowed=_parse_services(problems, ALLOWED, options["allow"]),
        open_storage=_parse_networks(problems, OPENED_BY, options["open_storage"]),
    )
    problems.raise_if_any()
    return policy


def read_egress(store: Store) -> EgressPolicy:
    """Return the stored policy of this host, by default without a closed network; raises :class:`CorruptStateError`."""
    try:
        return _FORMAT.load(store.egress_file.read_bytes())
    except FileNotFoundError:
        return NOTHING_CLOSED
    except (OSError, ValueError) as error:
        raise CorruptStateError(
            f"{store.egress_file} is damaged ({error}): provision this host again, which replaces it."
        ) from error


def active_egress(store: Store) -> EgressPolicy:
    """Return the stored policy; while it is damaged, everything is closed."""
    try:
        return read_egress(store)
    except CorruptStateError:
        return NOTHING_OPEN


def plan_egress(store: Store, policy: EgressPolicy) -> list[Change]:
    """Return the differences of the stored policy from ``policy``, as JSON; a damaged file is replaced."""
    try:
        before = _as_json(read_egress(store))
    except CorruptStateError:
        before = {}
    changes = [Change(f"egress {name}", before.get(name), after) for name, after in _as_json(policy).items()]
    return [change for change in changes if change.before != change.after]


def _as_json(policy: EgressPolicy) -> dict[str, str]:
    return {name: json.dumps(value) for name, value in to_plain(policy).items()}


def save_egress(store: Store, policy: EgressPolicy) -> None:
    """Store the policy; the rules change with the next :func:`sync_ruleset`."""
    write_atomically(store.egress_file, _FORMAT.dump(policy))


def _parse_services(problems: ValidationErrors, option: str, value: Any) -> tuple[Service, ...]:
    services = []
    for where, entry in list_of_mappings(problems, option, value, ("protocol", "ports", "destinations")):
        service = Service(
            choice(problems, f"{where}.protocol", entry.get("protocol", "tcp"), ("tcp", "udp")),
            parse_port_ranges(problems, f"{where}.ports", entry.get("ports") or ()),
            _parse_networks(problems, f"{where}.destinations", entry.get("destinations") or ()),
        )
        for name in ("ports", "destinations"):
            if not entry.get(name):
                problems.add(f"{where}.{name} is required")
        # With IPv6 destinations only, there is nothing to match.
        services += [service] if service.destinations else []
    return tuple(services)


def _parse_networks(problems: ValidationErrors, option: str, value: Any) -> tuple[str, ...]:
    return tuple(filter_family(parse_networks(problems, option, value), 4))
