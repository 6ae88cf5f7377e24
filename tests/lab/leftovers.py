"""Removes everything that a lab left on the machine: processes, cgroups, mounts, folders.

Every process that outlives a command of the lab (the private engine and all containers inside hosts), or that might
(image builds, if `up` is killed), is started in the cgroup with the lab's id. Unlike a pid file, a cgroup cannot be
lost, and unlike a pid, it is not reused.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from tests.lab.command import LabError, output, succeeds
from tests.lab.identity import Lab

CGROUPS = Path("/sys/fs/cgroup")


def cgroup_roots() -> list[Path]:
    """Return the root of each cgroup hierarchy: one with cgroup v2, one per controller with v1."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return [entry for entry in sorted(CGROUPS.iterdir()) if (entry / "cgroup.procs").exists()]


def join_cgroup_line(lab: Lab, part: str) -> str:
    """Return the line that moves a shell script into a part of the lab's cgroup."""
    cgroup = cgroup_roots()[0] / lab.name / part
    return f"mkdir -p '{cgroup}' && echo $$ > '{cgroup}/cgroup.procs'"


def lab_cgroups(lab: Lab, part: str = "") -> list[Path]:
    """Return the lab's cgroups, or those of a part of it, in all hierarchies; children before parents."""
    cgroups: list[Path] = []
    for root in cgroup_roots():
        cgroups += [Path(folder) for folder, _folders, _files in os.walk(root / lab.name / part, topdown=False)]
    return cgroups


def lab_processes(lab: Lab, part: str = "") -> set[int]:
    """Return the ids of all processes of the lab, or of a part of it."""
    pids: set[int] = set()
    for cgroup in lab_cgroups(lab, part):
        with contextlib.suppress(OSError):  # removed meanwhile
            pids.update(int(pid) for pid in (cgroup / "cgroup.procs").read_text().split())
    return pids


def cpu_seconds(lab: Lab) -> float:
    """Return the CPU time of all processes of the lab so far, in hosts and containers, too."""
    version_1, version_2 = CGROUPS / "cpuacct" / lab.name / "cpuacct.usage", CGROUPS / lab.name / "cpu.stat"
    with contextlib.suppress(OSError):  # there is no lab
        if version_1.parents[1].exists():
            return int(version_1.read_text()) / 1e9
        return int(version_2.read_text().split()[1]) / 1e6
    return 0.0


def end_processes(lab: Lab, part: str = "") -> None:
    """Kill all processes in the lab's cgroups, or in a part of them, and remove the cgroups.

    No process needs a clean shutdown, because its disks are about to be removed.
    """
    for _attempt in range(100):
        alive = lab_processes(lab, part)
        if not alive:
            break
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
    else:
        raise LabError(f"these processes of the lab do not end: {sorted(lab_processes(lab, part))}")
    _remove_cgroups(lab_cgroups(lab, part))


def _remove_cgroups(cgroups: list[Path]) -> None:
    """Remove empty cgroups, children before parents; each stays busy for a moment after its last process."""
    for _attempt in range(100):
        cgroups = [cgroup for cgroup in cgroups if _is_busy(cgroup)]
        if not cgroups:
            return
        time.sleep(0.1)
    raise LabError(f"the kernel keeps {cgroups[0]} busy although no process is in it")


def _is_busy(cgroup: Path) -> bool:
    """Remove an empty cgroup, or tell that it cannot be removed yet."""
    try:
        cgroup.rmdir()
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def remove_folder(folder: Path) -> None:
    """Unmount everything below a folder of the lab, and remove it without crossing file systems."""
    if not folder.exists():
        return
    for mount in reversed(_mounts_below(folder)):
        if not succeeds("umount", mount):
            output("umount", "--lazy", mount)
    if mounted := _mounts_below(folder):
        raise LabError(f"{mounted[0]} is still mounted, so {folder} stays")
    output("rm", "-rf", "--one-file-system", str(folder), timeout=300)


def _mounts_below(folder: Path) -> list[str]:
    """Return the mount points in and below a folder, parents first."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = [line.split()[4].encode().decode("unicode_escape") for line in lines]
    return [point for point in points if point == str(folder) or point.startswith(f"{folder}/")]
