"""What runs on an agent beside sessions, and what is said of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker import labels
from ansible_collections.backendai.cluster.plugins.module_utils._host import gpu_processes
from ansible_collections.backendai.cluster.plugins.module_utils._model.devices import Device
from ansible_collections.backendai.cluster.plugins.module_utils._session.others import Others, find_others
from tests.unit.builders import own_labels
from tests.unit.nvidia_smi import NvidiaSmi

GPU_A, GPU_B, GPU_C = (Device("cuda.device", f"GPU-{name}") for name in "abc")
ONE, TWO = (Device("cuda.mig-1g.10gb", f"MIG-{number}", gpu="GPU-d") for number in (1, 2))
TPU = Device("tpu", "/dev/accel0")
NOBODY = Others((), {})
KEEP = "keep what they need with agent_reserved and agent_reserved_devices."


def container(name: str, labelled: dict[str, str] | None, state: str = "running") -> dict[str, Any]:
    return {"Id": f"id-{name}", "Names": [f"/{name}"], "Labels": labelled, "State": state}


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes 7 and 8 be those of the containers main1 and web, and 9 that of none."""
    monkeypatch.setattr(gpu_processes, "PROC", tmp_path)
    for pid, group in ((7, "/docker/id-main1"), (8, "/docker/id-web"), (9, "/user.slice")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cgroup").write_text(f"0::{group}\n")
        (tmp_path / str(pid) / "comm").write_text("python\n")


@pytest.mark.usefixtures("proc")
def test_what_has_no_labels_of_a_session_runs_beside_sessions(engine: Any, driver: NvidiaSmi) -> None:
    driver.says("printf 'GPU-a, 7\\nGPU-b, 8\\nGPU-c, 9\\n'")
    engine.made = [
        container("main1", own_labels("main1")),
        container("web", {"app": "web", labels.SESSION_ID: "x"}),
        container("look", {labels.OWNER: labels.LOOK_VALUE}),
        container("bare", None),
        container("stopped", {}, "exited"),
    ]
    users = {"GPU-b": "python (pid 8)", "GPU-c": "python (pid 9)"}
    assert find_others(engine, ask_driver=True) == Others(["bare", "look", "web"], users)
    assert len(driver.calls) == 1


def test_without_need_the_driver_is_not_asked(engine: Any, driver: NvidiaSmi) -> None:
    assert find_others(engine, ask_driver=False) == Others([], {})
    assert driver.calls == []


def test_a_driver_that_fails_leaves_the_use_of_its_gpus_unknown(engine: Any, driver: NvidiaSmi) -> None:
    driver.says("echo broken; exit 9")
    others = find_others(engine, ask_driver=True)
    assert others == Others([], {}, "nvidia-smi failed: broken")
    assert others.warnings([GPU_A, TPU]) == [
        "it is not known who uses its GPUs (nvidia-smi failed: broken): sessions may get one that is in use."
    ]
    # What else is called cuda.device has no driver of NVIDIA.
    assert others.warnings([Device("cuda.device", "/dev/accel0")]) == []


@pytest.mark.parametrize(
    ("others", "devices", "warnings"),
    [
        (NOBODY, [GPU_A], []),
        (
            Others((), {"GPU-a": "python (pid 4711)"}),
            [GPU_A, GPU_B],
            ["GPU-a is used by python (pid 4711): name it in agent_reserved_devices."],
        ),
        (Others((), {"GPU-a": "python (pid 4711)"}), [GPU_B], []),
        (
            Others((), {"GPU-d": "python (pid 4711)"}),
            [ONE, TWO],
            ["GPU-d is used by python (pid 4711): name it in agent_reserved_devices."],
        ),
        (
            Others((), {"MIG-2": "python (pid 4711)"}),
            [ONE, TWO],
            ["MIG-2 is used by python (pid 4711): name it in agent_reserved_devices."],
        ),
        (
            Others(["web"], {}),
            [],
            [f"container web: of no session, and not counted: {KEEP}"],
        ),
        (
            Others([*"abcdefg"], {}),
            [],
            [f"containers a, b, c, d, e, 2 more: of no session, and not counted: {KEEP}"],
        ),
    ],
    ids=["nobody", "a GPU", "one that is not offered", "a GPU with instances", "an instance", "one", "many"],
)
def test_each_gpu_in_use_and_the_containers_are_named(
    others: Others, devices: list[Device], warnings: list[str]
) -> None:
    assert others.warnings(devices) == warnings


@pytest.mark.parametrize(
    ("used", "needed", "spare"),
    [
        ([], {"cuda.device": 1}, [GPU_A, GPU_B, GPU_C, ONE, TWO, TPU]),
        (["GPU-a"], {"cuda.device": 1}, [GPU_B, GPU_C, ONE, TWO, TPU]),
        (["GPU-a"], {"cuda.device": 3}, [GPU_B, GPU_C, ONE, TWO, TPU, GPU_A]),
        (["GPU-a", "GPU-b"], {"cuda.device": 2}, [GPU_C, ONE, TWO, TPU, GPU_A]),
        (["GPU-d"], {"cuda.mig-1g.10gb": 1}, [GPU_A, GPU_B, GPU_C, TPU, ONE]),
        (["MIG-1"], {"cuda.mig-1g.10gb": 1}, [GPU_A, GPU_B, GPU_C, TWO, TPU]),
    ],
    ids=["none", "one", "all needed", "one of them needed", "the GPU of instances", "an instance"],
)
def test_no_more_used_devices_are_to_spare_than_are_needed(
    used: list[str], needed: dict[str, int], spare: list[Device]
) -> None:
    others = Others((), dict.fromkeys(used, "python (pid 7)"))
    assert others.spare([GPU_A, GPU_B, GPU_C, ONE, TWO, TPU], needed) == spare
