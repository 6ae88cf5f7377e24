"""Sessions with different roles, and devices that only one container may have."""

from __future__ import annotations

import json

import pytest

from tests.integration.containers import parse_environment
from tests.integration.laboratory import BUSYBOX, PYTHON, Kernel, run_in, run_on
from tests.integration.session_requests import SMALL
from tests.integration.sessions import Sessions

pytestmark = pytest.mark.containers

#: The devices that each agent of the lab offers as ``lab.device``.
DEVICES = {"/dev/fuse", "/dev/net/tun"}

ROLES = {
    "main": {"env": {"PART": "leads"}},
    "worker": {"replicas": 2, "image": BUSYBOX, "resources": {"lab.device": 1}, "env": {"PART": "works"}},
}


def passed_devices(kernel: Kernel) -> set[str]:
    """Return the devices that the engine has passed to a container."""
    shape = "{{json .HostConfig.Devices}}"
    devices = json.loads(run_on(kernel["agent"], f"docker inspect --format '{shape}' {kernel['container']}"))
    return {device["PathInContainer"] for device in devices or []}


def usable_devices(kernel: Kernel) -> set[str]:
    """Return the devices that the user can open for reading and writing in a container."""
    script = "for device in /dev/fuse /dev/net/tun; do (: <> $device) 2> /dev/null && echo $device; done; true"
    return set(run_in(kernel, "sh", "-c", script).split())


def test_roles_have_their_own_image_environment_and_devices(sessions: Sessions) -> None:
    request = {"roles": ROLES, "env": {"ALL": "know", "PART": "unknown"}, **SMALL}
    run = sessions.create(**request)
    assert (run.code, run.record["status"], run.record["cluster_size"]) == (0, "RUNNING", 3), run.output
    main, *workers = kernels = run.record["kernels"]
    assert [kernel["hostname"] for kernel in kernels] == ["main1", "worker1", "worker2"]
    assert [kernel["rank"] for kernel in kernels] == [0, 1, 2]

    for kernel in kernels:
        environment = parse_environment(run_in(kernel, "env"))
        image, part = (PYTHON, "leads") if kernel is main else (BUSYBOX, "works")
        assert (environment["BACKENDAI_KERNEL_IMAGE"], environment["PART"], environment["ALL"]) == (image, part, "know")
        assert (environment["BACKENDAI_CLUSTER_ROLE"], environment["BACKENDAI_CLUSTER_IDX"]) == (
            kernel["role"],
            str(kernel["index"]),
        )
        assert environment["BACKENDAI_CLUSTER_REPLICAS"] == "main:1,worker:2"
        assert environment["BACKENDAI_CLUSTER_HOSTS"] == "main1,worker1,worker2"
        assert run_in(main, "ssh", kernel["hostname"], "hostname").strip() == kernel["hostname"]

    assert [passed_devices(kernel) for kernel in kernels] == [usable_devices(kernel) for kernel in kernels]
    assert passed_devices(main) == set()
    assert [len(passed_devices(worker)) for worker in workers] == [1, 1]
    assert set.union(*map(passed_devices, workers)) == DEVICES
    rerun = sessions.create(**request)
    assert (rerun.code, rerun.changed) == (0, 0), rerun.output
