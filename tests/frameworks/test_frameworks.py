"""Unmodified PyTorch, TensorFlow, Ray, Dask and SSH clients, with the session's variables or without any option."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.packages import copy_to_agent, install_packages
from tests.integration.ansible_settings import ROOT
from tests.integration.containers import transferred_bytes, wait_for_exit
from tests.integration.laboratory import AGENTS, Kernel, in_parallel, run_in, run_on, run_on_all
from tests.integration.session_requests import THREE, TWO
from tests.integration.sessions import Sessions, StartedSession, started_session

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
README = ROOT / "README.md"
ON_AGENTS, IN_CONTAINERS = "/srv/frameworks", "/opt/frameworks"
NUMBERS = 1 << 20

PROGRAMS = Path(__file__).with_name("programs")
TORCHRUN = " ".join(
    [
        "python3 -m torch.distributed.run --nnodes $BACKENDAI_CLUSTER_SIZE --node-rank $BACKENDAI_CLUSTER_LOCAL_RANK",
        "--master-addr $MASTER_ADDR --master-port $MASTER_PORT --nproc-per-node 1",
        f"{IN_CONTAINERS}/all_reduce.py {NUMBERS}",
    ]
)


@pytest.fixture(scope="module")
def frameworks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The folder on all agents with the frameworks, for the image's Python, and the programs."""
    folder = tmp_path_factory.mktemp("frameworks") / "readable"  # pytest's own folders are for root alone
    folder.mkdir(mode=0o755)
    try:
        install_packages(REQUIREMENTS, folder)
        for program in PROGRAMS.glob("*.py"):
            (folder / program.name).write_text(program.read_text())
        in_parallel(*[partial(copy_to_agent, folder, agent, ON_AGENTS) for agent in AGENTS])
        yield ON_AGENTS
    finally:
        run_on_all(f"rm -rf {ON_AGENTS}", AGENTS)
        subprocess.run(["rm", "-rf", folder], check=True)


@pytest.fixture(scope="module")
def two(frameworks: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedSession]:
    """Two containers on two agents with the frameworks mounted."""
    with started_session(tmp_path_factory.mktemp("two"), **{**TWO, **with_frameworks(frameworks)}) as session:
        yield session


@pytest.fixture(scope="module")
def three(frameworks: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedSession]:
    """Three containers on three agents with the frameworks mounted."""
    with started_session(tmp_path_factory.mktemp("three"), **{**THREE, **with_frameworks(frameworks)}) as session:
        yield session


def with_frameworks(folder: str) -> dict[str, Any]:
    """Return the variables of a session with the frameworks."""
    return {
        "resources": {"cpu": 1, "mem": "3g", "shmem": "256m"},
        "mounts": [{"source": folder, "target": IN_CONTAINERS, "read_only": True}],
        "env": {"PYTHONPATH": IN_CONTAINERS, "RAY_USAGE_STATS_ENABLED": "0"},
    }


def objects_in(text: str) -> list[dict[str, Any]]:
    """Return the JSON objects in an output; those that several containers print at once may be on one line."""
    decoder, found, place = json.JSONDecoder(), [], text.find('{"')
    while place >= 0:
        found_here, end = decoder.raw_decode(text, place)
        found.append(found_here)
        place = text.find('{"', end)
    return found


def printed(kernel: Kernel, script: str) -> list[dict[str, Any]]:
    """Run a shell script in a container and return the JSON objects in its output."""
    return objects_in(run_in(kernel, "sh", "-c", script))


def test_torchrun_reduces_over_all_containers(two: StartedSession) -> None:
    main = two.kernels[0]
    before = {name: transferred_bytes(main, name) for name in ("cluster0", "eth0")}
    command = f"ssh sub1 '{TORCHRUN}' & {TORCHRUN} && wait $!"
    results = sorted(printed(main, command), key=lambda result: int(result["rank"]))
    assert results == [
        {"host": "main1", "rank": 0, "size": 2, "right": True},
        {"host": "sub1", "rank": 1, "size": 2, "right": True},
    ]
    assert transferred_bytes(main, "cluster0") - before["cluster0"] > 8 * NUMBERS
    assert transferred_bytes(main, "eth0") - before["eth0"] < NUMBERS


