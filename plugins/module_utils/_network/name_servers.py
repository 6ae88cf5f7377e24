# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The name servers that the Docker engine gives to containers."""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Iterable
from pathlib import Path

from .._host.engine_settings import read_engine_settings

# The engine uses the second one if the first one names the stub of systemd-resolved.
RESOLVER_FILES = (Path("/etc/resolv.conf"), Path("/run/systemd/resolve/resolv.conf"))

# The engine's own, if a host has none (libnetwork).
_DEFAULT = ("8.8.8.8", "8.8.4.4")


def name_servers() -> list[str]:
    """Return the sorted IPv4 addresses of the name servers of this host and of the engine's settings.

    Addresses of loopback are omitted. Files that are missing or damaged name none.
    """
    named = {address for path in RESOLVER_FILES for address in _resolvers(path)}
    named |= {*read_engine_settings().name_servers}
    return sorted(address for address in named or _DEFAULT if _is_outside(address))


def _resolvers(path: Path) -> Iterable[str]:
    """Return the addresses in a file of resolv.conf(5)."""
    with contextlib.suppress(OSError, ValueError):
        words = [line.split() for line in path.read_text().splitlines()]
        return [line[1] for line in words if line[:1] == ["nameserver"] and line[1:]]
    return []


def _is_outside(address: str) -> bool:
    with contextlib.suppress(ValueError):
        parsed = ipaddress.ip_address(address)
        return parsed.version == 4 and not parsed.is_loopback
    return False
