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

    def run(self, check: str, *arguments: Path, **environment: str) -> tuple[int, str]:
        """Return the exit code and the output of a check; its ``arguments`` are the paths that it reads and writes."""
        ordinary = {"BACKENDAI_STATE_PATH": str(self._folder), "BACKENDAI_DOCKER_HOST": "unix:///nowhere"}
        done = subprocess.run(
            [CHECKS / check, *arguments],
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


@pytest.mark.parametrize("by_hand", [False, True])
def test_disks_are_looked_at_where_the_engine_keeps_its_data(stand: Stand, tmp_path: Path, by_hand: bool) -> None:
    data = tmp_path / "data of the engine"
    data.mkdir()
    stand.program("df", f"echo; case $* in *'{data}') echo 'fs 9 9 1024 99% /' ;; *) echo 'fs 9 9 9999999 1%' ;; esac")
    stand.program("findmnt", f"case $* in *'{data}') echo ro ;; *) echo rw ;; esac")
    # As an operator calls them, without the variables of the unit.
    asked = "'unix:///nowhere info --format {{.DockerRootDir}}'"
    stand.program("docker", f"""case "$DOCKER_HOST $*" in {asked}) echo '{data}' ;; esac""")
    environment = {} if by_hand else {"BACKENDAI_DATA_ROOT": str(data)}
    assert stand.run("disk", **environment) == (1, f"the file system of {data} has 1 MiB left\n")
    assert stand.run("read-only", **environment) == (1, f"the file system of {data} is read-only\n")


def test_disks_are_looked_at_where_a_containerd_has_the_images(stand: Stand, tmp_path: Path) -> None:
    images = tmp_path / "images"
    images.mkdir()
    stand.program(
        "df", f"echo; case $* in *'{images}') echo 'fs 9 9 1024 99% /' ;; *) echo 'fs 9 9 9999999 1%' ;; esac"
    )
    stand.program("findmnt", f"case $* in *'{images}') echo ro ;; *) echo rw ;; esac")
    assert stand.run("disk", images) == (1, f"the file system of {images} has 1 MiB left\n")
    assert stand.run("read-only", images) == (1, f"the file system of {images} is read-only\n")


def test_without_an_answer_of_the_engine_its_usual_folder_is_looked_at(stand: Stand) -> None:
    stand.program("docker", "exit 1")
    stand.program("findmnt", "echo rw")
    assert stand.run("read-only") == (0, "")


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
        (f"{ONE}, 0, No, 0, Not Active, Not Active", (0, "")),
        (f"{ONE}, [N/A], [N/A], [Not Supported], [N/A], [N/A]", (0, "")),
        (f"{ONE}, 3, No, 0", (1, f"device {ONE}: 3 uncorrectable memory errors since the boot\n")),
        (f"{ONE}, 0, Yes, 0", (1, f"device {ONE}: a page of its memory waits to be retired, until the host reboots\n")),
        (f"{ONE}, 0, No, Yes", (1, f"device {ONE}: a row of its memory could not be remapped\n")),
        (
            f"{ONE}, 0, No, 0, Active, Not Active",
            (1, f"device {ONE}: it is so hot that its hardware slows it down\n"),
        ),
        (
            f"{ONE}, 0, No, 0, Not Active, Active",
            (1, f"device {ONE}: its power supply makes the hardware slow it down\n"),
        ),
    ],
)
def test_errors_of_a_gpu_name_it(stand: Stand, table: str, result: tuple[int, str]) -> None:
    stand.program("nvidia-smi", f"echo '{table}'; echo '{TWO}, 0, No, 0, Not Active, Not Active'")
    stand.program("dmesg", "")
    assert stand.run("gpu") == result


def test_what_the_driver_prints_beside_its_table_is_no_error_of_a_gpu(stand: Stand) -> None:
    warning = "WARNING: infoROM is corrupted at gpu 0000:3B:00.0, 7, Yes, 1"
    table = f"{ONE}, 0, No, 0, Not Active, Not Active"
    stand.program("nvidia-smi", f"echo '{warning}' >&2; echo '{table}'; echo '{warning}'")
    stand.program("dmesg", "")
    assert stand.run("gpu") == (0, "")


def test_errors_of_a_gpu_are_errors_of_its_instances(stand: Stand) -> None:
    listed = f"GPU 0: NVIDIA H100 (UUID: {TWO})\\n  MIG 1g.10gb     Device  0: (UUID: MIG-b)\\n"
    listed += f"GPU 1: NVIDIA H100 (UUID: {ONE})\\n  MIG 1g.10gb     Device  0: (UUID: MIG-a)\\n"
    stand.program("nvidia-smi", f"case $1 in -L) printf '{listed}' ;; *) echo '{ONE}, 3, No, 0' ;; esac")
    stand.program("dmesg", "")
    reason = "3 uncorrectable memory errors since the boot"
    assert stand.run("gpu") == (1, f"device {ONE}: {reason}\ndevice MIG-a: {reason}\n")


