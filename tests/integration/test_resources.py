"""Resources of containers, as seen from inside."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.laboratory import Kernel, run_in, run_on, run_on_all
from tests.integration.processes import container_processes
from tests.integration.programs import source
from tests.integration.session_requests import TWO
from tests.integration.sessions import Sessions

pytestmark = pytest.mark.containers

MEMORY, SHARED = 256 << 20, 32 << 20
BOTH = ("agent1", "agent3")
SPREAD = {**TWO, "designated_agents": list(BOTH), "resources": {"cpu": 1, "mem": MEMORY, "shmem": SHARED}}
USED, GPU = "GPU-0a5c1d2e-3c0e-4f5e-9d0a-0f3c1d2e4b6a", "GPU-5f0c6a52-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
NVIDIA_SMI = f"""#!/bin/sh
case $* in
    *compute-apps*) echo "{USED}, 1" ;;
    *) for gpu in "{USED}, 00000000:1B" "{GPU}, 00000000:3B"; do
            echo "$gpu:00.0, NVIDIA H100 PCIe, 81559 MiB, Disabled"
        done ;;
esac
"""
CDI = {
    "cdiVersion": "0.5.0",
    "kind": "nvidia.com/gpu",
    "devices": [
        {
            "name": gpu,
            "containerEdits": {"deviceNodes": [{"path": "/dev/fuse", "fileMode": 0o666}], "env": ["CDI=gave"]},
        }
        for gpu in (USED, GPU)
    ],
    "containerEdits": {"env": ["NVIDIA_VISIBLE_DEVICES=void"]},
}
SYS_RESOURCE = 1 << 24
#: What no process has, and without which the engine refuses programs with file capabilities, and NUMA binding.
BOUNDING = {"NET_RAW", "SYS_NICE"}
ALLOWED = ("-e", "agent_allow_infiniband=true")
FOR_PROGRAMS = ["/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs0"]
RAW_SOCKETS = ("AF_PACKET, socket.SOCK_RAW", "AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP")


@pytest.fixture
def infiniband() -> Iterator[None]:
    """Give two agents fake InfiniBand device nodes, for programs and for management, at the paths of real ones."""
    names = "uverbs0 rdma_cm umad0 issm0"
    nodes = f"cd /dev/infiniband && for name in {names}; do mknod -m 600 $name c 10 229 || exit 1; done"
    links = "mkdir by-ibdev && ln -s ../uverbs0 by-ibdev/lab-uverbs0 && ln -s ../umad0 by-ibdev/lab-umad0"
    try:
        run_on_all(f"mkdir /dev/infiniband && {nodes} && {links}", BOTH)
        yield
    finally:
        run_on_all("rm -rf /dev/infiniband", BOTH)


@pytest.fixture
def cdi() -> Iterator[None]:
    """Give agent3 two fake GPUs that its engine knows by CDI; another device node stands in for them.

    The first process of the agent computes on one of them.
    """
    files = {
        "/usr/local/bin/nvidia-smi": NVIDIA_SMI,
        "/etc/cdi/nvidia.json": json.dumps(CDI),
        "/etc/docker/daemon.json": json.dumps({"features": {"cdi": True}}),
    }
    existing = run_on("agent3", f"ls -d {' '.join(files)} 2> /dev/null", check=False)
    assert not existing, f"agent3 has {existing} of its own"
    try:
        run_on("agent3", "mkdir -p /etc/cdi /etc/docker")
        for path, text in files.items():
            run_on("agent3", f"echo {shlex.quote(text)} > {path}")
        run_on("agent3", "chmod +x /usr/local/bin/nvidia-smi && systemctl restart docker")
        yield
    finally:
        run_on(
            "agent3", f"rm -f {' '.join(files)}; rmdir --ignore-fail-on-non-empty /etc/cdi; systemctl restart docker"
        )


def engine_limits(agent: str) -> dict[str, list[int]]:
    """Return the limits that an agent's engine can set: any, if it may raise them, else those of its containerd."""
    output = run_on(agent, "cat /proc/$(pidof containerd)/limits /proc/$(pidof containerd)/status")
    lines = dict(line.split(":", 1) for line in output.splitlines() if line.startswith("CapBnd:"))
    if int(lines["CapBnd"], 16) & SYS_RESOURCE:
        return {"nofile": [1 << 20] * 2, "memlock": [-1] * 2}
    hard = {line[:17]: line.split()[-2] for line in output.splitlines() if line.startswith("Max")}
    files, locked = hard["Max open files   "], hard["Max locked memory"]
    nofile = (1 << 20) if files == "unlimited" else min(1 << 20, int(files))
    return {"nofile": [nofile] * 2, "memlock": [-1 if locked == "unlimited" else int(locked)] * 2}


def limits_inside(kernel: Kernel) -> dict[str, Any]:
    """Return the limits that user work sees in a container."""
    return dict(json.loads(run_in(kernel, "python3", "-c", source("limits"))))


def host_config(kernel: Kernel) -> dict[str, Any]:
    """Return the engine's host configuration of a container."""
    return dict(json.loads(run_on(kernel["agent"], f"docker inspect {kernel['container']}"))[0]["HostConfig"])


def named(capabilities: list[str]) -> set[str]:
    """Return the names of capabilities: engines write them with and without a prefix."""
    return {name.removeprefix("CAP_") for name in capabilities}


def assert_no_capabilities(kernel: Kernel) -> None:
    """Fail if a process of a container, or one that is started there, has a capability."""
    effective = run_in(kernel, "awk", "/^Cap(Inh|Prm|Eff|Amb):/ { print $2 }", "/proc/self/status")
    assert {*effective.split()} == {"0" * 16}
    assert {process.capabilities for process in container_processes(kernel)} == {0}


