# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads what the processes of a container use, without entering it: CPU time, memory, accepted connections, GPUs."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from .deadline import read_uptime
from .processes import PROC, process_start_time

CGROUPS = Path("/sys/fs/cgroup")
GPU_QUERY = ("nvidia-smi", "--query-gpu=uuid,utilization.gpu", "--format=csv,noheader,nounits")
GPU_SECONDS = 10

_MEMORY_FILES = {1: ("memory.usage_in_bytes", "total_inactive_file"), 2: ("memory.current", "inactive_file")}
_UTILIZATION = re.compile(r"^(GPU-\S+), *(\d+) *$", re.MULTILINE)


def cpu_seconds(pid: int, container: str = "") -> float:
    """Return the CPU time that the control group of a process has used, in seconds. Raises :class:`OSError`.

    With the id of its ``container``, it is that of the container, which may have groups of its own.
    """
    version, group = _control_group(pid, "cpuacct", "CPU time", container)
    if version == 1:
        return int((group / "cpuacct.usage").read_text()) / 1e9
    return _read_statistic(group / "cpu.stat", "usage_usec") / 1e6


def memory_bytes(pid: int, container: str = "") -> int:
    """Return the memory that such a control group uses, without files that are only cached. Raises :class:`OSError`."""
    version, group = _control_group(pid, "memory", "memory", container)
    used, cached = _MEMORY_FILES[version]
    return max(0, int((group / used).read_text()) - _read_statistic(group / "memory.stat", cached))


def age(pid: int) -> float:
    """Return how many seconds ago a process was started. Raises :class:`OSError`."""
    return read_uptime() - int(process_start_time(pid)) / os.sysconf("SC_CLK_TCK")


def _control_group(pid: int, controller: str, counted: str, container: str) -> tuple[int, Path]:
    """Return the version of a process's control group, and its folder. Raises :class:`OSError`."""
    for line in (PROC / str(pid) / "cgroup").read_text().splitlines():
        _number, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return 1, CGROUPS / controllers / _upper_group(path, container)
        if not controllers and (CGROUPS / "cgroup.controllers").exists():
            return 2, CGROUPS / _upper_group(path, container)
    raise OSError(f"process {pid} is in no control group that counts {counted}")


def _upper_group(path: str, container: str) -> str:
    """Return the part of a group's path that ends with the container's group."""
    upper = re.match(rf".*{re.escape(container)}[^/]*", path) if container else None
    return (upper[0] if upper else path).lstrip("/")


def _read_statistic(file: Path, name: str) -> int:
    words = file.read_text().split()
    return int(words[words.index(name) + 1])


def accepted_connections(pid: int) -> int:
    """Return how many TCP connections were ever accepted in the network of a process. Raises :class:`OSError`."""
    names, values = (
        line.split() for line in (PROC / str(pid) / "net/snmp").read_text().splitlines() if line.startswith("Tcp:")
    )
    return int(values[names.index("PassiveOpens")])


def working_gpus() -> set[str] | None:
    """Return the UUIDs of the NVIDIA GPUs that work at this moment; ``None`` if they cannot be read."""
    try:
        completed = subprocess.run(GPU_QUERY, check=True, capture_output=True, text=True, timeout=GPU_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return None
    return {uuid for uuid, percent in _UTILIZATION.findall(completed.stdout) if int(percent)}
