# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a gateway is: where users find it, which ports it has for them, and what may be wrong with it."""

from __future__ import annotations

import dataclasses

from ansible_collections.backendai.cluster.plugins.module_utils._model.addressing import bracketed
from ansible_collections.backendai.cluster.plugins.module_utils._model.errors import ClusterError


class GatewayFault(ClusterError):
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

    @property
    def authority(self) -> str:
        """What stands for the gateway in an URL, the port included where it is not the usual one."""
        return self._with_port(bracketed(self.hostname))

    def authority_of(self, host: str) -> str:
        """What stands for one of the gateway's own host names in an URL."""
        return self._with_port(host)

    def _with_port(self, host: str) -> str:
        return host if self.https_port == 443 else f"{host}:{self.https_port}"