def test_old_drivers_have_another_name_for_slowdowns(stand: Stand) -> None:
    refused = "echo 'Field \"clocks_event_reasons.hw_thermal_slowdown\" is not a valid field to query.'; exit 2"
    stand.program(
        "nvidia-smi", f"case $1 in *event*) {refused} ;; *) echo '{ONE}, 0, No, 0, Active, Not Active' ;; esac"
    )
    stand.program("dmesg", "")
    assert stand.run("gpu") == (1, f"device {ONE}: it is so hot that its hardware slows it down\n")


def nvlinks(stand: Stand, *states: str, split: str = "Disabled") -> None:
    """Let two GPUs have NVLinks in these states; ``split`` is whether the first one is in MIG mode."""
    first = "".join(f"\t Link {number}: {state}\\n" for number, state in enumerate(states))
    listed = f"GPU 0: NVIDIA H100 (UUID: {ONE})\\n{first}"
    listed += f"GPU 1: NVIDIA H100 (UUID: {TWO})\\n\t Link 0: 26.562 GB/s\\n\t Link 1: <inactive>\\n"
    modes = f"{ONE}, {split}\\n{TWO}, Disabled\\n"
    stand.program("nvidia-smi", f"case $1 in nvlink) printf '{listed}' ;; *) printf '{modes}' ;; esac")


