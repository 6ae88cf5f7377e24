"""The table of mounts, of this process and of lines that kernels write."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host.mount_table import (
    FolderOnMount,
    Mounted,
    mount_of,
    mounts_below,
    read_mounts,
)
from tests.unit.silent_mount import MS_NODEV, MS_NOSUID, bind, mount_memory, own_mounts

NFS = (
    "97 29 0:52 / /mnt/a\\040b rw,nosuid,relatime shared:52 master:1 - nfs4 192.0.2.7:/export/a\\040b"
    " rw,vers=4.2,proto=tcp,addr=192.0.2.7\n"
)


@pytest.fixture
def own() -> Iterator[Path]:
    with own_mounts():
        yield mount_memory(Path("/mnt"))


def test_lines_of_the_kernel_are_read_with_their_escapes(tmp_path: Path) -> None:
    (tmp_path / "mountinfo").write_text(NFS)
    (mounted,) = read_mounts(tmp_path / "mountinfo")
    assert mounted == Mounted(
        "/mnt/a b",
        frozenset({"rw", "nosuid", "relatime"}),
        "nfs4",
        "192.0.2.7:/export/a b",
        ("rw", "vers=4.2", "proto=tcp", "addr=192.0.2.7"),
    )
    assert (mounted.option("addr"), mounted.option("mountaddr")) == ("192.0.2.7", "")


def test_process_that_has_ended_has_no_mounts() -> None:
    assert read_mounts(Path("/proc/999999999/mountinfo")) == []
    with subprocess.Popen("true") as ended:
        # Until it is waited for, the kernel keeps its number.
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert read_mounts(Path(f"/proc/{ended.pid}/mountinfo")) == []


def test_a_table_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        read_mounts(tmp_path)


def test_what_is_mounted_below_a_folder_is_found(own: Path) -> None:
    mount_memory(own / "data")
    mount_memory(own / "data" / "inner")
    mount_memory(own / "database")
    assert mounts_below("/mnt/data", read_mounts()) == ["/mnt/data/inner"]
    assert mounts_below("/mnt/data/inner", read_mounts()) == []


def test_folder_is_on_the_mount_that_hides_the_others(own: Path) -> None:
    mount_memory(own / "data")
    mount_memory(own / "data", MS_NOSUID | MS_NODEV)
    (own / "data" / "team").mkdir()
    found = mount_of("/mnt/data/team", read_mounts())
    assert found is not None
    assert (found.path, {"nosuid", "nodev"} <= found.options) == ("/mnt/data", True)
    bind(own / "data", own / "bound")
    assert mount_of("/mnt/bound", read_mounts()) not in (None, found)


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        (("/data", "ext4", "/dev/sda1"), ("/data", "ext4", "/dev/sdb1"), True),
        (("/data", "nfs4", "files:/a"), ("/data", "nfs4", "files:/a"), True),
        (("/data", "nfs4", "files:/a"), ("/data", "nfs", "files:/a"), True),
        (("/data", "nfs4", "files:/a"), ("/data", "nfs4", "files:/b"), False),
        (("/data", "nfs4", "files:/a"), ("/data", "nfs4", "[2001:db8::1]:/a"), True),
        (("/data", "ceph", "m1,m2:/a"), ("/data", "ceph", "m1,m2,m3:/a"), True),
        (("/data", "cifs", "//files/a"), ("/data", "cifs", "//files/b"), False),
        (("/data", "fuse.sshfs", "files:/a"), ("/data", "fuse.sshfs", "files:/b"), False),
        (("/data", "nfs4", "files:/a"), ("/data", "autofs", "systemd-1"), False),
        (("/data", "nfs4", "files:/a"), ("/", "ext4", "/dev/sda1"), False),
        (("/", "ext4", "/dev/sda1"), ("/data", "ext4", "/dev/sdb1"), False),
        (("/", "overlay", "overlay"), ("/", "overlay", "overlay"), True),
    ],
)
def test_a_mount_is_the_same_after_a_reboot_whatever_its_local_disk_is_called(
    before: tuple[str, str, str], after: tuple[str, str, str], same: bool
) -> None:
    def folder(mount: str, fs_type: str, fs_source: str) -> FolderOnMount:
        table = [
            Mounted("/", frozenset(), "ext4", "/dev/sda1", ()),
            Mounted(mount, frozenset(), fs_type, fs_source, ()),
        ]
        return FolderOnMount.find("/data/team", table)

    assert folder(*before).is_on_mount_of(folder(*after)) is same


def test_a_folder_without_a_known_mount_is_told() -> None:
    assert FolderOnMount.find("/data", []).description == "no mount"
    assert FolderOnMount("/data", "/", "ext4", "/dev/sda1").description == "the mount at / (ext4 of /dev/sda1)"
