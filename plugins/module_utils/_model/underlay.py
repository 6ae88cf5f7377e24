# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where agents meet each other."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Underlay:
    """Where an agent meets its peers: its IPv4 or IPv6 address, and the interface that has it with its MTU in bytes.

    ``mac`` is that of the interface, empty where it has none. ``public_key`` is that of a WireGuard interface, and
    ``endpoint`` (``address:port``) where its peers reach that; both are empty for an underlay that is not encrypted.
    """

    address: str
    interface: str
    mtu: int
    mac: str = ""
    public_key: str = ""
    endpoint: str = ""
