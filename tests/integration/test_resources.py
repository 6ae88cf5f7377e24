"""What each container gets of its agent, as seen from inside of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.integration.conftest import Sessions
from tests.integration.laboratory import inside, on

MEMORY, SHARED = 256 << 20, 32 << 20
BOTH = ("agent1", "agent3")
SPREAD = {
    "cluster_mode": "multi-node",
    "cluster_size": 2,
    "agent_selection": "dispersed",
    "designated_agents": list(BOTH),
    "resources": {"cpu": 1, "mem": MEMORY, "shmem": SHARED},
}
IPC_LOCK, SYS_NICE, SYS_RESOURCE = (1 << bit for bit in (14, 23, 24))

LOOK = """
import json, os, resource
from pathlib import Path

group = Path("/sys/fs/cgroup")
one, two = group / "memory", group
read = lambda path: path.read_text().strip() if path.exists() else None
shared = os.statvfs("/dev/shm")
print(json.dumps({
    "cores": sorted(os.sched_getaffinity(0)),
    "memory": read(one / "memory.limit_in_bytes") or read(two / "memory.max"),
    "memory and swap": read(one / "memory.memsw.limit_in_bytes"),
    "swap": read(two / "memory.swap.max"),
    "shared": shared.f_frsize * shared.f_blocks,
    "nofile": resource.getrlimit(resource.RLIMIT_NOFILE),
    "memlock": resource.getrlimit(resource.RLIMIT_MEMLOCK),
}))
"""


@pytest.fixture
def infiniband() -> Iterator[None]:
    """Let two agents have InfiniBand: a node that anybody can open who may, at its place."""
    node = "mkdir /dev/infiniband && mknod -m 600 /dev/infiniband/uverbs0 c 10 229"
    link = "mkdir /dev/infiniband/by-ibdev && ln -s ../uverbs0 /dev/infiniband/by-ibdev/lab-uverbs0"
    try:
        for agent in BOTH:
            on(agent, f"{node} && {link}")
        yield
    finally:
        for agent in BOTH:
            on(agent, "rm -rf /dev/infiniband")


def can_give(agent: str) -> dict[str, list[int]]:
    """Return the limits that an agent's engine can give: all, if it may raise them, else those of its containerd."""
    told = on(agent, "cat /proc/$(pidof containerd)/limits /proc/$(pidof containerd)/status")
    lines = dict(line.split(":", 1) for line in told.splitlines() if line.startswith("CapBnd:"))
    if int(lines["CapBnd"], 16) & SYS_RESOURCE:
        return {"nofile": [1 << 20] * 2, "memlock": [-1] * 2}
    hard = {line[:17]: line.split()[-2] for line in told.splitlines() if line.startswith("Max")}
    files, locked = hard["Max open files   "], hard["Max locked memory"]
    nofile = (1 << 20) if files == "unlimited" else min(1 << 20, int(files))
    return {"nofile": [nofile] * 2, "memlock": [-1 if locked == "unlimited" else int(locked)] * 2}


def looked(kernel: Mapping[str, Any]) -> dict[str, Any]:
    """Return what user work sees in a container after a login, as in a job."""
    login = ["/opt/backendai/bin/ssh", "-o", "BatchMode=yes", kernel["hostname"], "python3 -"]
    text = inside(kernel, "sh", "-c", f"echo {json.dumps(LOOK.encode().hex())} | xxd -r -p | {' '.join(login)}")
    return dict(json.loads(text))
