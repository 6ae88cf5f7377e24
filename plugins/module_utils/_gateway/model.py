# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Data model of a gateway: its public name, its ports, and its errors."""

from __future__ import annotations

import dataclasses
import re

from .._model.addressing import bracketed
from .._model.errors import ClusterError
from .._model.session import NONE

MIN_TTL, MAX_TTL = 60, 30 * 86400
"""The lifetime of a token in seconds."""

_MAX_LABEL = 63
_HOST = re.compile(r"[\w.:-]+")


class GatewayError(ClusterError):
    """The gateway is not usable, or a request is invalid; the message is one sentence for the operator."""


@dataclasses.dataclass(frozen=True)
class Gateway:
    """Public name and ports of a gateway.

    ``hostname`` is a name, or an address of either family without brackets. With a ``domain``, each app has
    a host name below it; with ``path_links``, apps have links below ``hostname``, too. ``first_ssh_port`` to
    ``last_ssh_port`` lead to the sshds of sessions, one port for each.
    """

    hostname: str
    domain: str
    https_port: int
    first_ssh_port: int
    last_ssh_port: int
    path_links: bool = True

    def check(self) -> None:
        """Raise :class:`ValueError` for stored settings that provisioning would not have written."""
        if not 0 < self.https_port < 1 << 16 or not 0 < self.first_ssh_port <= self.last_ssh_port < 1 << 16:
            raise ValueError("a port is out of range")
        if not _HOST.fullmatch(self.hostname) or not _HOST.fullmatch(self.domain or "-"):
            raise ValueError("the name of a host has other characters than letters, digits, '.', ':', '_' and '-'")

    def authority(self, host: str = "") -> str:
        """Return the authority of URLs of the gateway or of ``host``, with the port unless it is 443."""
        name = host or bracketed(self.hostname)
        return name if self.https_port == 443 else f"{name}:{self.https_port}"

    def app_hostname(self, session: str, app: str) -> str:
        """Return the host name of an app; empty without a domain, or if the name would be ambiguous or too long."""
        label = f"{session}--{app}"
        return f"{label}.{self.domain}" if self.domain and "--" not in app and len(label) <= _MAX_LABEL else ""

    def app_origins(self, session: str, app: str, path: str) -> list[str]:
        """Return the origins by which the gateway offers an app, the one of its link first."""
        host = self.app_hostname(session, app)
        by_path = [f"https://{self.authority()}"] if self.path_links and path != NONE else []
        return [*([f"https://{self.authority(host)}"] if host else []), *by_path]
