# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What may go wrong on an agent although nothing is wrong with the program: each is told in one sentence."""

from __future__ import annotations

from ansible_collections.backendai.cluster.plugins.module_utils._docker.client import EngineUnavailable
from ansible_collections.backendai.cluster.plugins.module_utils._docker.images import ImageUnavailable
from ansible_collections.backendai.cluster.plugins.module_utils._docker.overlay import OverlayInUse
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.table import FirewallError
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Damaged, NotProvisioned
from ansible_collections.backendai.cluster.plugins.module_utils._network.iproute import NetworkError
from ansible_collections.backendai.cluster.plugins.module_utils._wireguard.device import WireGuardError


class Refused(Exception):
    """What an agent refuses to do, for a reason that the operator can act upon; the message is one sentence."""


EXPECTED = (
    Damaged,
    EngineUnavailable,
    FirewallError,
    ImageUnavailable,
    NetworkError,
    NotProvisioned,
    OSError,
    OverlayInUse,
    ValueError,
    WireGuardError,
)
"""What the adapters raise when the host or what is asked of it is not as it should be."""
