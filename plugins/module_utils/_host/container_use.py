# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads what the processes of a container use, without entering it: CPU time, accepted connections, GPUs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from .processes import PROC

CGROUPS = Path("/sys/fs/cgroup")
GPU_QUERY = ("nvidia-smi", "--query-gpu=uuid,utilization.gpu", "--format=csv,noheader,nounits")
GPU_SECONDS = 10

_UTILIZATION = re.compile(r"^(GPU-\S+), *(\d+) *$", re.MULTILINE)


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that the control group of a process has used, in seconds. Raises :class:`OSError`."""
    for line in (PROC / str(pid) / "cgroup").read_text().splitlines():
        _number, controllers, path = line.split(":", 2)
        if "cpuacct" in controllers.split(","):
            return int((CGROUPS / controllers / path.lstrip("/") / "cpuacct.usage").read_text()) / 1e9
        if not controllers and (CGROUPS / "cgroup.controllers").exists():
            words = (CGROUPS / path.lstrip("/") / "cpu.stat").read_text().split()
            return int(words[words.index("usage_usec") + 1]) / 1e6
    raise OSError(f"process {pid} is in no control group that counts CPU time")


def accepted_connections(pid: int) -> int:
    """Return how many TCP connections were ever accepted in the network of a process. Raises :class:`OSError`."""
    names, values = (
        line.split() for line in (PROC / str(pid) / "net/snmp").read_text().splitlines() if line.startswith("Tcp:")
    )
    return int(values[names.index("PassiveOpens")])


def gpu_loads() -> dict[str, int] | None:
    """Return how much the NVIDIA GPUs work at this moment, in percent by UUID; ``None`` if they cannot be read."""
    try:
        completed = subprocess.run(GPU_QUERY, check=True, capture_output=True, text=True, timeout=GPU_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return None
    return {uuid: int(percent) for uuid, percent in _UTILIZATION.findall(completed.stdout)}


def working_gpus() -> set[str] | None:
    """Return the UUIDs of the NVIDIA GPUs that work at this moment; ``None`` if they cannot be read."""
    loads = gpu_loads()
    return None if loads is None else {uuid for uuid, percent in loads.items() if percent}
