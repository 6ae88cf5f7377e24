"""What others have in an engine."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker import foreign, labels
from ansible_collections.backendai.cluster.plugins.module_utils._docker.foreign import (
    devices_of,
    list_foreign,
)
from ansible_collections.backendai.cluster.plugins.module_utils._model.devices import Device

OURS = {labels.OWNER: labels.OWNER_VALUE}


class Engine:
    """An engine with two containers of this collection, and one that is about to go."""

    def containers(self, **_query: Any) -> list[dict[str, Any]]:
        return [
            {"Id": "1", "Names": ["/main1"], "Labels": OURS, "State": "running"},
            {"Id": "2", "Names": ["/web"], "Labels": {}, "State": "running"},
            {"Id": "3", "Names": None, "Labels": None, "State": "running"},
            {"Id": "4", "Names": ["/saved"], "Labels": OURS, "State": "exited"},
            {
                "Id": "5",
                "Names": ["/backendai-look-1"],
                "Labels": {labels.OWNER: labels.LOOK_VALUE},
                "State": "created",
            },
        ]

    def volumes(self) -> dict[str, Any]:
        return {"Volumes": [{"Name": "data"}]}


ENGINE: Any = Engine()
TPU0, TPU1 = Device("tpu", "/dev/accel0,/dev/accel-ctl"), Device("tpu", "/dev/accel1,/dev/accel-ctl")
GPU_A, GPU_B = Device("cuda.device", "GPU-aaaa"), Device("cuda.device", "GPU-bbbb")
DEVICES = [TPU0, TPU1, GPU_A, GPU_B]
VISIBLE = "NVIDIA_VISIBLE_DEVICES"


def test_containers_and_volumes_are_named_whatever_their_labels_even_one_that_has_no_name_any_more() -> None:
    containers = ["container 3", "container main1", "container saved", "container web"]
    assert list_foreign(ENGINE) == [*containers, "volume data"]


def node(on_host: str, inside: str = "/dev/x") -> dict[str, Any]:
    return {"Devices": [{"PathOnHost": on_host, "PathInContainer": inside, "CgroupPermissions": "rwm"}]}


def asks(*ids: str, **more: Any) -> dict[str, Any]:
    return {"DeviceRequests": [{"Driver": "nvidia", "DeviceIDs": [*ids] or None, **more}]}


@pytest.mark.parametrize(
    ("settings", "environment", "held"),
    [
        ({}, [], []),
        (node("/dev/accel1"), [], [TPU1]),
        (node("/gone/nodes/dev-accel0", "/dev/accel0"), [], [TPU0]),
        (node("/dev/accel-ctl"), [], []),
        (node("/dev"), [], [TPU0, TPU1, GPU_A, GPU_B]),
        (node("/dev/nvidia0"), [], [GPU_A]),
        (asks("GPU-bbbb"), [], [GPU_B]),
        (asks("nvidia.com/gpu=GPU-bbbb"), [], [GPU_B]),
        (asks("1"), [], [GPU_A, GPU_B]),
        (asks(Count=-1), [], [GPU_A, GPU_B]),
        ({"Runtime": "nvidia"}, [f"{VISIBLE}=GPU-aaaa"], [GPU_A]),
        ({"Runtime": "nvidia"}, [f"{VISIBLE}=all"], [GPU_A, GPU_B]),
        ({"Runtime": "nvidia"}, [f"{VISIBLE}=void"], []),
        ({"Runtime": "runc"}, [f"{VISIBLE}=GPU-aaaa"], []),
        ({"Privileged": True}, [], DEVICES),
    ],
    ids=[
        *("nothing", "a node", "by its path inside", "a node of all", "a folder of nodes", "the node of a GPU"),
        *("by UUID", "by CDI", "by number", "all GPUs", "visible", "all visible", "none visible", "another runtime"),
        "privileged",
    ],
)
def test_a_container_has_the_devices_that_the_engine_says(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], environment: list[str], held: list[Device]
) -> None:
    nodes = {"GPU-aaaa": ("/dev/nvidia0", "/dev/nvidiactl"), "GPU-bbbb": ("/dev/nvidia1", "/dev/nvidiactl")}
    monkeypatch.setattr(foreign, "gpu_nodes", lambda: nodes)
    assert devices_of({"HostConfig": settings, "Config": {"Env": environment}}, DEVICES) == held