def open_raw_socket(kernel: Kernel, kind: str) -> str:
    """Return what opening a raw socket in a container prints, errors included."""
    script = f"import socket; socket.socket(socket.{kind}); print('opened')"
    return run_in(kernel, "python3", "-c", script, check=False)


def container_id(kernel: Kernel) -> str:
    """Return the engine's id of a container."""
    return run_on(kernel["agent"], f"docker inspect --format '{{{{.Id}}}}' {kernel['container']}")


@pytest.mark.usefixtures("infiniband")
def test_each_container_gets_exactly_the_requested_resources(sessions: Sessions) -> None:
    request = {**SPREAD, "infiniband": True}
    run = sessions.create(*ALLOWED, **request)
    assert run.code == 0, run.output
    main, sub = run.record["kernels"]
    assert {kernel["agent"] for kernel in (main, sub)} == set(BOTH)
    for kernel in (main, sub):
        inside, engine, limits = limits_inside(kernel), host_config(kernel), engine_limits(kernel["agent"])
        assert (len(inside["cores"]), engine["CpusetCpus"]) == (1, ",".join(map(str, inside["cores"])))
        assert (inside["memory"], inside["shared"]) == (str(MEMORY), SHARED)
        assert (engine["Memory"], engine["MemorySwap"], engine["ShmSize"]) == (MEMORY, MEMORY, SHARED)
        # cgroup v1 counts memory and swap together, v2 only swap.
        assert (inside["memory and swap"], inside["swap"]) in ((str(MEMORY), None), (None, "0"))
        assert {name: inside[name] for name in limits} == limits
        login = run_in(main, "ssh", kernel["hostname"], "ulimit -Sn; ulimit -Hn; ulimit -Sl; ulimit -Hl").split()
        locked = [str(limit // 1024) if limit >= 0 else "unlimited" for limit in limits["memlock"]]
        assert login == [*map(str, limits["nofile"]), *locked]
        assert (named(engine["CapAdd"]), named(engine["CapDrop"])) == (BOUNDING, {"ALL"})
        assert_no_capabilities(kernel)
        for path in FOR_PROGRAMS:
            assert run_in(kernel, "sh", "-c", f": <> {path}; stat -c %U {path}") == "work\n"
            assert run_on(kernel["agent"], f"stat -c '%U %a' {path}") == "root 600\n"
        # Nodes for the management of InfiniBand, and raw sockets, are for nobody.
        assert sorted(device["PathInContainer"] for device in engine["Devices"]) == FOR_PROGRAMS
        assert sorted(run_in(kernel, "find", "/dev/infiniband", "!", "-type", "d").split()) == FOR_PROGRAMS
        for kind in RAW_SOCKETS:
            assert "PermissionError: [Errno 1] Operation not permitted" in open_raw_socket(kernel, kind)
    rerun = sessions.create(*ALLOWED, **request)
    assert (rerun.code, rerun.changed) == (0, 0), rerun.output


@pytest.mark.usefixtures("infiniband")
def test_only_a_stopped_container_is_recreated_when_an_infiniband_node_disappears(sessions: Sessions) -> None:
    request = {**SPREAD, "infiniband": True}
    run = sessions.create(*ALLOWED, **request)
    assert run.code == 0, run.output
    main, sub = run.record["kernels"]
    before = [container_id(kernel) for kernel in (main, sub)]
    run_on(sub["agent"], "mv /dev/infiniband/uverbs0 /dev/infiniband/uverbs1")
    unchanged = sessions.create(*ALLOWED, **request)
    assert unchanged.code == 0, unchanged.output
    assert [container_id(kernel) for kernel in (main, sub)] == before
    run_on(sub["agent"], f"docker kill {sub['container']}")
    repaired = sessions.create(*ALLOWED, "--diff", **request)
    assert (repaired.code, repaired.record["status"]) == (0, "RUNNING"), repaired.output
    assert f"-container {sub['container']}: exited, without /dev/infiniband/uverbs0" in repaired.text
    assert container_id(main) == before[0]
    nodes = run_in(sub, "find", "/dev/infiniband", "!", "-type", "d").split()
    assert sorted(nodes) == ["/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs1"]
    rerun = sessions.create(*ALLOWED, **request)
    assert (rerun.code, rerun.changed) == (0, 0), rerun.output


@pytest.mark.usefixtures("cdi")
def test_gpus_are_passed_by_cdi_where_the_engine_supports_it(sessions: Sessions) -> None:
    sessions.limit_to("agent3")
    request = {"designated_agents": ["agent3"], "resources": {"cpu": 1, "mem": MEMORY, "cuda.device": 1}}
    other = sessions.create(**request, gpu={"model": "B200"})
    assert (other.code != 0, "session_gpu: no agent has cuda.device of B200" in other.text) == (True, True), (
        other.output
    )
    request |= {"gpu": {"model": "H100", "memory": "80g"}}
    run = sessions.create(**request)
    assert run.code == 0, run.output
    assert f"agent3: {USED} is used by systemd (pid 1): name it in agent_reserved_devices." in run.text
    (main,) = run.record["kernels"]
    (device_request,) = host_config(main)["DeviceRequests"]
    assert (device_request["Driver"], device_request["DeviceIDs"]) == ("cdi", [f"nvidia.com/gpu={GPU}"])
    environment = dict(line.split("=", 1) for line in run_in(main, "cat", "/proc/1/environ").split("\0") if line)
    assert (environment["CDI"], environment["NVIDIA_VISIBLE_DEVICES"]) == ("gave", "void")
    assert run_in(main, "sh", "-c", ": <> /dev/fuse; echo opened") == "opened\n"
    rerun = sessions.create(**request)
    assert (rerun.code, rerun.changed) == (0, 0), rerun.output
