# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run commands inside a container, under all of its limits."""

from __future__ import annotations

import shlex

from .sdk import docker

BUSYBOX = "/opt/backendai/bin/busybox"


def run_as_work(client: docker.APIClient, container: str, line: str) -> str:
    """Run a command as user work and return its output, stdout and stderr combined.

    Entering the namespaces directly would take 3 ms instead of the engine's 35 to 50, but would bypass the container's
    cgroup, seccomp filter and capability limits, which is unsafe for commands that may read a user's files.
    """
    execution = client.exec_create(container, shlex.split(line), user="work")
    return bytes(client.exec_start(execution["Id"])).decode(errors="replace")
