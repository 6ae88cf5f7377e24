"""Tests that NVIDIA GPUs are found from what drivers of real hosts print, and that healthy ones count as healthy."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host import gpu_processes
from ansible_collections.backendai.cluster.plugins.module_utils._host.accelerators import NVIDIA_HOOK, find_accelerators
from ansible_collections.backendai.cluster.plugins.module_utils._host.nvidia import gpu_nodes
from ansible_collections.backendai.cluster.plugins.module_utils._model.devices import GpuRequest

CHECKOUT = Path(__file__).resolve().parents[5]
HOSTS = sorted(path.parent for path in CHECKOUT.glob("tests/hardware/*/found.json"))
HEALTH = CHECKOUT / "roles/agent/files/health"


@pytest.fixture(params=HOSTS, ids=[folder.name for folder in HOSTS])
def host(request: pytest.FixtureRequest) -> Path:
    """Return the folder of what was recorded on a host."""
    return Path(request.param)


@pytest.fixture
def root(host: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the root of such a host; its nvidia-smi prints what was recorded, and NVIDIA's hook is installed."""
    programs = tmp_path / "programs"
    programs.mkdir()
    cases = []
    for path in host.glob("*.txt"):
        command, *printed, _code = path.read_text().splitlines(keepends=True)
        if command.startswith("$ nvidia-smi "):
            (tmp_path / path.name).write_text("".join(printed))
            cases.append(f'"{command[13:].strip()}") cat {tmp_path / path.name} ;;')
    script = "\n".join(["#!/bin/sh", 'case "$*" in', *cases, '*) echo "nobody recorded $*"; exit 9 ;;', "esac"])
    for name, text in (("nvidia-smi", script), (NVIDIA_HOOK, "#!/bin/sh")):
        (programs / name).write_text(f"{text}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    information = tmp_path / "proc/driver/nvidia/gpus/0000:00:06.0/information"
    information.parent.mkdir(parents=True)
    information.write_text((host / "information.txt").read_text())
    (tmp_path / "dev").mkdir()
    found = json.loads((host / "found.json").read_text())
    for node in {node for nodes in found["nodes"].values() for node in nodes}:
        (tmp_path / node[1:]).symlink_to("/dev/null")
    return tmp_path


def test_the_gpus_of_a_real_host_are_found_with_model_memory_and_nodes(host: Path, root: Path) -> None:
    found = json.loads((host / "found.json").read_text())
    devices = find_accelerators([], root).devices
    assert [dataclasses.asdict(device) for device in devices] == found["driver"]
    assert {gpu: list(nodes) for gpu, nodes in gpu_nodes(root).items()} == found["nodes"]


def test_a_gpu_is_chosen_by_the_words_and_the_memory_that_its_maker_advertises(root: Path) -> None:
    (gpu,) = find_accelerators([], root).devices
    assert GpuRequest("h200", 141 * 2**30).accepts(gpu)
    assert not GpuRequest("h100").accepts(gpu)
    assert not GpuRequest(memory=192 * 2**30).accepts(gpu)


def test_a_process_that_computes_makes_its_gpu_busy(host: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command, line, _code = (host / "processes.txt").read_text().splitlines()
    gpu, pid = line.split(", ")
    (root / "proc" / pid).mkdir()
    (root / "proc" / pid / "cgroup").write_text("0::/user.slice\n")
    (root / "proc" / pid / "comm").write_text("python3\n")
    monkeypatch.setattr(gpu_processes, "PROC", root / "proc")
    assert command.startswith("$ nvidia-smi ")
    found = gpu_processes.read_gpu_processes()
    assert gpu_processes.describe_users(found.users, []) == {gpu: f"python3 (pid {pid})"}
    assert found.unknown == ""


@pytest.mark.parametrize("check", ["gpu", "nvlink"])
def test_a_gpu_that_was_healthy_passes_its_checks(root: Path, check: str) -> None:
    shutil.copy(HEALTH / check, root / check)
    (root / "programs/dmesg").write_text("#!/bin/sh\n")
    (root / "programs/dmesg").chmod(0o755)
    seen = [str(root / "seen")] if check == "nvlink" else []
    completed = subprocess.run(["sh", root / check, *seen], capture_output=True, text=True, check=False)
    assert (completed.returncode, completed.stdout) == (0, "")
