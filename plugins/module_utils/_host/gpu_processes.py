# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads which processes compute on NVIDIA GPUs, and whether they are in containers of this collection."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Collection, Iterable

from .accelerators import gpu_instances
from .processes import PROC

QUERY = ("nvidia-smi", "--query-compute-apps=gpu_uuid,pid", "--format=csv,noheader")
SECONDS = 10

_PROCESS = re.compile(r"^((?:GPU|MIG)-[^\s,]+), *([^\s,]+) *$", re.MULTILINE)


def find_busy_gpus(gpus: Collection[str], containers: Collection[str]) -> dict[str, str]:
    """Return those of the GPUs on which a process outside of the containers computes, and the process in words.

    ``gpus`` are UUIDs, also of MIG instances: the driver names processes by the GPU, so all of its instances are busy.
    ``containers`` are full ids. Raises :class:`OSError` or :class:`subprocess.SubprocessError` if the driver fails.
    """
    completed = subprocess.run(QUERY, check=True, capture_output=True, text=True, timeout=SECONDS)
    busy: dict[str, str] = {}
    for gpu, pid in _PROCESS.findall(completed.stdout):
        process = _describe_foreign(pid, containers)
        if process:
            busy.setdefault(gpu, process)
    if not busy.keys() <= {*gpus}:
        for gpu, instances in gpu_instances().items():
            if gpu in busy:
                busy.update(dict.fromkeys(instances, busy[gpu]))
    return {gpu: busy[gpu] for gpu in gpus if gpu in busy}


def _describe_foreign(pid: str, containers: Iterable[str]) -> str:
    """Return a process in words; empty if it is in one of the containers, or has ended.

    What the driver does not name could be anybody's.
    """
    if not pid.isdigit():
        return "an unknown process"
    try:
        groups = (PROC / pid / "cgroup").read_text()
        if any(container in groups for container in containers):
            return ""
        # A program may give itself any name.
        name = ascii((PROC / pid / "comm").read_text(errors="replace").strip())[1:-1]
    except OSError:
        return ""
    return f"{name} (process {pid})"
