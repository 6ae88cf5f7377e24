"""Restarts that are due after packages were installed, on a host simulated by a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host.due_restarts import due_restarts

REMEDY = "cordon_agents, and reboot_agents when its sessions have ended, which it would interrupt."


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def engine(root: Path, program: str) -> Path:
    """Let an engine run, by this program."""
    write(root / "run/docker.pid", "17\n")
    (root / "proc/17").mkdir(parents=True)
    (root / "proc/17/exe").symlink_to(program)
    return root


@pytest.mark.parametrize("program", ["/usr/bin/dockerd (deleted)", "/usr/sbin/dockerd.dpkg-tmp (deleted)"])
def test_an_engine_whose_program_was_replaced_is_to_be_restarted(tmp_path: Path, program: str) -> None:
    said = f"a restart of the Docker engine is due: its program was replaced while it runs: {REMEDY}"
    assert due_restarts(engine(tmp_path, program)) == [said]


@pytest.mark.parametrize("program", ["/usr/sbin/dockerd", "/usr/bin/python3.11 (deleted)"])
def test_an_engine_of_today_and_another_program_with_its_old_number_are_not(tmp_path: Path, program: str) -> None:
    assert due_restarts(engine(tmp_path, program)) == []


def test_nothing_is_due_on_a_host_without_an_engine_and_a_gpu(tmp_path: Path) -> None:
    assert due_restarts(tmp_path) == []


@pytest.mark.parametrize(
    ("packages", "asks"),
    [(None, ""), ("", ""), ("linux-base\nlibc6\nlinux-base\n", ": packages ask for it (libc6, linux-base)")],
)
def test_a_host_that_asks_for_a_reboot_is_named_with_the_packages(
    tmp_path: Path, packages: str | None, asks: str
) -> None:
    write(tmp_path / "run/reboot-required", "*** System restart required ***\n")
    if packages is not None:
        write(tmp_path / "run/reboot-required.pkgs", packages)
    assert due_restarts(tmp_path) == [f"a reboot is due{asks}: {REMEDY}"]


@pytest.mark.parametrize(
    ("modinfo", "due"),
    [("echo 580.159.04", False), ("echo 580.173.01", True), ("exit 1", False), (None, False)],
    ids=["same", "replaced", "no module", "no modinfo"],
)
def test_a_driver_that_was_replaced_needs_a_reboot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, modinfo: str | None, due: bool
) -> None:
    write(tmp_path / "sys/module/nvidia/version", "580.159.04\n")
    (tmp_path / "bin").mkdir()
    if modinfo:
        write(tmp_path / "bin/modinfo", f'#!/bin/sh\n[ "$*" = "--field=version nvidia" ] && {modinfo}\n')
        (tmp_path / "bin/modinfo").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    said = f"a reboot is due: NVIDIA's driver 580.159.04 is loaded, and 580.173.01 is installed: {REMEDY}"
    assert due_restarts(tmp_path) == ([said] if due else [])
