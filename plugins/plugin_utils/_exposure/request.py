# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is asked of a check of isolation, validated before any host is contacted."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from ...module_utils._model.port_ranges import Ranges, parse_ranges
from ...module_utils._model.validation import ValidationErrors

VARIABLES = {
    "probe_hosts": "firewall_probe_hosts",
    "ports": "firewall_probe_ports",
    "rate": "firewall_probe_rate",
    "path": "firewall_report_path",
}
"""The variables of playbooks, by the options of a task that they stand for."""

DEFAULTS: Mapping[str, Any] = {"probe_hosts": "users", "ports": "1-65535", "rate": 16000, "path": ""}


@dataclasses.dataclass(frozen=True)
class IsolationHosts:
    """The hosts of a check: those that are probed from, and those that are probed."""

    probe_hosts: list[str]
    agents: list[str]
    gateways: list[str]
    managers: list[str]


@dataclasses.dataclass(frozen=True)
class IsolationRequest:
    """A check of isolation of ``ports``, with at most ``rate`` attempts at once; ``path`` is for the report."""

    hosts: IsolationHosts
    ports: Ranges
    rate: int
    path: str


def parse_isolation_request(
    values: Mapping[str, Any], hosts: IsolationHosts, named: Mapping[str, str]
) -> IsolationRequest:
    """Return the request from the values of the options; ``named`` says what the user calls these.

    Raises :class:`ValidationError` with all problems at once.
    """
    problems = ValidationErrors()
    _check_hosts(problems, named["probe_hosts"], values["probe_hosts"], hosts)
    rate = _whole_number(values["rate"])
    if rate < 1:
        problems.add_invalid(named["rate"], values["rate"], "must be a whole number, at least 1")
    text, ports = str(values["ports"] or DEFAULTS["ports"]), parse_ranges(DEFAULTS["ports"])
    try:
        ports = parse_ranges(text)
    except ValueError as error:
        problems.add_invalid(named["ports"], text, str(error))
    path = str(values["path"] or "")
    if path and not os.path.isdir(os.path.dirname(os.path.abspath(os.path.expanduser(path)))):
        problems.add_invalid(named["path"], path, "must be in an existing folder")
    problems.raise_if_any()
    return IsolationRequest(hosts, ports, rate, path)


def _check_hosts(problems: ValidationErrors, option: str, pattern: object, hosts: IsolationHosts) -> None:
    if not hosts.agents:
        problems.add("the inventory has no agents to probe")
    if not hosts.probe_hosts:
        problems.add_invalid(
            option, pattern, "matches no host of the inventory; set it to untrusted hosts to probe from"
        )
    kinds = {"agents": hosts.agents, "gateways": hosts.gateways, "managers": hosts.managers}
    for kind, names in kinds.items():
        trusted = [name for name in hosts.probe_hosts if name in names]
        if trusted:
            problems.add_invalid(option, pattern, f"must not include {kind}, which are trusted: {', '.join(trusted)}")


def _whole_number(value: object) -> int:
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() else 0
