# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a gateway is: where users find it, which ports it has for them, and what may be wrong with it."""

from __future__ import annotations

import dataclasses

from .._model.addressing import bracketed
from .._model.errors import ClusterError


class GatewayError(ClusterError):
    """The gateway is not as it should be, or cannot do what is asked; the message is one sentence for the operator."""


@dataclasses.dataclass(frozen=True)
class Gateway:
    """Where users find a gateway.

    ``hostname`` is a name, or an address of either family without brackets. With a ``domain``, apps have host names of
    their own below it. ``first_ssh_port`` to ``last_ssh_port`` lead to the sshds of sessions, one port for each.
    """

    hostname: str
    domain: str
    https_port: int
    first_ssh_port: int
    last_ssh_port: int

    def authority(self, host: str = "") -> str:
        """Return what stands in an URL for the gateway, or for one of its own host names; a port other than 443 too."""
        name = host or bracketed(self.hostname)
        return name if self.https_port == 443 else f"{name}:{self.https_port}"
