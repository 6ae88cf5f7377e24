# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How one run of a playbook goes about it: options that say nothing about the session itself."""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.backendai.cluster.plugins.module_utils._model.session import MAX_LINES
from ansible_collections.backendai.cluster.plugins.module_utils._model.validation import (
    Problems,
    SpecError,
    choice,
    id_of,
    number_range,
    optional,
    switch,
    text,
    whole_number,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.registries import parse_registries

QUEUE_POLICIES = ("fifo", "lifo", "drf")
# What describes one run of a playbook, not the session.
RUN_OPTIONS = (
    "id",
    "record_path",
    "list_path",
    "report_path",
    "logs_path",
    "access_path",
    "logs_lines",
    "token_path",
    "token_ttl",
    "kernel",
    "force",
    "wait",
    "user",
    "registries",
    "claim_ttl",
    "claim_attempts",
    "facts_max_age",
    "queue_path",
    "queue_policy",
    "queue_patience",
    "history",
    "history_days",
    "network_pool",
    "vni_pool",
    "vxlan_port",
    "host_port_pool",
    "published_port_pool",
    "hosts_template",
    "ssh_config_template",
    "environment_template",
)


@dataclasses.dataclass(frozen=True)
class Pools:
    """Where networks of sessions come from: addresses, VXLAN network identifiers, the UDP port of the tunnels.

    ``first_host_port`` to ``last_host_port`` are for the sshds of containers that share their agents' network,
    ``first_published_port`` to ``last_published_port`` for what agents publish of main1 to ``gateways``, which are the
    addresses that those come from.
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


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """How one run goes about it. ``facts_max_age`` is in seconds, ``queue_patience`` in sessions that may pass.

    ``name`` and ``id`` are of the session that the run is about, ``kernel`` is the hostname of one of its containers,
    empty for all. A path is empty where nothing is to be written, ``queue_path`` for the folder beside the inventory.
    """

    name: str
    id: str
    user: str
    queue_path: str
    record_path: str
    list_path: str
    report_path: str
    logs_path: str
    access_path: str
    hosts_template: str
    ssh_config_template: str
    environment_template: str
    claim_ttl: int
    claim_attempts: int
    facts_max_age: int
    queue_policy: str
    queue_patience: int
    history_days: int
    force: bool
    wait: bool
    history: bool
    kernel: str
    logs_lines: int


def parse_run(problems: Problems, variables: Mapping[str, Any]) -> RunOptions:
    """Return the options of the run, which are taken by every playbook."""

    def number(option: str, least: int, most: int) -> int:
        return whole_number(problems, f"session_{option}", variables.get(f"session_{option}"), least, most)

    def line(option: str) -> str:
        return optional(problems, f"session_{option}", variables.get(f"session_{option}"))

    # Checked here, and used where an image is pulled: passwords go no way but that.
    parse_registries(problems, variables.get("session_registries"))
    return RunOptions(
        # A new session's name is checked as a part of its request; any other is looked for as it is.
        name=str(variables.get("session_name") or ""),
        id=id_of(problems, "session_id", variables.get("session_id")),
        user=line("user"),
        queue_path=line("queue_path"),
        record_path=line("record_path"),
        list_path=line("list_path"),
        report_path=line("report_path"),
        logs_path=line("logs_path"),
        access_path=line("access_path"),
        hosts_template=line("hosts_template"),
        ssh_config_template=line("ssh_config_template"),
        environment_template=line("environment_template"),
        claim_ttl=number("claim_ttl", 1, 86400),
        claim_attempts=number("claim_attempts", 1, 100),
        facts_max_age=number("facts_max_age", 0, 86400),
        queue_policy=choice(problems, "session_queue_policy", variables.get("session_queue_policy"), QUEUE_POLICIES),
        queue_patience=number("queue_patience", 0, 10000),
        history_days=number("history_days", 0, 36500),
        force=switch(problems, "session_force", variables.get("session_force")),
        wait=switch(problems, "session_wait", variables.get("session_wait")),
        history=switch(problems, "session_history", variables.get("session_history")),
        kernel=line("kernel"),
        logs_lines=number("logs_lines", 1, MAX_LINES),
    )


def parse_pools(variables: Mapping[str, Any], gateways: Sequence[str] = ()) -> Pools:
    """Return the pools that networks of sessions come from, for gateways of these addresses.

    Raises :class:`SpecError` like :func:`parse_spec`.
    """
    problems = Problems()
    network = text(problems, "session_network_pool", variables.get("session_network_pool"))
    try:
        if network and ipaddress.IPv4Network(network).prefixlen > 29:
            problems.refuse("session_network_pool", network, "must be a /29 or larger")
    except ValueError:
        problems.refuse("session_network_pool", network, "must be an IPv4 network such as 10.128.0.0/9")

    def pool(option: str, least: int, most: int, example: str) -> tuple[int, int]:
        return number_range(problems, option, variables.get(option), least, most, example)

    vnis = pool("session_vni_pool", 1, 16777215, "4096-16777215")
    port = whole_number(problems, "session_vxlan_port", variables.get("session_vxlan_port"), 1, 65535)
    host_ports = pool("session_host_port_pool", 1024, 65535, "30000-32767")
    published = pool("session_published_port_pool", 1024, 65535, "30000-31000")
    if problems:
        raise SpecError(str(problems))
    return Pools(network, *vnis, port, *host_ports, *published, tuple(gateways))
