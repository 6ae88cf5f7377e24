"""The health checks that agents run, with stand-ins for the programs and files of hardware that is not here."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.unit.builders import REPOSITORY

CHECKS = REPOSITORY / "roles/agent/files/health"
ONE, TWO = "GPU-11111111", "GPU-22222222"


class Stand:
    """A folder of programs that take precedence over those of this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def program(self, name: str, body: str) -> None:
        path = self._folder / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def run(self, check: str, **environment: str) -> tuple[int, str]:
        """Return the exit code and the output of a check."""
        ordinary = {"BACKENDAI_STATE_PATH": str(self._folder), "BACKENDAI_DOCKER_HOST": "unix:///nowhere"}
        done = subprocess.run(
            [CHECKS / check],
            env={**ordinary, "PATH": f"{self._folder}:{os.environ['PATH']}", "LC_ALL": "C", **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stderr == ""
        return done.returncode, done.stdout


@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    return Stand(tmp_path)


def test_the_role_installs_the_checks_that_exist() -> None:
    names = sorted(path.name for path in CHECKS.iterdir())
    for file, variable in (("defaults", "agent_health_checks"), ("vars", "__agent_health_checks")):
        assert yaml.safe_load((REPOSITORY / f"roles/agent/{file}/main.yml").read_text())[variable] == names


@pytest.mark.parametrize(
    ("blocks", "inodes", "result"),
    [
        ("fs 9 9 2000000 1% /", "fs 9 9 9 5% /", (0, "")),
        ("fs 9 9 524288 99% /", "fs 9 9 9 5% /", (1, "512 MiB left")),
        ("fs 9 9 2000000 1% /", "fs 9 9 9 99% /", (1, "1 % of its inodes left")),
        ("fs 9 9 2000000 1% /", "fs 0 0 0 - /", (0, "")),
    ],
)
def test_a_full_disk_is_found(stand: Stand, blocks: str, inodes: str, result: tuple[int, str]) -> None:
    shown = {"-k": blocks, "-i": inodes}
    cases = " ".join(f"*{option}*) printf 'head\\n%s\\n' '{row}' ;;" for option, row in shown.items())
    stand.program("df", f"case $* in {cases} esac")
    code, output = stand.run("disk")
    assert (code, output.strip().endswith(result[1])) == (result[0], True)


@pytest.mark.parametrize(
    ("options", "code"), [("rw,relatime", 0), ("ro,relatime", 1), ("ro", 1), ("rw,errors=remount-ro", 0)]
)
def test_a_file_system_that_has_become_read_only_is_found(stand: Stand, options: str, code: int) -> None:
    stand.program("findmnt", f"echo {options}")
    assert stand.run("read-only") == (code, "the file system of / is read-only\n" if code else "")


def test_a_network_file_system_that_hangs_is_found(stand: Stand) -> None:
    stand.program("findmnt", r"printf '/mnt/fast\n/mnt/two words   \n'")
    stand.program("timeout", 'shift 2; case $* in *"two words") exit 124 ;; *) exit 0 ;; esac')
    assert stand.run("mounts") == (1, "/mnt/two words does not answer\n")
    stand.program("timeout", "exit 0")
    assert stand.run("mounts") == (0, "")


def test_an_engine_that_does_not_answer_is_found(stand: Stand) -> None:
    assert stand.run("engine") == (1, "the Docker engine does not answer\n")
    assert stand.run("engine", BACKENDAI_DOCKER_HOST="tcp://192.0.2.1:2375") == (0, "")


@pytest.mark.parametrize(("service", "synchronized", "code"), [("yes", "no", 1), ("no", "no", 0), ("yes", "yes", 0)])
def test_a_clock_that_is_not_synchronized_is_found(stand: Stand, service: str, synchronized: str, code: int) -> None:
    stand.program("timedatectl", f"echo NTP={service}; echo NTPSynchronized={synchronized}")
    up = float(Path("/proc/uptime").read_text().split()[0])
    assert stand.run("clock")[0] == (code if up >= 600 else 0)


@pytest.mark.parametrize(
    ("table", "result"),
    [
        (f"{ONE}, 0, No, 0", (0, "")),
        (f"{ONE}, [N/A], [N/A], [Not Supported]", (0, "")),
        (f"{ONE}, 3, No, 0", (1, f"device {ONE}: 3 uncorrectable memory errors since the boot\n")),
        (f"{ONE}, 0, Yes, 0", (1, f"device {ONE}: a page of its memory waits to be retired, until the host reboots\n")),
        (f"{ONE}, 0, No, Yes", (1, f"device {ONE}: a row of its memory could not be remapped\n")),
    ],
)
def test_errors_of_a_gpu_name_it(stand: Stand, table: str, result: tuple[int, str]) -> None:
    stand.program("nvidia-smi", f"echo '{table}'; echo '{TWO}, 0, No, 0'")
    stand.program("dmesg", "")
    assert stand.run("gpu") == result


def test_a_driver_that_fails_takes_out_the_host(stand: Stand) -> None:
    stand.program("nvidia-smi", "echo 'Failed to initialize NVML'; exit 1")
    assert stand.run("gpu") == (1, "nvidia-smi fails: Failed to initialize NVML\n")


@pytest.mark.parametrize(
    ("logged", "result"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 31, pid=1, name=x", ""),
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid=1, x", f"device {ONE}: the kernel has logged Xid 79"),
        ("NVRM: Xid (PCI:0000:99:00): 79, pid=1, x", "the GPU at 0000:99:00 is gone: the kernel has logged Xid 79"),
    ],
    ids=["of a program", "of a GPU that answers", "of a GPU that is gone"],
)
def test_xid_errors_of_the_kernel_log_name_the_gpu(stand: Stand, logged: str, result: str) -> None:
    stand.program(
        "nvidia-smi",
        f"case $* in *pci.bus_id*) echo '00000000:3B:00.0, {ONE}' ;; *) echo '{ONE}, 0, No, 0' ;; esac",
    )
    stand.program("dmesg", f"echo '{logged}'")
    assert stand.run("gpu") == ((1, f"{result}\n") if result else (0, ""))


def test_hosts_without_the_hardware_are_healthy(stand: Stand) -> None:
    assert stand.run("memory") == (0, "")
    assert stand.run("infiniband") == (0, "")
