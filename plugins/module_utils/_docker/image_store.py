# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where an engine has its images and the layers of containers: in its own data, or in the store of a containerd.

The latter is the default of new installations of engine 29. The engine says that it is used, and which containerd it
is, but not where that has its data: its process does.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
import socket
import struct
import subprocess
from collections.abc import Mapping
from typing import Any

from .._host.processes import PROC

# Of engines that do not say it (API 1.45 and older): they use the containerd of the host, if one runs.
_SYSTEM_SOCKET, _SYSTEM_ROOT = "/run/containerd/containerd.sock", "/var/lib/containerd"

# What a containerd always has open. Its folder is in the folder of all data.
_DATABASE = "io.containerd.metadata.v1.bolt/meta.db"

_NAMESPACE = "moby"
_SECONDS = 5


def uses_containerd(info: Mapping[str, Any]) -> bool:
    """Return whether images are in the store of a containerd, from the engine's system information."""
    return any(list(status)[1:] == ["io.containerd.snapshotter.v1"] for status in info.get("DriverStatus") or ())


def engine_folder(info: Mapping[str, Any]) -> str:
    """Return the folder of the engine's data, from its system information; empty if it does not say."""
    return str(info.get("DockerRootDir") or "")


def image_folder(info: Mapping[str, Any]) -> str:
    """Return the folder with the engine's images, from its system information; empty if it does not say."""
    if not uses_containerd(info):
        return engine_folder(info)
    address = _address(info)
    # One that the engine has started itself has its data in the engine's.
    usual = _SYSTEM_ROOT if address == _SYSTEM_SOCKET else posixpath.join(engine_folder(info), "containerd/daemon")
    return _open_store(address) or usual


def layer_of_snapshot(info: Mapping[str, Any], container: str) -> str | None:
    """Return the folder with what a container has changed, if images are in the store of a containerd.

    ``None`` if that does not say it.
    """
    if not uses_containerd(info):
        return None
    namespace = ((info.get("Containerd") or {}).get("Namespaces") or {}).get("Containers") or _NAMESPACE
    command = ["ctr", "--address", _address(info), "--namespace", str(namespace)]
    command += ["snapshots", "--snapshotter", str(info.get("Driver")), "mounts", "/nowhere", container]
    try:
        printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_SECONDS).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r"[ ,]upperdir=([^,\s]+)", printed)
    return found[1] if found else None


def _address(info: Mapping[str, Any]) -> str:
    """Return the path of the socket of the containerd that an engine uses."""
    said = str((info.get("Containerd") or {}).get("Address") or _SYSTEM_SOCKET)
    return said[len("unix://") :] if said.startswith("unix://") else said


def _open_store(address: str) -> str | None:
    """Return the folder of the data of the containerd at a socket, as its process has it open; else ``None``."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_SECONDS)
            connection.connect(address)
            pid, _uid, _gid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        files = [*(PROC / str(pid) / "fd").iterdir()]
    except OSError:
        return None
    for file in files:
        # It may have been closed since.
        with contextlib.suppress(OSError):
            path = os.readlink(file)
            if path.endswith(f"/{_DATABASE}"):
                return path[: -len(_DATABASE) - 1]
    return None
