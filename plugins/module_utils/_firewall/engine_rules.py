# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks that the engine's own rules exist: without them containers reach nothing outside, and are not published.

A restart of ``nftables.service`` or ``nft flush ruleset`` removes them, and the engine adds them only when it starts.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from typing import Any

from .._host.engine_settings import FILE, read_engine_settings

REMEDY = "restart the engine (systemctl restart docker)"

# Listings of what the engine adds, with iptables and with its nftables backend.
_LISTINGS = (
    ("iptables", "--wait", "--table", "nat", "--list-rules", "DOCKER"),
    ("nft", "list", "table", "ip", "docker-bridges"),
)


def untried_rules(info: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return that the engine's rules are of a kind with which sessions were never tried, and what to do; or ``None``.

    ``info`` is the engine's system information; those before API 1.49 say nothing, and have rules of iptables.
    """
    # With firewalld on the host, more follows.
    if not str((info.get("FirewallBackend") or {}).get("Driver")).startswith("nftables"):
        return None
    return (
        "the engine adds its rules by nftables, with which sessions and their isolation have not been tried",
        f"remove firewall-backend from {FILE} or its command line, and {REMEDY}",
    )


def engine_rules_exist() -> bool:
    """Return whether the engine's rules exist, or the engine is configured to add none."""
    return not read_engine_settings().adds_rules or any(_succeeds(listing) for listing in _LISTINGS)


def _succeeds(command: tuple[str, ...]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False
