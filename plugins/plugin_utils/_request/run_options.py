# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Validates options of a playbook run that are not part of the session."""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._gateway.model import MAX_TTL, MIN_TTL, Gateway
from ...module_utils._model.session import MAX_LINES
from ...module_utils._model.validation import ValidationErrors, integer, number_range, parse_session_id
from .registries import parse_registries
from .spec import TIMES, parse_time
from .value_types import check_number

# Minimum and maximum of each number.
NUMBERS = {
    "claim_ttl": (1, 86400),
    "claim_attempts": (1, 100),
    "queue_patience": (0, 10000),
    "history_days": (0, 36500),
    "agent_lost_after": (60, 86400 * 365),
    "logs_lines": (1, MAX_LINES),
    "token_ttl": (MIN_TTL, MAX_TTL),
}

NO_UID = -1
"""The value of ``session_user_uid`` if it is not given."""

MAX_UID = (1 << 32) - 2


@dataclasses.dataclass(frozen=True)
class NetworkPools:
    """Pools for networks of sessions: addresses, VNIs, and the UDP port of the tunnels; and the limits of their time.

    ``first_host_port`` to ``last_host_port`` are for the sshds of containers in host network mode,
    ``first_published_port`` to ``last_published_port`` for the ports of main1 that agents publish to the addresses
    ``gateways``; users reach those at ``sites``. ``max_lifetime`` and ``idle_timeout`` limit those of new sessions, in
    seconds; 0 for no limit.
    """

    network: str
    first_vni: int
    last_vni: int
    vxlan_port: int
    first_host_port: int
    last_host_port: int
    first_published_port: int
    last_published_port: int
    gateways: Sequence[str] = ()
    max_lifetime: int = 0
    idle_timeout: int = 0
    sites: Sequence[Gateway] = ()


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """Options of one run. ``queue_patience`` is in sessions that may be scheduled first.

    ``name`` and ``id`` select a session, ``kernel`` is the hostname of one of its containers, empty for all. Nothing is
    written to an empty path; an empty ``queue_path`` is the folder beside the inventory.
    ``user_uid`` is -1 if it is not given.
    """

    name: str
    id: str
    user: str
    user_uid: int
    queue_path: str
    record_path: str
    list_path: str
    page_path: str
    report_path: str
    logs_path: str
    access_path: str
    hosts_template: str
    ssh_config_template: str
    environment_template: str
    claim_ttl: int
    claim_attempts: int
    queue_policy: str
    queue_patience: int
    history_days: int
    force: bool
    fresh_home: bool
    wait: bool
    history: bool
    list_format: str
    list_use: bool
    agent_lost_after: int
    kernel: str
    logs_lines: int
    logs_follow: bool
    token_path: str
    token_ttl: int


def parse_run(problems: ValidationErrors, values: Mapping[str, Any], *, needs_session: bool = False) -> RunOptions:
    """Return the options of a run, which every playbook accepts, from values converted to their types.

    ``needs_session`` is whether the run needs the name or id of an existing session.
    """
    for option, (least, most) in NUMBERS.items():
        check_number(problems, f"session_{option}", values[option], least, most)
    if values["user_uid"] != NO_UID:
        integer(problems, "session_user_uid", values["user_uid"], 0, MAX_UID)
    # Only checked here: passwords are read again where images are pulled, and not kept elsewhere.
    parse_registries(problems, values["registries"])
    fields = {field.name: values[field.name] for field in dataclasses.fields(RunOptions)}
    lines = {name: value.strip() for name, value in fields.items() if isinstance(value, str)}
    # The name of a new session is checked with its request; other names are only looked up.
    lines |= {"name": str(values["name"] or ""), "id": parse_session_id(problems, "session_id", values["id"])}
    options = RunOptions(**{**fields, **lines})
    if needs_session and not options.name and not values["id"]:
        problems.add("session_name or session_id is required")
    return options


def parse_pools(problems: ValidationErrors, values: Mapping[str, Any]) -> NetworkPools:
    """Return the network pools, still without gateways, from options converted to their types."""
    network = values["network_pool"].strip()
    try:
        if ipaddress.IPv4Network(network).prefixlen > 29:
            problems.add_invalid("session_network_pool", network, "must be a /29 or larger")
    except ValueError:
        problems.add_invalid("session_network_pool", network, "must be an IPv4 network such as 10.128.0.0/9")

    def pool(name: str, least: int, most: int, example: str) -> tuple[int, int]:
        return number_range(problems, f"session_{name}", values[name], least, most, example)

    vnis = pool("vni_pool", 1, 16777215, "4096-16777215")
    port = integer(problems, "session_vxlan_port", values["vxlan_port"], 1, 65535)
    host_ports = pool("host_port_pool", 1024, 65535, "30000-32767")
    published = pool("published_port_pool", 1024, 65535, "30000-31000")
    limits = {option: values[f"{option}_limit"] for option in TIMES}
    for option, limit in limits.items():
        parse_time(problems, f"session_{option}_limit", limit)
    return NetworkPools(network, *vnis, port, *host_ports, *published, **limits)
