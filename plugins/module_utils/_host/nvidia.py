# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The device nodes of NVIDIA's driver."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

CONTROL = "/dev/nvidiactl"
"""The node that every program needs that uses a GPU."""

OPTIONAL = ("/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
"""Nodes of modules that may be loaded later than the driver, or never."""

_UUID = re.compile(r"^GPU UUID:\s+(GPU-\S+)", re.MULTILINE)
_MINOR = re.compile(r"^Device Minor:\s+(\d+)", re.MULTILINE)


def gpu_nodes(root: Path = Path("/")) -> dict[str, tuple[str, ...]]:
    """Return the device nodes that each NVIDIA GPU needs, by its UUID: its own, then those that all of them share.

    ``root`` is the root of the host. Empty without the driver; a GPU that cannot be read, or without a node of its own,
    is left out.
    """
    shared = [path for path in (CONTROL, *OPTIONAL) if _is_node(path, root)]
    nodes = {}
    for information in sorted((root / "proc/driver/nvidia/gpus").glob("*/information")):
        with contextlib.suppress(OSError):
            text = information.read_text()
            uuid, minor = _UUID.search(text), _MINOR.search(text)
            if uuid and minor and _is_node(own := f"/dev/nvidia{minor[1]}", root):
                nodes[uuid[1]] = (own, *shared)
    return nodes


def are_linked(nodes: Iterable[str], root: Path = Path("/")) -> bool:
    """Return whether all device nodes have a link in ``/dev/char``, by which runc and systemd find them."""
    numbers = [os.stat(root / node.lstrip("/")).st_rdev for node in nodes]
    return all(os.path.lexists(root / "dev/char" / f"{os.major(rdev)}:{os.minor(rdev)}") for rdev in numbers)


def _is_node(path: str, root: Path) -> bool:
    return (root / path.lstrip("/")).is_char_device()
