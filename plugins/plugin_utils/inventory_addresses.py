# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The addresses of inventory hosts, as seen by other hosts on the network."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable, Mapping
from typing import Any

from ..module_utils._model.validation import ValidationError


def addresses_of(hostvars: Mapping[str, Mapping[str, Any]], hosts: Iterable[str], variable: str = "") -> list[str]:
    """Return all IPv4 and IPv6 addresses of hosts, without duplicates.

    The address of a host is its ``variable``, else ``ansible_host`` or the host's name; names are resolved on the
    control node. Loopback addresses are omitted, since other hosts cannot use them. Raises :class:`ValidationError` for
    a name without an address.
    """
    addresses: dict[str, None] = {}
    for host in hosts:
        address = str(hostvars[host].get(variable) or hostvars[host].get("ansible_host") or host)
        addresses |= dict.fromkeys(_resolve(host, address))
    return [address for address in addresses if not ipaddress.ip_address(address).is_loopback]


def _resolve(host: str, name: str) -> list[str]:
    try:
        # The scope of a link-local address is valid on this machine only.
        answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ValidationError(f"{host}: {name!r} has no address: {error.strerror}.") from None
    except UnicodeError:
        raise ValidationError(f"{host}: {name!r} has no address: it is not a host name.") from None
    return [str(answer[4][0]).partition("%")[0] for answer in answers]