def test_an_nvlink_that_was_active_and_is_not_is_found_until_it_is(stand: Stand, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    nvlinks(stand, "26.562 GB/s", "26.562 GB/s", "26.562 GB/s", "<inactive>")
    assert stand.run("nvlink", seen) == (0, "")
    nvlinks(stand, "26.562 GB/s", "<inactive>", "<inactive>", "<inactive>")
    for _look in range(2):
        assert stand.run("nvlink", seen) == (1, f"device {ONE}: NVLink 1 2 was active and is not\n")
    stand.program("nvidia-smi", "echo broken; exit 3")
    assert stand.run("nvlink", seen) == (0, "")
    nvlinks(stand)
    assert stand.run("nvlink", seen) == (1, f"device {ONE}: NVLink 0 1 2 was active and is not\n")
    nvlinks(stand, "26.562 GB/s", "26.562 GB/s", "26.562 GB/s", "<inactive>")
    assert stand.run("nvlink", seen) == (0, "")


def test_a_gpu_in_mig_mode_has_no_nvlinks(stand: Stand, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    nvlinks(stand, "26.562 GB/s")
    assert stand.run("nvlink", seen) == (0, "")
    nvlinks(stand, "<inactive>", split="Enabled")
    assert stand.run("nvlink", seen) == (0, "")


def test_gpus_without_nvlinks_leave_no_trace(stand: Stand, tmp_path: Path) -> None:
    stand.program("nvidia-smi", "echo broken; exit 3")
    assert stand.run("nvlink", tmp_path / "seen") == (0, "")
    assert not (tmp_path / "seen").exists()


HEALTHY = """
+---------------------------+----------------------------------------------------------+
| Health Monitor Report                                                                |
+===========================+==========================================================+
| Overall Health            | Healthy                                                  |
+---------------------------+----------------------------------------------------------+
"""
FAILING = """
+---------------------------+----------------------------------------------------------+
| Health Monitor Report                                                                |
+===========================+==========================================================+
| Overall Health            | Failure                                                  |
| GPU                       |                                                          |
| -> 0                      | Failure                                                  |
|    -> Errors              |                                                          |
|       -> PCIe system      | Warning                                                  |
|                           | Detected more than 8 PCIe replays per minute             |
|       -> Memory system    | Failure                                                  |
|                           | A DBE occurred on GPU 0.                                 |
|                           | Drain it and reset it.                                   |
| -> 1                      | Warning                                                  |
|    -> Errors              |                                                          |
|       -> Thermal system   | Warning                                                  |
|                           | It was hot.                                              |
+---------------------------+----------------------------------------------------------+
"""
DISCOVERED = f"""
2 GPUs found.
+--------+----------------------------------------------------------------------+
| GPU ID | Device Information                                                   |
+--------+----------------------------------------------------------------------+
| 0      | Name: NVIDIA H100                                                    |
|        | PCI Bus ID: 00000000:60:00.0                                         |
|        | Device UUID: {TWO}                                            |
+--------+----------------------------------------------------------------------+
| 1      | Name: NVIDIA H100                                                    |
|        | PCI Bus ID: 00000000:18:00.0                                         |
|        | Device UUID: {ONE}                                            |
+--------+----------------------------------------------------------------------+
0 NvSwitches found.
"""
REASON = "DCGM: Memory system: A DBE occurred on GPU 0. Drain it and reset it."


def dcgm(stand: Stand, report: str, discovered: str = DISCOVERED) -> None:
    """Let DCGM report this; it writes down what else it is asked."""
    cases = (
        f"*--check*) echo '{report}' ;; *discovery*) echo '{discovered}' ;; *) echo \"$*\" >> \"${{0%/*}}/asked\" ;;"
    )
    stand.program("dcgmi", f"case $* in {cases} esac")


@pytest.mark.parametrize(
    ("report", "result"),
    [
        (HEALTHY, (0, "")),
        (HEALTHY.replace("Healthy", "Warning"), (0, "")),
        (FAILING, (1, f"device {TWO}: {REASON}\ndevice MIG-b: {REASON}\n")),
        (FAILING.replace("-> 0 ", "-> 7 "), (1, f"DCGM: GPU 7: {REASON.removeprefix('DCGM: ')}\n")),
        (FAILING.replace("| GPU   ", "| Switch"), (1, f"DCGM: Switch 0: {REASON.removeprefix('DCGM: ')}\n")),
        (HEALTHY.replace("Healthy", "Failure"), (1, "DCGM: the overall health is Failure\n")),
        ("Error: unable to establish a connection to the specified host: localhost", (0, "")),
    ],
    ids=["healthy", "warning", "failure", "unknown GPU", "switch", "without details", "no host engine"],
)
def test_failures_that_dcgm_reports_name_the_gpu(stand: Stand, report: str, result: tuple[int, str]) -> None:
    dcgm(stand, report)
    listed = f"GPU 0: NVIDIA H100 (UUID: {ONE})\\nGPU 1: NVIDIA H100 (UUID: {TWO})\\n"
    stand.program("nvidia-smi", f"printf '{listed}  MIG 1g.10gb     Device  0: (UUID: MIG-b)\\n'")
    assert stand.run("dcgm") == result


def test_dcgm_is_asked_to_watch_if_it_watches_nothing(stand: Stand, tmp_path: Path) -> None:
    dcgm(stand, "Error: Health watches not enabled. Please enable watches.")
    assert stand.run("dcgm") == (0, "")
    assert (tmp_path / "asked").read_text() == "health --set a --group 0\n"


def port(folder: Path, state: str, physical: str) -> None:
    """Let an InfiniBand port be in a state, as the kernel writes it."""
    files = folder / "mlx5_0/ports/1"
    files.mkdir(parents=True, exist_ok=True)
    (files / "state").write_text(f"{state}\n")
    (files / "phys_state").write_text(f"{physical}\n")


def test_infiniband_ports_with_a_link_are_active_and_keep_it(stand: Stand, tmp_path: Path) -> None:
    folder, seen = tmp_path / "infiniband", tmp_path / "seen"
    name = f"the InfiniBand port {folder}/mlx5_0/ports/1"
    port(folder, "1: DOWN", "2: Polling")
    assert stand.run("infiniband", folder, seen) == (0, "")
    assert not seen.exists()
    port(folder, "2: INIT", "5: LinkUp")
    assert stand.run("infiniband", folder, seen) == (1, f"{name} is in state 2: INIT\n")
    port(folder, "4: ACTIVE", "5: LinkUp")
    assert stand.run("infiniband", folder, seen) == (0, "")
    port(folder, "1: DOWN", "2: Polling")
    for _look in range(2):
        assert stand.run("infiniband", folder, seen) == (1, f"{name} has lost its link (2: Polling)\n")
    port(folder, "2: INIT", "5: LinkUp")
    assert stand.run("infiniband", folder, seen)[0] == 1
    port(folder, "1: DOWN", "3: Disabled")
    assert stand.run("infiniband", folder, seen) == (1, f"{name} has lost its link (3: Disabled)\n")
    port(folder, "4: ACTIVE", "5: LinkUp")
    assert stand.run("infiniband", folder, seen) == (0, "")


def test_a_driver_that_fails_takes_out_the_host(stand: Stand) -> None:
    for stream in ("1", "2"):
        stand.program("nvidia-smi", f"echo 'Failed to initialize NVML' >&{stream}; exit 1")
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
    for check in ("dcgm", "gpu", "infiniband", "nvlink"):
        assert stand.run(check, PATH="/usr/bin:/bin") == (0, "")
