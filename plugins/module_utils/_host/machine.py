# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the cores, NUMA nodes and memory of a host."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

# The cores that a host has been given, if it is a container itself: its groups of processes see no others.
_GIVEN = ("sys/fs/cgroup/cpuset.cpus.effective", "sys/fs/cgroup/cpuset/cpuset.effective_cpus")


def online_cpus(root: Path = Path("/")) -> list[int]:
    """Return the numbers of the cores that containers of this host may have, in order.

    The kernel below ``root`` says so, and not the affinity of this process: that of a login may be narrower. On cores
    that are isolated at boot, the kernel does not move the threads of a program from one to another.
    """
    folder = root / "sys/devices/system/cpu"
    cpus = {*_read_cpus(folder / "online")} - {*_read_cpus(folder / "isolated")}
    given = next((path for path in map(root.joinpath, _GIVEN) if _read_cpus(path)), None)
    return sorted(cpus & {*_read_cpus(given)} if given else cpus)


def _read_cpus(path: Path) -> list[int]:
    """Return the cores that a file of the kernel lists; none if it is missing."""
    try:
        return parse_cpu_list(path.read_text().strip())
    except FileNotFoundError:
        return []


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
