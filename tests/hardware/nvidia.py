# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Look at the NVIDIA GPUs of this host as an agent does: ``python3 -m tests.hardware.nvidia FOLDER``, as root.

Writes to FOLDER what the driver's programs and files print, a text for each, and ``found.json``: what the collection
makes of them. The folders beside this file are those of hosts that were looked at; unit tests read them.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from plugins.module_utils._host import accelerators, gpu_processes, machine, nvidia

HEALTH = Path(__file__).resolve().parents[2] / "roles/agent/files/health"
HEALTHY = (
    "uuid",
    "ecc.errors.uncorrected.volatile.total",
    "retired_pages.pending",
    "remapped_rows.failure",
    "clocks_event_reasons.hw_thermal_slowdown",
    "clocks_event_reasons.hw_power_brake_slowdown",
)
CHECKS = ("gpu", "nvlink", "dcgm", "memory", "link", "infiniband")
SECONDS = 60

PROGRAMS = {
    "query": accelerators.QUERY,
    "list": accelerators.LIST,
    "processes": gpu_processes.QUERY,
    "health": (
        "nvidia-smi",
        f"--query-gpu={','.join(HEALTHY)}",
        "--format=csv,noheader,nounits",
    ),
    "nvlink": ("nvidia-smi", "nvlink", "--status"),
    "topology": ("nvidia-smi", "topo", "-m"),
    "driver": ("nvidia-smi", "--query-gpu=driver_version,vbios_version,pci.bus_id,compute_cap", "--format=csv"),
    "information": ("sh", "-c", "cd /proc/driver/nvidia/gpus && head -n 30 */information"),
    "nodes": ("sh", "-c", "ls -ln /dev/nvidia* /dev/char | sed 's/ [0-9]* [A-Z].. [ 0-9]* [0-9:]* / /'"),
    "cores": ("lscpu",),
    "numa": ("sh", "-c", "grep . /sys/devices/system/node/node*/cpulist /sys/bus/pci/drivers/nvidia/*/numa_node"),
    "toolkit": ("nvidia-ctk", "--version"),
    "log": ("sh", "-c", "dmesg --notime | grep -i nvrm"),
}


def run(command: Sequence[str]) -> tuple[int, str]:
    """Return the exit code and all output of a command; 127 if there is no such program."""
    try:
        completed = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS, check=False
        )
    except FileNotFoundError as error:
        return 127, f"{error}\n"
    return completed.returncode, completed.stdout


def look() -> dict[str, Any]:
    """Return what the collection finds on this host."""
    found = accelerators.find_accelerators([])
    offered = accelerators.find_accelerators([], cdi_folders=["/etc/cdi", "/var/run/cdi"])
    nodes = nvidia.gpu_nodes()
    whole, warnings = accelerators._find_cuda(Path("/"))
    cores = machine.online_cpus()
    return {
        "driver": [dataclasses.asdict(device) for device in whole],
        "driver_warnings": warnings,
        "devices": [dataclasses.asdict(device) for device in found.devices],
        "warnings": found.warnings,
        "devices_by_cdi": [dataclasses.asdict(device) for device in offered.devices],
        "nodes": nodes,
        "linked": {gpu: nvidia.are_linked(paths) for gpu, paths in nodes.items()},
        "busy": gpu_processes.describe_users(gpu_processes.read_gpu_processes().users, []),
        "infiniband": accelerators.infiniband_nodes(),
        "cores": cores,
        "numa": machine.numa_nodes(cores),
        "memory": machine.memory_total(),
    }


def main(folder: Path) -> None:
    """Write everything to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, command in PROGRAMS.items():
        code, printed = run(command)
        (folder / f"{name}.txt").write_text(f"$ {' '.join(command)}\n{printed}exit code {code}\n")
    for check in CHECKS:
        code, printed = run(["sh", str(HEALTH / check)])
        (folder / f"check-{check}.txt").write_text(f"{printed}exit code {code}\n")
    (folder / "found.json").write_text(json.dumps(look(), indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
