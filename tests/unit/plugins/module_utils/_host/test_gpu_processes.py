"""Which processes compute on GPUs, as a stand-in for the driver names them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host import gpu_processes
from ansible_collections.backendai.cluster.plugins.module_utils._host.gpu_processes import find_busy_gpus

OURS, THEIRS = "0a" * 32, "0b" * 32


@pytest.fixture(autouse=True)
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a /proc with process 7 in a container of ours, 8 in one of others, and 9 in none."""
    monkeypatch.setattr(gpu_processes, "PROC", tmp_path)
    groups = {7: f"0::/system.slice/docker-{OURS}.scope/job", 8: f"4:memory:/docker/{THEIRS}", 9: "0::/user.slice"}
    for pid, group in groups.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cgroup").write_text(f"{group}\n")
        (tmp_path / str(pid) / "comm").write_text("python3\n" if pid != 9 else "a\x1b[2J\n")
    return tmp_path


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, processes: str, listed: str = "") -> None:
    """Let nvidia-smi print processes, and a list of GPUs."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncase $1 in -L) printf '{listed}' ;; *) printf '{processes}' ;; esac\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


@pytest.mark.parametrize(
    ("processes", "busy"),
    [
        ("", {}),
        ("GPU-a, 7\\n", {}),
        ("GPU-a, 8\\n", {"GPU-a": "python3 (process 8)"}),
        ("GPU-b, 9\\n", {"GPU-b": "a\\x1b[2J (process 9)"}),
        ("GPU-a, 7\\nGPU-a, 8\\n", {"GPU-a": "python3 (process 8)"}),
        ("GPU-a, 10\\n", {}),
        ("GPU-a, [N/A]\\n", {"GPU-a": "an unknown process"}),
    ],
    ids=["none", "ours", "another container", "no container", "ours and theirs", "has ended", "not named"],
)
def test_a_gpu_is_busy_with_the_processes_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: str, busy: dict[str, str]
) -> None:
    stand_in(tmp_path, monkeypatch, processes)
    assert find_busy_gpus(["GPU-a", "GPU-b"], [OURS]) == busy


def test_all_instances_of_a_gpu_are_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = "GPU 0: NVIDIA H100 (UUID: GPU-a)\\n  MIG 1g.10gb     Device  0: (UUID: MIG-1)\\n"
    listed += "  MIG 1g.10gb     Device  1: (UUID: MIG-2)\\n"
    listed += "GPU 1: NVIDIA H100 (UUID: GPU-b)\\n  MIG 1g.10gb     Device  0: (UUID: MIG-3)\\n"
    stand_in(tmp_path, monkeypatch, "GPU-a, 8\\n", listed)
    assert {*find_busy_gpus(["MIG-1", "MIG-2", "MIG-3"], [OURS])} == {"MIG-1", "MIG-2"}


def test_a_driver_that_fails_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, "")
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
    with pytest.raises(subprocess.CalledProcessError):
        find_busy_gpus(["GPU-a"], [])
