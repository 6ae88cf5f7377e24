# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Finds the running containers that cannot open the device nodes of their GPUs, although the agent can."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from .._docker.exec import BUSYBOX, run_as_work
from .._docker.sdk import docker
from .._host.accelerators import ROCM
from .._host.local_session import LocalSession
from .._host.nvidia import OPTIONAL, gpu_nodes
from .._host.store import Store
from .._model.devices import PinnedResources, device_nodes
from .ownership import own_containers

SECONDS = 10
"""How long a container may take to open its nodes."""

# Prints the nodes that are missing, or that the container's control group refuses. The device has other errors: a new
# container would have them, too.
_SCRIPT = """
for node; do
    if [ -c "$node" ]; then
        case $( (: <> "$node") 2>&1 ) in *"not permitted"*) echo "$node" ;; esac
    else
        echo "$node"
    fi
done
"""


def lost_nodes(client: docker.APIClient, store: Store, session: LocalSession) -> dict[str, str]:
    """Return the device nodes of GPUs that running containers have lost, by hostname, as one text for each.

    Raises :class:`ExecLimitError`.
    """
    by_gpu = gpu_nodes()
    lost = {}
    for hostname, container in own_containers(client, store, session).items():
        if container["State"] != "running" or hostname not in session.pinned:
            continue
        nodes = [node for node in _needed(session.pinned[hostname], by_gpu) if _opens(node)]
        if nodes:
            command = [BUSYBOX, "sh", "-c", _SCRIPT, "sh", *nodes]
            try:
                printed = run_as_work(client, container["Id"], command, SECONDS).splitlines()
            except docker.errors.APIError:
                # It has just ended, or its user is not there yet.
                continue
            if missing := [node for node in nodes if node in printed]:
                lost[hostname] = ", ".join(missing)
    return lost


def _needed(pinned: PinnedResources, by_gpu: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the device nodes that the GPUs of a container need in any case."""
    nvidia = [node for device in pinned.device_ids for node in by_gpu.get(device, ()) if node not in OPTIONAL]
    return list(dict.fromkeys([*nvidia, *device_nodes(pinned.devices.get(ROCM, ()))]))


def _opens(node: str) -> bool:
    """Return whether this process can open a device node; if not, the device or its driver is at fault."""
    try:
        os.close(os.open(node, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError:
        return False
    return True
