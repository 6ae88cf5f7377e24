# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The folder of a container's files on its agent, which the container has at ``/run/backendai``.

It is root's, below folders that only root may enter. The group of its user may read it, and nobody inside may write.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from .._host.command_ends import make_wake
from .._model.errors import ClusterError

READABLE = 0o640
"""The mode of a file that the user of a container may read."""

GATE = "gate"
"""A pipe from which the entrypoint reads a line before anything of the image or the user runs."""

ADMITTED = "admitted"
"""The file that names the first process of a container that was let begin."""

NODES = "nodes"
"""The device nodes that belong to the user of a container; the engine makes those of a container by them."""


class DeviceMissingError(ClusterError):
    """A device of a container is not on this host. The message is one sentence."""


def make_folder(folder: Path, gid: int) -> None:
    """Make a container's folder, whose files get the group of its user; it may exist."""
    for path in (folder, folder / "ssh", folder / "apps", folder / NODES):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chown(path, 0, gid)
        # With the bit of its group, whatever is written in it gets that, too.
        path.chmod(0o2750)
    make_wake(folder)
    if not (folder / GATE).exists():
        make_gate(folder)


def make_gate(folder: Path) -> None:
    """Make the gate anew: whoever has the former one open learns nothing of the next start."""
    for name in (GATE, ADMITTED):
        (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / GATE, 0o600)
    (folder / GATE).chmod(READABLE)


def device_names(folder: Path, paths: Iterable[str]) -> dict[str, str]:
    """Return the agent's own node of each device node, by the path that it has in the container."""
    return {path: str(folder / NODES / path.strip("/").replace("/", "-")) for path in paths}


def make_nodes(nodes: Mapping[str, str], uid: int) -> None:
    """Make device nodes like those at the paths, which only ``uid`` may open; numbers may change with each boot.

    Raises :class:`DeviceMissingError`.
    """
    for path, node in nodes.items():
        with contextlib.suppress(FileNotFoundError):
            os.unlink(node)
        try:
            found = os.stat(path)
        except FileNotFoundError:
            raise DeviceMissingError(f"the device {path} is not there any more: load its driver") from None
        os.mknod(node, stat.S_IFMT(found.st_mode) | 0o600, found.st_rdev)
        os.chown(node, uid, -1)
