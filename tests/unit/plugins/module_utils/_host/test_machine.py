"""What an agent's kernel says."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host import machine


def test_memory_is_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda _path: "MemFree:  1 kB\nMemTotal:  2048 kB\n")
    assert machine.memory_total() == 2 << 20


def test_a_kernel_that_does_not_tell_its_memory_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda _path: "MemFree:  1 kB\n")
    with pytest.raises(OSError, match=r"^/proc/meminfo has no MemTotal$"):
        machine.memory_total()


def test_cores_are_those_that_this_process_may_use_in_order() -> None:
    assert machine.online_cpus() == sorted(os.sched_getaffinity(0))


@pytest.mark.parametrize(("kernel", "images"), [("x86_64", "amd64"), ("aarch64", "arm64"), ("riscv64", "riscv64")])
def test_architectures_have_the_names_of_images(kernel: str, images: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: kernel)
    assert machine.architecture() == images
