# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the cores, NUMA nodes and memory of a host."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def online_cpus() -> list[int]:
    """Return the numbers of the cores that this host may use, in order."""
    return sorted(os.sched_getaffinity(0))


def numa_nodes(cpus: Iterable[int], root: Path = Path("/")) -> dict[int, int]:
    """Return the NUMA node of each of these cores; 0 if the kernel below ``root`` does not report one."""
    nodes = {}
    for folder in root.glob("sys/devices/system/node/node[0-9]*"):
        for cpu in parse_cpu_list((folder / "cpulist").read_text().strip()):
            nodes[cpu] = int(folder.name[len("node") :])
    return {cpu: nodes.get(cpu, 0) for cpu in cpus}


def memory_total() -> int:
    """Return the memory of the host in bytes (``MemTotal``, which excludes memory reserved by the kernel)."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/meminfo has no MemTotal")


def architecture() -> str:
    """Return the machine's architecture as named by images: ``amd64``, ``arm64`` …"""
    machine = os.uname().machine
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def parse_cpu_list(listed: str) -> list[int]:
    """Parse the kernel's list of cores, such as ``0-3,8``; it is empty for NUMA nodes without cores."""
    ranges = (part.partition("-") for part in listed.split(",") if part)
    return [number for first, _dash, last in ranges for number in range(int(first), int(last or first) + 1)]
