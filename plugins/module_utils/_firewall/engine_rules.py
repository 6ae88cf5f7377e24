# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks that the engine's own rules exist: without them containers reach nothing outside, and are not published.

A restart of ``nftables.service`` or ``nft flush ruleset`` removes them, and the engine adds them only when it starts.
"""

from __future__ import annotations

import subprocess

from .._host.engine_settings import read_engine_settings

REMEDY = "restart the engine (systemctl restart docker)"

# Listings of what the engine adds, with iptables and with its nftables backend.
_LISTINGS = (
    ("iptables", "--wait", "--table", "nat", "--list-rules", "DOCKER"),
    ("nft", "list", "table", "ip", "docker-bridges"),
)


def engine_rules_exist() -> bool:
    """Return whether the engine's rules exist, or the engine is configured to add none."""
    return not read_engine_settings().adds_rules or any(_succeeds(listing) for listing in _LISTINGS)


def _succeeds(command: tuple[str, ...]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False
