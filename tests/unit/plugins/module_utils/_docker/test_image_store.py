"""Where images and layers are, as the engine and the containerd that it names say; sockets and programs are real."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker.image_store import (
    image_folder,
    layer_of_snapshot,
    uses_containerd,
)

STATUS = (("driver-type", "io.containerd.snapshotter.v1"),)
OVERLAY2 = [["Backing Filesystem", "extfs"], ["Supports d_type", "true"]]
UPPER = "/data/io.containerd.snapshotter.v1.overlayfs/snapshots/2/fs"

CTR = f"""#!/bin/sh
[ "$*" = "--address $CTR_ADDRESS --namespace moby snapshots --snapshotter overlayfs mounts /nowhere c1" ] || {{
    echo "ctr: snapshot does not exist: not found" >&2
    exit 1
}}
echo "mount -t overlay overlay /nowhere -o index=off,workdir=/data/work,upperdir={UPPER},lowerdir=/data/1/fs"
"""


def told(address: str = "", status: Any = STATUS) -> dict[str, Any]:
    """Return the system information of an engine that names its containerd, or is too old for that."""
    named = {"Containerd": {"Address": address, "Namespaces": {"Containers": "moby"}}} if address else {}
    return {
        "DriverStatus": status,
        "Driver": "overlayfs",
        "DockerRootDir": "/srv/docker",
        **named,
    }


@pytest.fixture
def containerd(tmp_path: Path) -> Iterator[str]:
    """Return the address of a containerd with its data in ``data``, as which this process is: it has the files open."""
    database = tmp_path / "data/io.containerd.metadata.v1.bolt/meta.db"
    database.parent.mkdir(parents=True)
    address = str(tmp_path / "containerd.sock")
    with socket.socket(socket.AF_UNIX) as listening, database.open("w"):
        listening.bind(address)
        listening.listen()
        yield address


@pytest.mark.parametrize(
    ("info", "used"),
    [(told(), True), (told(status=OVERLAY2), False), (told(status=None), False), ({}, False)],
    ids=["containerd", "overlay2", "null", "missing"],
)
def test_the_engine_says_which_store_it_uses(info: dict[str, Any], used: bool) -> None:
    assert uses_containerd(info) == used


@pytest.mark.parametrize("scheme", ["", "unix://"])
def test_images_are_where_the_process_of_the_containerd_has_its_data(
    containerd: str, tmp_path: Path, scheme: str
) -> None:
    assert image_folder(told(f"{scheme}{containerd}")) == str(tmp_path / "data")


def test_images_of_the_engines_own_store_are_in_its_data(containerd: str) -> None:
    assert image_folder(told(containerd, OVERLAY2)) == "/srv/docker"
    assert image_folder({}) == ""


@pytest.mark.parametrize(
    ("address", "folder"),
    [
        ("/run/containerd/containerd.sock", "/var/lib/containerd"),
        ("", "/var/lib/containerd"),
        ("/var/run/docker/containerd/containerd.sock", "/srv/docker/containerd/daemon"),
    ],
    ids=["of the host", "of an engine that does not say it", "of the engine"],
)
def test_the_usual_folder_is_taken_where_the_process_does_not_tell(address: str, folder: str) -> None:
    assert image_folder(told(address)) == folder


def test_the_layer_of_a_container_is_what_the_containerd_would_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "ctr"
    program.write_text(CTR)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("CTR_ADDRESS", "/c.sock")
    assert layer_of_snapshot(told("/c.sock"), "c1") == UPPER
    assert layer_of_snapshot(told("/c.sock"), "gone") is None
    assert layer_of_snapshot(told("/c.sock", OVERLAY2), "c1") is None


def test_a_containerd_that_does_not_tell_or_hangs_knows_no_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert layer_of_snapshot(told("/c.sock"), "c1") is None

    def hang(command: list[str], **_options: Any) -> Any:
        raise subprocess.TimeoutExpired(command, 5)

    monkeypatch.setattr(subprocess, "run", hang)
    assert layer_of_snapshot(told("/c.sock"), "c1") is None
