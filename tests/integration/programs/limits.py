"""Print the limits inside a container as JSON: cores, memory, shared memory, open files, locked memory."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path

GROUP = Path("/sys/fs/cgroup")
VERSION_1, VERSION_2 = GROUP / "memory", GROUP


def value(path: Path) -> str | None:
    return path.read_text().strip() if path.exists() else None


shared = os.statvfs("/dev/shm")
limits = {
    "cores": sorted(os.sched_getaffinity(0)),
    "memory": value(VERSION_1 / "memory.limit_in_bytes") or value(VERSION_2 / "memory.max"),
    "memory and swap": value(VERSION_1 / "memory.memsw.limit_in_bytes"),
    "swap": value(VERSION_2 / "memory.swap.max"),
    "shared": shared.f_frsize * shared.f_blocks,
    "nofile": resource.getrlimit(resource.RLIMIT_NOFILE),
    "memlock": resource.getrlimit(resource.RLIMIT_MEMLOCK),
}
print(json.dumps(limits))
