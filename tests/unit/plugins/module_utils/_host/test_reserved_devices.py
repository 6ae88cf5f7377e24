"""The devices that the inventory keeps back, by their ids and nodes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host.reserved_devices import (
    RULE,
    Reserved,
    find_reserved,
)
from ansible_collections.backendai.cluster.plugins.module_utils._model.devices import Device

GPUS = [Device("cuda.device", "GPU-a"), Device("cuda.device", "GPU-b")]
INSTANCES = [Device("cuda.mig-1g.10gb", f"MIG-{number}", gpu="GPU-c") for number in (1, 2)]
RENDER = [Device("rocm.device", f"/dev/kfd,/dev/dri/renderD{minor}") for minor in (128, 129)]
DECLARED = [Device("lab.device", "/dev/null"), Device("lab.device", "/dev/zero,/dev/full")]
DEVICES = [*GPUS, *INSTANCES, *RENDER, *DECLARED]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return the root of a host whose driver has two GPUs, GPU-b and GPU-c, with nodes."""
    (tmp_path / "dev").mkdir()
    for minor, gpu in enumerate("bc"):
        folder = tmp_path / f"proc/driver/nvidia/gpus/0000:0{minor}:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"GPU UUID: \t GPU-{gpu}\nDevice Minor: \t {minor}\n")
        (tmp_path / f"dev/nvidia{minor}").symlink_to("/dev/null")
    (tmp_path / "dev/nvidiactl").symlink_to("/dev/null")
    return tmp_path


@pytest.mark.parametrize(
    ("names", "reserved"),
    [
        ([], []),
        (["GPU-a"], ["GPU-a"]),
        (["MIG-1"], ["MIG-1"]),
        (["GPU-c"], ["MIG-1", "MIG-2"]),
        (["/dev/nvidia0", "/dev/nvidia1"], ["GPU-b", "MIG-1", "MIG-2"]),
        (["/dev/nvidiactl"], ["GPU-b", "MIG-1", "MIG-2"]),
        (["/dev/dri/renderD129"], ["/dev/kfd,/dev/dri/renderD129"]),
        (["/dev/kfd"], ["/dev/kfd,/dev/dri/renderD128", "/dev/kfd,/dev/dri/renderD129"]),
        (["/dev/full", "/dev/full", "GPU-b"], ["/dev/zero,/dev/full", "GPU-b"]),
    ],
    ids=[
        *("none", "a GPU", "an instance", "a GPU with instances", "nodes of GPUs", "the node of all GPUs"),
        *("a render node", "the node of all AMD GPUs", "one of the nodes that were declared"),
    ],
)
def test_devices_are_reserved_by_id_by_node_and_by_their_gpu(root: Path, names: list[str], reserved: list[str]) -> None:
    assert find_reserved(names, DEVICES, root) == Reserved(frozenset(reserved), [])


def test_a_node_may_be_named_by_a_link(tmp_path: Path) -> None:
    link = tmp_path / "by-path"
    link.symlink_to("/dev/zero")
    assert find_reserved([str(link)], DECLARED) == Reserved(frozenset({"/dev/zero,/dev/full"}), [])
    declared = Device("lab.device", str(link))
    assert find_reserved(["/dev/zero"], [declared]) == Reserved(frozenset({str(link)}), [])


@pytest.mark.parametrize("name", ["GPU-x", "GPU-", "gpu-a/../GPU-a", "/dev/nothing", "/dev", "/"])
def test_a_name_of_which_there_is_no_device_is_a_warning(name: str) -> None:
    path = f"/{name}" if name.startswith("gpu") else name
    found = find_reserved([path, "GPU-a"], DEVICES)
    sentence = f"agent_reserved_devices: this agent offers no device {path}: compare nvidia-smi -L, and agent_slots."
    assert found == Reserved(frozenset({"GPU-a"}), [sentence])


@pytest.mark.parametrize("name", ["", "0", "gpu-a", "all", "cuda.device", "{'id': 'GPU-a'}", "dev/null", " GPU-a"])
def test_what_cannot_name_a_device_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(f'agent_reserved_devices: {name!r} {RULE}')}$"):
        find_reserved(["GPU-a", name], DEVICES)
