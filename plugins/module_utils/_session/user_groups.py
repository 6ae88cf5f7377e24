# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Judges the supplementary groups of a session on the agent that gives them to its containers.

They are numbers of the user's groups on a manager. On an agent a number may be that of another group, and one that owns
a device or the engine's socket would give what no session has.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from .._docker.images import Image
from .._model.accounts import has_numeric_names
from .._model.errors import ClusterError
from .._model.plan import SessionPlan

DEVICES = Path("/dev")
"""Where an agent has its device nodes."""

_REMEDY = "leave it out of groups in the policy, or give it another number there"


class GroupRefusedError(ClusterError):
    """Containers of a session do not get its groups. The message is one sentence."""


def judge_groups(plan: SessionPlan, agent: str, docker_host: str) -> None:
    """Raise :class:`GroupRefusedError` for a group that owns a device node or the engine's socket on this agent."""
    # One that only manages the session's network gives them to nobody.
    groups = plan.groups if plan.kernels_on(agent) else ()
    if not groups:
        return
    names = {group.number: f"{group.number} ({group.name})" if group.name else f"{group.number}" for group in groups}
    scheme, _separator, socket = docker_host.partition("://")
    with contextlib.suppress(OSError):
        owner = os.stat(socket).st_gid if scheme == "unix" else 0
        if owner in names:
            raise GroupRefusedError(
                f"groups: on {agent} the group {names[owner]} owns {socket}, which controls its engine: {_REMEDY}"
            )
    for path, owner in _device_nodes(DEVICES):
        if owner in names:
            raise GroupRefusedError(f"groups: on {agent} the group {names[owner]} owns the device {path}: {_REMEDY}")


def judge_group_files(plan: SessionPlan, images: Mapping[str, Image]) -> None:
    """Raise :class:`GroupRefusedError` for an image whose group file makes the engine take a number for a name.

    ``images`` are by name, with what was seen in them.
    """
    for name, image in images.items() if plan.groups else ():
        if has_numeric_names(image.look.group):
            raise GroupRefusedError(
                f"session_image: /etc/group of {name!r} has names that read as numbers, and the engine would prefer"
                " them to the user's groups: remove these lines from the image, or set groups: [] in the policy"
            )


def _device_nodes(devices: Path) -> Iterator[tuple[str, int]]:
    """Yield the path and the group of each device node on the file system of ``devices``.

    Others that are mounted there have none, such as ``/dev/shm``, in which a user makes as many files as he likes, or
    those of terminals.
    """
    device, folders = os.stat(devices).st_dev, [str(devices)]
    while folders:
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                # One may vanish.
                with contextlib.suppress(FileNotFoundError):
                    found = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(found.st_mode) and found.st_dev == device:
                        folders.append(entry.path)
                    elif stat.S_ISCHR(found.st_mode) or stat.S_ISBLK(found.st_mode):
                        yield entry.path, found.st_gid
