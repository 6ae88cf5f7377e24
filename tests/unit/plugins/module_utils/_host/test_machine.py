"""Tests for the cores, NUMA nodes and memory of a host."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host import machine


def test_memory_is_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda _path: "MemFree:  1 kB\nMemTotal:  2048 kB\n")
    assert machine.memory_total() == 2 << 20


def test_missing_memory_total_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda _path: "MemFree:  1 kB\n")
    with pytest.raises(OSError, match=r"^/proc/meminfo has no MemTotal$"):
        machine.memory_total()


def kernel(root: Path, **files: str) -> Path:
    """Make the files of a kernel below a folder: ``online`` and ``isolated`` cores, and those of groups."""
    places = {"v2": "fs/cgroup/cpuset.cpus.effective", "v1": "fs/cgroup/cpuset/cpuset.effective_cpus"}
    for name, text in files.items():
        path = root / "sys" / places.get(name, f"devices/system/cpu/{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return root


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({"online": "0-3,6"}, [0, 1, 2, 3, 6]),
        ({"online": "0-3", "isolated": ""}, [0, 1, 2, 3]),
        ({"online": "0-5", "isolated": "4-5"}, [0, 1, 2, 3]),
        ({"online": "0-15", "v2": "2-3,9"}, [2, 3, 9]),
        ({"online": "0-15", "v1": "0-1"}, [0, 1]),
        ({"online": "0-1", "v2": ""}, [0, 1]),
    ],
    ids=["some are off", "none isolated", "isolated", "a container", "a container of version 1", "no such controller"],
)
def test_cores_are_those_that_the_kernel_has_for_containers(
    files: dict[str, str], cpus: list[int], tmp_path: Path
) -> None:
    assert machine.online_cpus(kernel(tmp_path, **files)) == cpus


def test_cores_do_not_depend_on_the_affinity_of_the_login() -> None:
    before = os.sched_getaffinity(0)
    unlimited = machine.online_cpus()
    os.sched_setaffinity(0, {min(before)})
    try:
        assert machine.online_cpus() == unlimited
        assert len(unlimited) >= len(before)
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.parametrize(("kernel", "images"), [("x86_64", "amd64"), ("aarch64", "arm64"), ("riscv64", "riscv64")])
def test_architectures_are_named_as_in_images(kernel: str, images: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "host", "6.1", "", kernel)))
    assert machine.architecture() == images


@pytest.mark.parametrize(
    ("lists", "nodes"),
    [
        ({"node0": "0-1,4\n", "node1": "2-3,5\n", "node2": "\n"}, {0: 0, 1: 0, 2: 1, 3: 1, 4: 0, 5: 1}),
        ({"node10": "0-5\n", "possible": "0-10\n"}, dict.fromkeys(range(6), 10)),
        ({"node1": "3\n"}, {0: 0, 1: 0, 2: 0, 3: 1, 4: 0, 5: 0}),
        ({}, dict.fromkeys(range(6), 0)),
    ],
    ids=["two nodes and one of memory alone", "a high number", "a core of no node", "a kernel without nodes"],
)
def test_each_core_has_a_numa_node(lists: dict[str, str], nodes: dict[int, int], tmp_path: Path) -> None:
    for name, text in lists.items():
        folder = tmp_path / "sys/devices/system/node" / name
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(text)
    assert machine.numa_nodes(range(6), tmp_path) == nodes
