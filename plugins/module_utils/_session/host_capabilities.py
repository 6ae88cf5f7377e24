# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads what a host provides to every container, beyond what the session requests."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from .._docker.containers import cdi_folders, log_driver, newest_cdi
from .._docker.mounts import is_recursive
from .._docker.sdk import docker
from .._host.accelerators import infiniband_nodes, named_gpus
from .._host.limits import read_limits
from .._host.nvidia import gpu_nodes


@dataclasses.dataclass(frozen=True)
class HostCapabilities:
    """What the host provides to every container.

    ``ulimits`` are the process limits, -1 for unlimited, ``cdi_gpus`` the GPUs that CDI names, and ``infiniband`` the
    paths of the InfiniBand device nodes, for sessions with InfiniBand. ``log_driver`` is the engine's default, and
    ``gpu_nodes`` are the device nodes of NVIDIA GPUs by UUID. ``recursive`` is whether the engine can make all below a
    read-only folder read-only.
    """

    ulimits: dict[str, int] = dataclasses.field(default_factory=dict)
    cdi_gpus: frozenset[str] = frozenset()
    infiniband: tuple[str, ...] = ()
    log_driver: str = ""
    gpu_nodes: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    recursive: bool = False


def read_host(client: docker.APIClient) -> HostCapabilities:
    """Read the capabilities of this host."""
    info = client.info()
    return HostCapabilities(
        read_limits(),
        named_gpus(cdi_folders(info), newest=newest_cdi(info)),
        tuple(infiniband_nodes()),
        log_driver(info),
        gpu_nodes(),
        is_recursive(client),
    )
