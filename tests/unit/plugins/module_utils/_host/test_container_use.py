"""What the processes of a container use, as the kernel reports it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host import container_use
from ansible_collections.backendai.cluster.plugins.module_utils._host.container_use import (
    accepted_connections,
    cpu_seconds,
    gpu_loads,
    working_gpus,
)


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of process 7 in a fake /proc."""
    monkeypatch.setattr(container_use, "PROC", tmp_path / "proc")
    monkeypatch.setattr(container_use, "CGROUPS", tmp_path / "cgroup")
    folder = tmp_path / "proc" / "7"
    (folder / "net").mkdir(parents=True)
    return folder


@pytest.mark.parametrize(
    ("cgroup", "file", "content"),
    [
        (
            "4:memory:/docker/1a\n3:cpu,cpuacct:/docker/1a\n0::/\n",
            "cpu,cpuacct/docker/1a/cpuacct.usage",
            "2500000000\n",
        ),
        ("0::/system.slice/1a.scope\n", "system.slice/1a.scope/cpu.stat", "usage_usec 2500000\nuser_usec 1\n"),
    ],
    ids=["version 1", "version 2"],
)
def test_the_cpu_time_is_that_of_the_control_group(proc: Path, cgroup: str, file: str, content: str) -> None:
    (proc / "cgroup").write_text(cgroup)
    path = proc.parents[1] / "cgroup" / file
    path.parent.mkdir(parents=True)
    (proc.parents[1] / "cgroup" / "cgroup.controllers").touch()
    path.write_text(content)
    assert cpu_seconds(7) == 2.5


def test_a_process_without_such_a_group_is_an_error(proc: Path) -> None:
    (proc / "cgroup").write_text("4:memory:/docker/1a\n0::/\n")
    with pytest.raises(OSError, match="process 7 is in no control group that counts CPU time"):
        cpu_seconds(7)


def test_accepted_connections_are_counted_by_the_kernel(proc: Path) -> None:
    lines = ["Ip: Forwarding", "Ip: 1", "Tcp: RtoMin ActiveOpens PassiveOpens", "Tcp: 200 5 17"]
    (proc / "net" / "snmp").write_text("\n".join(lines))
    assert accepted_connections(7) == 17


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Let nvidia-smi be a script."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


@pytest.mark.parametrize(
    ("script", "working"),
    [
        ("printf 'GPU-1, 0\nGPU-2, 37\nGPU-3, [N/A]\n'", {"GPU-2"}),
        ("echo broken >&2; exit 9", None),
    ],
)
def test_working_gpus_are_those_that_the_driver_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, working: set[str] | None
) -> None:
    stand_in(tmp_path, monkeypatch, script)
    assert working_gpus() == working
    assert gpu_loads() == (None if working is None else {"GPU-1": 0, "GPU-2": 37})


def test_gpus_of_a_driver_that_hangs_are_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, "exec sleep 60")
    monkeypatch.setattr(container_use, "GPU_SECONDS", 0.2)
    assert working_gpus() is None


def test_gpus_are_unknown_without_a_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert working_gpus() is None