def test_command_of_the_readme_runs_torchrun_in_every_container(frameworks: str, tmp_path: Path) -> None:
    (options,) = re.findall(r"^session_command: exec torchrun (.+) train\.py$", README.read_text(), re.MULTILINE)
    program = f"exec python3 -m torch.distributed.run {options} {IN_CONTAINERS}/all_reduce.py {NUMBERS}"
    request = {**TWO, **with_frameworks(frameworks), "command": program, "command_scope": "all"}
    with Sessions(tmp_path) as sessions:
        created = sessions.create(**request)
        assert created.code == 0, created.output
        kernels = created.record["kernels"]
        assert [wait_for_exit(kernel) for kernel in kernels] == [0, 0]
        logs = [run_on(kernel["agent"], f"docker logs {kernel['container']}") for kernel in kernels]
    assert [result for log in logs for result in objects_in(log)] == [
        {"host": "main1", "rank": 0, "size": 2, "right": True},
        {"host": "sub1", "rank": 1, "size": 2, "right": True},
    ]


def test_tensorflow_reads_cluster_and_task_from_tf_config(two: StartedSession) -> None:
    main = two.kernels[0]
    cluster = {"worker": ["main1:29500", "sub1:29501"]}
    for rank, kernel in enumerate(two.kernels):
        resolved = printed(main, f"ssh {kernel['hostname']} python3 {IN_CONTAINERS}/resolve.py")
        assert resolved == [{"cluster": cluster, "task": ["worker", rank]}]


def test_ray_starts_and_spreads_tasks_without_an_address(three: StartedSession) -> None:
    main, *others = three.kernels
    ray = f"python3 {IN_CONTAINERS}/bin/ray"
    run_in(main, "sh", "-c", f"{ray} start --head")
    in_parallel(*[partial(run_in, kernel, "sh", "-c", f"{ray} start --address=main1:6379") for kernel in others])
    assert printed(main, f"python3 {IN_CONTAINERS}/ray_spread.py") == [
        {"hosts": ["main1", "sub1", "sub2"], "complete": True}
    ]
    in_parallel(*[partial(run_in, kernel, "sh", "-c", f"{ray} stop --force") for kernel in three.kernels])


def test_dask_workers_find_each_other_without_an_address(three: StartedSession) -> None:
    main = three.kernels[0]
    dask = "python3 -m distributed.cli"
    scheduler = f"{dask}.dask_scheduler --no-dashboard"
    workers = "; ".join(
        f"ssh {kernel['hostname']} {dask}.dask_worker tcp://main1:8786 --nthreads 1 --no-dashboard > /dev/null 2>&1 &"
        for kernel in three.kernels
    ).replace("&;", "&")
    (result,) = printed(main, f"{scheduler} > /dev/null 2>&1 & {workers} python3 {IN_CONTAINERS}/dask_spread.py")
    assert sorted(result["workers"].values()) == ["main1", "sub1", "sub2"]
    addresses = {worker.removeprefix("tcp://").rpartition(":")[0] for worker in result["workers"]}
    assert addresses == {kernel["address"] for kernel in three.kernels}
    assert result["total"] == sum(range(100))


def test_dask_starts_its_cluster_over_ssh(three: StartedSession) -> None:
    (result,) = printed(
        three.kernels[0], f"python3 {IN_CONTAINERS}/dask_ssh_cluster.py main1 main1 sub1 sub2 2> /tmp/dask.log"
    )
    assert result == {"workers": ["main1", "sub1", "sub2"], "total": sum(range(100))}


def test_ssh_clients_log_in_with_their_default_settings(three: StartedSession) -> None:
    names = [kernel["hostname"] for kernel in three.kernels]
    for kernel in three.kernels:
        assert printed(kernel, f"python3 {IN_CONTAINERS}/ssh_clients.py {' '.join(names)}") == [
            {"asyncssh": f"{name}\n", "paramiko": f"{name}\nwritten over SFTP\n", "libssh2": f"{name}\n"}
            for name in names
        ]
