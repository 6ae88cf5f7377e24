# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What containers get of their agent that no plan knows."""

from __future__ import annotations

import dataclasses

from .._docker.containers import cdi_folders
from .._docker.sdk import docker
from .._host.accelerators import infiniband_nodes
from .._host.cdi import named_gpus
from .._host.limits import read_limits


@dataclasses.dataclass(frozen=True)
class Host:
    """``ulimits`` are the limits of containers' processes, -1 for none, and ``cdi_gpus`` the GPUs that CDI names.

    ``infiniband`` are the paths of the device nodes of InfiniBand.
    """

    ulimits: dict[str, int] = dataclasses.field(default_factory=dict)
    cdi_gpus: frozenset[str] = frozenset()
    infiniband: tuple[str, ...] = ()


def read_host(client: docker.APIClient) -> Host:
    """Return what this agent has."""
    return Host(read_limits(), named_gpus(cdi_folders(client)), tuple(infiniband_nodes()))
