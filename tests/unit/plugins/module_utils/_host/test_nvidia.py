"""Device nodes of NVIDIA GPUs, on a host simulated by a folder, where links to device nodes stand in for nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host.nvidia import are_linked, gpu_nodes

INFORMATION = """\
Model: \t\t NVIDIA H100 80GB HBM3
GPU UUID: \t {uuid}
Bus Location: \t 0000:3b:00.0
Device Minor: \t {minor}
GPU Excluded:\t No
"""


def add_gpu(root: Path, bus: str, text: str) -> None:
    folder = root / "proc/driver/nvidia/gpus" / bus
    folder.mkdir(parents=True)
    (folder / "information").write_text(text)


def add_nodes(root: Path, *names: str) -> None:
    (root / "dev").mkdir(exist_ok=True)
    for name in names:
        (root / "dev" / name).symlink_to("/dev/null")


def test_host_without_the_driver_has_no_nodes(tmp_path: Path) -> None:
    add_nodes(tmp_path, "nvidia0", "nvidiactl")
    assert gpu_nodes(tmp_path) == {}


def test_gpus_have_their_own_node_and_those_that_all_share(tmp_path: Path) -> None:
    add_nodes(tmp_path, "nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm")
    add_gpu(tmp_path, "0000:3b:00.0", INFORMATION.format(uuid="GPU-aaaa", minor=1))
    add_gpu(tmp_path, "0000:d8:00.0", INFORMATION.format(uuid="GPU-bbbb", minor=0))
    assert gpu_nodes(tmp_path) == {
        "GPU-aaaa": ("/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm"),
        "GPU-bbbb": ("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"),
    }


@pytest.mark.parametrize(
    "text",
    ["", "GPU UUID: \t GPU-aaaa\n", "Device Minor: \t 0\n", INFORMATION.format(uuid="GPU-aaaa", minor=7)],
    ids=["empty", "no number", "no UUID", "no node"],
)
def test_gpu_without_a_known_node_is_left_out(tmp_path: Path, text: str) -> None:
    add_nodes(tmp_path, "nvidia0")
    add_gpu(tmp_path, "0000:3b:00.0", text)
    assert gpu_nodes(tmp_path) == {}


def test_gpu_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    add_nodes(tmp_path, "nvidia0")
    (tmp_path / "proc/driver/nvidia/gpus/0000:3b:00.0/information").mkdir(parents=True)
    add_gpu(tmp_path, "0000:d8:00.0", INFORMATION.format(uuid="GPU-bbbb", minor=0))
    assert gpu_nodes(tmp_path) == {"GPU-bbbb": ("/dev/nvidia0",)}


def test_nodes_are_linked_by_their_numbers(tmp_path: Path) -> None:
    add_nodes(tmp_path, "nvidia0", "nvidiactl")
    assert not are_linked(["/dev/nvidia0", "/dev/nvidiactl"], tmp_path)
    (tmp_path / "dev/char").mkdir()
    (tmp_path / "dev/char/1:3").symlink_to("../nvidia0")
    assert are_linked(["/dev/nvidia0", "/dev/nvidiactl"], tmp_path)
