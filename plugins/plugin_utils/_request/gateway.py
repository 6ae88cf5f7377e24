# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Validates the ``gateway_*`` variables before a gateway is changed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ...module_utils._gateway.model import Gateway
from ...module_utils._model.addressing import is_address
from ...module_utils._model.validation import (
    ValidationError,
    ValidationErrors,
    choice,
    integer,
    number_range,
    optional_string,
    string,
)

# Limits for each source, without their prefix, and their largest values.
SOURCE_LIMITS = {
    "source_connections": 250_000,
    "source_rate": 100_000,
    "source_ssh_connections": 250_000,
    "source_ssh_rate": 100_000,
}

# The ``gateway_*`` variables that the collection knows, without their prefix.
OPTIONS = (
    "address",
    "hostname",
    "domain",
    "https_port",
    "ssh_ports",
    "certificate",
    "certificate_key",
    "state_path",
    "packages",
    "apt_cache_valid_time",
    "max_connections",
    *SOURCE_LIMITS,
    "source_address",
    "path_links",
    "frame_ancestors",
    "log_all_requests",
    "group",
)

# HAProxy listens at each port.
MAX_SSH_PORTS = 10_000

_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*")
_ORIGIN = re.compile(r"https://[A-Za-z0-9.-]+(:[0-9]{1,5})?")
_BOOLEANS = ("true", "false")
_PATH = re.compile(r"(/(?!\.\.?(/|\Z))[\w.@+-]+)+")


def parse_gateway(variables: Mapping[str, Any], hostname: str) -> Gateway:
    """Return the gateway that the ``gateway_*`` variables describe; ``hostname`` is its default public name.

    Raises :class:`ValidationError` with a sentence for each problem, also in options that are used elsewhere.
    """
    problems = ValidationErrors()
    for name in sorted(variables):
        if name.startswith("gateway_") and name[len("gateway_") :] not in OPTIONS:
            allowed = ", ".join(f"gateway_{option}" for option in OPTIONS)
            problems.add(f"{name} is not an option of a gateway; allowed are {allowed}")
    address = optional_string(problems, "gateway_address", variables.get("gateway_address"))
    if address and not is_address(address):
        problems.add_invalid("gateway_address", address, "must be an IPv4 or IPv6 address")
    gateway = _parse_site(problems, variables, hostname)
    pages = optional_string(problems, "gateway_frame_ancestors", variables.get("gateway_frame_ancestors"))
    if not all(map(_ORIGIN.fullmatch, pages.split())):
        problems.add_invalid("gateway_frame_ancestors", pages, "must be origins such as https://portal.example.org")
    log_all = variables.get("gateway_log_all_requests", False)
    choice(problems, "gateway_log_all_requests", str(log_all).lower(), _BOOLEANS)
    integer(problems, "gateway_max_connections", variables.get("gateway_max_connections"), 100, 1_000_000)
    for name, largest in SOURCE_LIMITS.items():
        integer(problems, f"gateway_{name}", variables.get(f"gateway_{name}"), 1, largest)
    state_path = string(problems, "gateway_state_path", variables.get("gateway_state_path"))
    if state_path and not _PATH.fullmatch(state_path):
        problems.add_invalid(
            "gateway_state_path", state_path, "must be an absolute path of letters, digits and . _ @ + -"
        )
    _check_certificate_pair(problems, variables)
    if problems:
        raise ValidationError(str(problems))
    return gateway


def _parse_site(problems: ValidationErrors, variables: Mapping[str, Any], hostname: str) -> Gateway:
    """Return where users reach a gateway."""
    public_name = _parse_name(problems, "gateway_hostname", variables.get("gateway_hostname") or hostname)
    domain = _parse_name(problems, "gateway_domain", variables.get("gateway_domain"))
    https_port = integer(problems, "gateway_https_port", variables.get("gateway_https_port"), 1, 65535)
    ssh_ports = variables.get("gateway_ssh_ports")
    first, last = number_range(problems, "gateway_ssh_ports", ssh_ports, 1024, 65535, "31001-32000")
    if last - first >= MAX_SSH_PORTS:
        problems.add_invalid("gateway_ssh_ports", ssh_ports, f"must not have more than {MAX_SSH_PORTS} ports")
    if first <= https_port <= last:
        problems.add_invalid("gateway_https_port", https_port, f"is one of gateway_ssh_ports, {first}-{last}")
    path_links = choice(problems, "gateway_path_links", str(variables.get("gateway_path_links")).lower(), _BOOLEANS)
    if path_links == "false" and not domain:
        problems.add("gateway_path_links: false requires gateway_domain, or no app has a link")
    return Gateway(public_name, domain, https_port, first, last, path_links == "true")


def find_site(variables: Mapping[str, Any], host: str) -> Gateway | None:
    """Return where users reach a gateway of the inventory; ``None`` with options that provisioning would refuse."""
    defaults = {"gateway_https_port": 443, "gateway_ssh_ports": "31001-32000", "gateway_path_links": True}
    problems, names = ValidationErrors(), (*defaults, "gateway_hostname", "gateway_domain")
    given = {name: variables.get(name, defaults.get(name)) for name in names}
    site = _parse_site(problems, given, str(variables.get("ansible_host") or host))
    return None if problems else site


def _parse_name(problems: ValidationErrors, option: str, value: Any) -> str:
    name = optional_string(problems, option, value).lower()
    if not name or _NAME.fullmatch(name) or (option == "gateway_hostname" and is_address(name)):
        return name
    allowed = "must be a host name" if option == "gateway_domain" else "must be a host name or an address"
    problems.add_invalid(option, value, allowed)
    return ""


def _check_certificate_pair(problems: ValidationErrors, variables: Mapping[str, Any]) -> None:
    """Add a problem if only one of a certificate and its key is given."""
    names = ("gateway_certificate", "gateway_certificate_key")
    values = [optional_string(problems, name, variables.get(name)) for name in names]
    if any(values) and not all(values):
        present, missing = names if values[0] else reversed(names)
        problems.add(f"{missing} is required with {present}")
