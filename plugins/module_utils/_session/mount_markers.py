# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks whether containers see the same data: main1 creates a marker file in a mount, and all others look for it.

Everything runs as user work inside the containers, under their limits: no file is written that work may not write.
"""

from __future__ import annotations

from typing import Any

from .._docker.exec import BUSYBOX, run_as_work
from .._docker.sdk import docker
from .._host.threads import in_threads
from .._model.errors import ClusterError
from .._model.plan import SessionPlan
from .ownership import OwnContainers

PREFIX = ".backendai-verify-"

SECONDS = 45
"""The timeout of a command: storage may hang."""

# Each prints one line for each mount.
_CREATE = """
set -C
for target in "$@"; do
    if true > "$target/$marker"; then echo created; else echo refused; fi
done 2> /dev/null
"""
_FIND = f"""
for target in "$@"; do
    if [ -e "$target/$marker" ]; then seen=yes; else seen=no; fi
    if names=$(ls -A1 "$target"); then
        names=$(echo "$names" | grep -v -e '^{PREFIX}' -e '^$' | sha256sum | cut -c1-16)
    else
        names=-
    fi
    echo "$seen" "$(stat -L -c %d:%i "$target" || echo -)" "$names"
done 2> /dev/null
"""
_REMOVE = """
for target in "$@"; do
    if rm -f "$target/$marker"; then echo removed; else echo kept; fi
done 2> /dev/null
"""


def create_marker(client: docker.APIClient, own: OwnContainers, plan: SessionPlan, name: str) -> list[str]:
    """Create the marker from main1 in each writable mount; return the targets where that succeeded."""
    targets = [mount.target for mount in plan.mounts if not mount.read_only]
    answers = _run(client, _main_of(own, plan), _CREATE, name, targets)
    return [target for target, answer in zip(targets, answers) if answer == "created"]


def find_markers(
    client: docker.APIClient, own: OwnContainers, plan: SessionPlan, name: str
) -> dict[str, dict[str, dict[str, Any]]]:
    """Return how each container that runs here sees each mount, by hostname and target.

    ``marker``: whether the marker exists. ``folder``: the device and inode of the mount's top folder. ``names``: a
    digest of the names in it, without markers. The last two are ``-`` where the container cannot read them.
    """
    running = {hostname: each["Id"] for hostname, each in own.items() if each["State"] == "running"}
    targets = [mount.target for mount in plan.mounts]
    answers = in_threads(lambda container: _run(client, container, _FIND, name, targets), running.values())
    return {
        hostname: {target: _parse_line(line) for target, line in zip(targets, lines)}
        for hostname, lines in zip(running, answers)
    }


def remove_marker(client: docker.APIClient, own: OwnContainers, plan: SessionPlan, name: str) -> list[str]:
    """Remove the marker from main1; return the targets where that failed."""
    targets = [mount.target for mount in plan.mounts if not mount.read_only]
    answers = _run(client, _main_of(own, plan), _REMOVE, name, targets)
    return [target for target, answer in zip(targets, answers) if answer != "removed"]


def _main_of(own: OwnContainers, plan: SessionPlan) -> str:
    """Return the id of main1. Raises :class:`ClusterError` if it is not there."""
    main = plan.kernels[0]
    if main.hostname not in own:
        raise ClusterError(f"{main.hostname} of {plan.name} is not on {main.agent}: run repair_session")
    return str(own[main.hostname]["Id"])


def _parse_line(line: str) -> dict[str, Any]:
    present, folder, names = (*line.split(), "-", "-", "-")[:3]
    return {"marker": present == "yes", "folder": folder, "names": names}


def _run(client: docker.APIClient, container: str, script: str, name: str, targets: list[str]) -> list[str]:
    command = [BUSYBOX, "env", f"marker={PREFIX}{name}", BUSYBOX, "sh", "-c", script, "sh", *targets]
    return run_as_work(client, container, command, SECONDS).splitlines()
