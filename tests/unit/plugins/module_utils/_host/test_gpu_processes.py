"""Which processes compute on GPUs, as a stand-in for the driver names them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host import gpu_processes
from ansible_collections.backendai.cluster.plugins.module_utils._host.gpu_processes import (
    GpuProcesses,
    describe_users,
    read_gpu_processes,
)
from tests.unit.nvidia_smi import NvidiaSmi

OURS, THEIRS = "0a" * 32, "0b" * 32
A7 = ("GPU-a", "7")


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a /proc with process 7 in a container of ours, 8 in one of others, and 9 in none."""
    monkeypatch.setattr(gpu_processes, "PROC", tmp_path)
    groups = {7: f"0::/system.slice/docker-{OURS}.scope/job", 8: f"4:memory:/docker/{THEIRS}", 9: "0::/user.slice"}
    for pid, group in groups.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cgroup").write_text(f"{group}\n")
        (tmp_path / str(pid) / "comm").write_text("python3\n" if pid != 9 else "a\x1b[2J\n")
    return tmp_path


@pytest.mark.parametrize(
    ("users", "described"),
    [
        ([], {}),
        ([("GPU-a", "7")], {}),
        ([("GPU-a", "8")], {"GPU-a": "python3 (pid 8)"}),
        ([("GPU-b", "9")], {"GPU-b": "a\\x1b[2J (pid 9)"}),
        ([("GPU-a", "7"), ("GPU-a", "8"), ("GPU-a", "9")], {"GPU-a": "python3 (pid 8)"}),
        ([("GPU-a", "10")], {}),
        ([("GPU-a", "[N/A]")], {"GPU-a": "an unknown process"}),
    ],
    ids=["none", "ours", "another container", "no container", "ours and theirs", "has ended", "not named"],
)
@pytest.mark.usefixtures("proc")
def test_processes_outside_of_the_containers_are_named(users: list[tuple[str, str]], described: dict[str, str]) -> None:
    assert describe_users(users, [OURS]) == described


@pytest.mark.parametrize(
    ("script", "found"),
    [
        (":", GpuProcesses([])),
        (
            "printf 'GPU-a, 7\\nGPU-a, 8\\nMIG-b, [N/A]\\n'",
            GpuProcesses([A7, ("GPU-a", "8"), ("MIG-b", "[N/A]")]),
        ),
        ("echo 'WARNING: infoROM is corrupted'; echo 'GPU-a, 7'", GpuProcesses([A7])),
        ("echo noise >&2; echo 'GPU-a, 7'", GpuProcesses([A7])),
        (
            "printf 'GPU-a, 7\\n\\033[1mbroken\\377\\n'",
            GpuProcesses([A7], "nvidia-smi printed '\\x1b[1mbroken\\ufffd'"),
        ),
        ("echo 'no driver'; echo why >&2; exit 9", GpuProcesses([], "nvidia-smi failed: no driver why")),
    ],
    ids=["none", "several", "a warning", "errors", "nonsense", "failed"],
)
def test_what_the_driver_says_is_read_in_one_call(driver: NvidiaSmi, script: str, found: GpuProcesses) -> None:
    driver.says(script)
    assert read_gpu_processes() == found
    assert driver.calls == ["--query-compute-apps=gpu_uuid,pid --format=csv,noheader"]


def test_without_its_program_the_driver_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert read_gpu_processes() == GpuProcesses([], "nvidia-smi cannot be run: No such file or directory")


@pytest.mark.parametrize(
    "script",
    ["exec sleep 60", "trap '' TERM INT; sleep 60 & wait", "setsid sleep 5 & exec sleep 60"],
    ids=["hangs", "has a child that hangs", "has left a child with its output"],
)
def test_a_driver_that_hangs_is_not_waited_for_longer_than_two_seconds(driver: NvidiaSmi, script: str) -> None:
    driver.says(script)
    begun = time.monotonic()
    assert read_gpu_processes() == GpuProcesses([], "nvidia-smi took more than 1.9 seconds")
    # A busy machine may take longer to start a program.
    assert time.monotonic() - begun < 3
