"""One container for each GPU, with a stand-in for docker that runs the script of the container on this host.

Nodes are files: one that a container was not given is refused by its mode, as a control group would.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.builders import REPOSITORY

SCRIPT = REPOSITORY / "roles/accelerator/files/try-gpus"
#: Notes what it is asked. A container has the nodes of what it was given, and those in OPEN; its user is no root.
DOCKER = """\
echo "docker $*" >> "$HOST/asked"
[ "$1" != run ] || {
    chmod 600 "$HOST"/dev/*
    for word; do
        case $word in nvidia.com/gpu=*|device=*) chmod 666 "$HOST/dev/$(cat "$HOST/${word#*=}")" ;; esac
    done
    for node in $OPEN; do chmod 666 "$HOST/dev/$node"; done
    for node in $BROKEN; do rm -f "$HOST/dev/$node"; done
    case "$*" in *"$FAILS"*) echo "docker: Error response from daemon: unresolvable CDI devices" >&2; exit 125 ;; esac
    while [ "$1" != /bin/busybox ]; do shift; done
    shift
    exec setpriv --reuid 65534 --clear-groups "$@"
}
[ "$1" != import ] || cat > /dev/null
"""
REFUSAL = "docker: Error response from daemon: unresolvable CDI devices"
Try = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def host() -> Iterator[Path]:
    """Return a folder that user 65534 reaches: any other run of pytest closes those of this one to others."""
    with tempfile.TemporaryDirectory() as name:
        made = Path(name)
        made.chmod(0o755)
        for folder in ("bin", "dev", "kit/bin", "gpus"):
            (made / folder).mkdir(parents=True)
        (made / "kit/bin/busybox").write_text("")
        write(made, "docker", DOCKER)
        yield made


def write(host: Path, name: str, text: str) -> None:
    (host / "bin" / name).write_text(f"#!/bin/sh\n{text}")
    (host / "bin" / name).chmod(0o755)


def add_gpu(host: Path, uuid: str, minor: int) -> None:
    """Add a GPU as the driver describes it; its node is a file."""
    (host / "gpus" / uuid).mkdir()
    text = (
        f"Model: \t\t NVIDIA H200\nIRQ:   \t\t 60\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\nGPU Excluded:\t No\n"
    )
    (host / "gpus" / uuid / "information").write_text(text)
    (host / f"dev/nvidia{minor}").write_text("")
    (host / uuid).write_text(f"nvidia{minor}")


@pytest.fixture
def attempt(host: Path) -> Try:
    """Return what runs the script; names of GPUs for CDI are in a file of the host."""

    def run(has_cdi: bool = True, **settings: str) -> subprocess.CompletedProcess[str]:
        text = SCRIPT.read_text().replace("/etc/cdi/* /run/cdi/*", f"{host}/names")
        text = text.replace(r"\/dev\/nvidia", str(host / "dev/nvidia").replace("/", r"\/"))
        path = f"{host / 'bin'}:/usr/bin:/bin"
        environment = {"PATH": path, "HOST": str(host), "OPEN": "", "BROKEN": "", "FAILS": "no word", **settings}
        command = ["sh", "-c", text, "try-gpus", str(host / "kit"), str(has_cdi), str(host / "gpus")]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    return run


def asked(host: Path) -> list[str]:
    return [line for line in (host / "asked").read_text().splitlines() if line.startswith("docker run")]


def two_gpus(host: Path) -> None:
    add_gpu(host, "GPU-aaaa", 0)
    add_gpu(host, "GPU-bbbb", 1)
    (host / "names").write_text("- name: GPU-aaaa\n- name: GPU-bbbb\n")


def test_each_container_opens_its_own_gpu_and_is_refused_the_others(host: Path, attempt: Try) -> None:
    two_gpus(host)
    done = attempt()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    first, second, none = asked(host)
    assert "--device nvidia.com/gpu=GPU-aaaa" in first
    assert f"--volume {host}/dev/nvidia1:{host}/dev/nvidia1" in first
    assert "--device nvidia.com/gpu=GPU-bbbb" in second
    assert "nvidia.com/gpu" not in none
    for line in (first, second, none):
        assert "--network none --user 65534:65534 --cap-drop ALL --security-opt no-new-privileges" in line
        assert "NVIDIA_VISIBLE_DEVICES=void" in line


def test_the_image_is_of_the_kit_and_goes_afterwards(host: Path, attempt: Try) -> None:
    two_gpus(host)
    attempt()
    lines = (host / "asked").read_text().splitlines()
    made, gone = lines[0].split(), lines[-1].split()
    assert (made[1:3], gone[1:4]) == (["import", "-"], ["image", "rm", "--force"])
    assert made[-1] == gone[-1]
    assert all(made[-1] in line for line in asked(host))


@pytest.mark.parametrize("opened", ["nvidia0", "nvidia1"])
def test_a_gpu_that_others_can_open_is_an_error(host: Path, attempt: Try, opened: str) -> None:
    two_gpus(host)
    done = attempt(OPEN=opened)
    assert done.returncode == 3
    other = "GPU-bbbb" if opened == "nvidia0" else "GPU-aaaa"
    assert f"{other}: a container that has this GPU alone opens {host}/dev/{opened}." in done.stdout
    assert f"none: a container that has no GPU opens {host}/dev/{opened}." in done.stdout


def test_a_gpu_that_its_container_cannot_open_is_named(host: Path, attempt: Try) -> None:
    two_gpus(host)
    done = attempt(FAILS="gpu=GPU-aaaa")
    assert (done.returncode, done.stdout) == (0, f"GPU-aaaa: a container does not get it: {REFUSAL}\n")


def test_a_gpu_whose_name_the_engine_does_not_read_comes_by_the_hook(host: Path, attempt: Try) -> None:
    two_gpus(host)
    write(host, "nvidia-container-runtime-hook", "exit 0\n")
    done = attempt(FAILS="nvidia.com/gpu=")
    assert (done.returncode, done.stdout) == (0, "")
    assert ["--gpus" in line for line in asked(host)] == [False, True, False, True, False]


def test_a_gpu_that_neither_its_name_nor_the_hook_gives_has_both_reasons(host: Path, attempt: Try) -> None:
    two_gpus(host)
    write(host, "nvidia-container-runtime-hook", "exit 0\n")
    said = f"GPU-aaaa: a container does not get it: {REFUSAL}; by the hook: {REFUSAL}\n"
    assert attempt(FAILS="GPU-aaaa").stdout == said


def test_a_container_without_a_gpu_that_does_not_start_is_named(host: Path, attempt: Try) -> None:
    two_gpus(host)
    done = attempt(FAILS="--env NVIDIA_VISIBLE_DEVICES=void --volume")
    assert (done.returncode, done.stdout) == (0, f"A container without a GPU was not tried: {REFUSAL}\n")


def test_a_node_that_is_gone_is_named(host: Path, attempt: Try) -> None:
    add_gpu(host, "GPU-aaaa", 0)
    (host / "names").write_text("- name: GPU-aaaa\n")
    (host / "dev").chmod(0o700)
    done = attempt()
    assert done.returncode == 0
    assert done.stdout.startswith("GPU-aaaa: a container does not get it: ")
    assert f"{host}/dev/nvidia0" in done.stdout


@pytest.mark.parametrize("has_cdi", [True, False])
def test_a_gpu_without_a_name_comes_by_the_hook(host: Path, attempt: Try, has_cdi: bool) -> None:
    add_gpu(host, "GPU-aaaa", 0)
    (host / "names").write_text("- name: GPU-bbbb\n" if has_cdi else "- name: GPU-aaaa\n")
    write(host, "nvidia-container-runtime-hook", "exit 0\n")
    done = attempt(has_cdi)
    assert (done.returncode, done.stdout) == (0, "")
    first, _none = asked(host)
    nodes = f"--device {host}/dev/nvidia0 --device /dev/nvidiactl"
    assert f"--gpus device=GPU-aaaa {nodes}" in first


def test_a_gpu_that_nothing_gives_is_kept_from_others_all_the_same(host: Path, attempt: Try) -> None:
    add_gpu(host, "GPU-aaaa", 0)
    assert (attempt(False).stdout, len(asked(host))) == ("", 1)
    assert attempt(False, OPEN="nvidia0").returncode == 3


def test_without_a_gpu_no_container_is_started(host: Path, attempt: Try) -> None:
    assert (attempt().returncode, (host / "asked").exists()) == (0, False)


def test_an_engine_that_takes_no_image_is_named(host: Path, attempt: Try) -> None:
    add_gpu(host, "GPU-aaaa", 0)
    write(host, "docker", "cat > /dev/null; echo 'Cannot connect to the Docker daemon' >&2; exit 1\n")
    done = attempt()
    assert (done.returncode, done.stdout) == (1, "GPUs were not tried: Cannot connect to the Docker daemon\n")


def test_a_host_without_the_command_docker_is_named(host: Path, attempt: Try) -> None:
    add_gpu(host, "GPU-aaaa", 0)
    for name in ("sh", "cat", "sed", "paste", "tar"):
        (host / "bin" / name).symlink_to(str(shutil.which(name)))
    (host / "bin/docker").unlink()
    done = attempt(PATH=str(host / "bin"))
    assert done.returncode == 1
    assert done.stdout.startswith("GPUs were not tried: ")
    assert "docker: not found" in done.stdout
