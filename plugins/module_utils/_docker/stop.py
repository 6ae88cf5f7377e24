# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ends containers: they are asked, have a time to end, and are killed after it."""

from __future__ import annotations

import time
from collections.abc import Mapping

from .container import STOP_SIGNAL
from .containers import in_parallel
from .sdk import docker

POLL_SECONDS = 0.1

KILL_SECONDS = 10
"""How long killed processes may take to end; those that hang in the kernel do not."""


def stop_containers(client: docker.APIClient, graces: Mapping[str, float]) -> set[str]:
    """End running containers, each with its grace in seconds, all at once; return the ids of those that exceeded it.

    The entrypoint, which only its own signal ends, asks every process of the container. With no grace they are killed.
    It can be repeated, and done twice at the same time: a process is asked once.
    """
    began, running, exceeded = time.monotonic(), _running(client, graces), set[str]()
    in_parallel(
        lambda container: _signal(client, container, STOP_SIGNAL), [entry for entry in running if graces[entry]]
    )
    while running:
        elapsed = time.monotonic() - began
        late = {container for container in running if elapsed >= graces[container]}
        in_parallel(lambda container: _signal(client, container, "SIGKILL"), [*(late - exceeded)])
        exceeded |= late
        if elapsed >= max(graces[container] for container in running) + KILL_SECONDS:
            break
        time.sleep(POLL_SECONDS)
        running = _running(client, graces)
    return {container for container in exceeded if graces[container]}


def _running(client: docker.APIClient, graces: Mapping[str, float]) -> set[str]:
    return {entry["Id"] for entry in client.containers()} & {*graces}


def _signal(client: docker.APIClient, container: str, signal: str) -> None:
    try:
        client.kill(container, signal=signal)
    except docker.errors.APIError:
        # It may have ended by itself; one that cannot be asked is killed later, and one that cannot be killed is
        # reported when it is removed.
        return
