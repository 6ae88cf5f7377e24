"""Storage servers in tables of mounts, as the kernel's file systems write them."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host.mount_table import read_mounts
from ansible_collections.backendai.cluster.plugins.module_utils._network import storage_mounts as module
from ansible_collections.backendai.cluster.plugins.module_utils._network.storage_mounts import (
    StorageMount,
    is_ipv4,
    resolve,
    storage_mounts,
)


def found(tmp_path: Path, *mounts: str) -> list[StorageMount]:
    """Return the servers of mounts at /mnt/0, /mnt/1 …, each given as type, source and options."""
    lines = [f"{20 + number} 1 0:9 / /mnt/{number} rw - {mount}\n" for number, mount in enumerate(mounts)]
    (tmp_path / "mountinfo").write_text("".join(lines))
    return storage_mounts(read_mounts(tmp_path / "mountinfo"))


NFS, CEPH = ("111", "2049"), ("3300", "6789", "6800-7568")


@pytest.mark.parametrize(
    ("mount", "servers"),
    [
        ("nfs4 storage:/export rw,vers=4.2,addr=192.0.2.7", {"192.0.2.7": NFS}),
        (
            "nfs storage:/export rw,vers=3,mountaddr=192.0.2.7,mountport=635,addr=192.0.2.7",
            {"192.0.2.7": (*NFS, "635")},
        ),
        (
            "nfs storage:/x rw,vers=3,port=20490,mountaddr=192.0.2.8,mountport=635,addr=192.0.2.7",
            {"192.0.2.7": (*NFS, "20490"), "192.0.2.8": (*NFS, "635")},
        ),
        ("nfs4 192.0.2.7:/export rw,vers=4.2", {"192.0.2.7": NFS}),
        ("nfs4 [2001:db8::7]:/export rw,vers=4.2,addr=2001:db8::7", {}),
        ("nfs4 localhost:/export rw,addr=127.0.0.1", {}),
        (
            "ceph 192.0.2.1:6789,192.0.2.2:3300,192.0.2.3:/ rw,name=x",
            dict.fromkeys(["192.0.2.1", "192.0.2.2", "192.0.2.3"], CEPH),
        ),
        ("ceph 192.0.2.1:16789:/ rw", {"192.0.2.1": (*CEPH, "16789")}),
        ("ceph [2001:db8::1]:6789:/ rw", {}),
        (
            "ceph x@3d0c.data=/ rw,mon_addr=192.0.2.1:3300/192.0.2.2:3300",
            dict.fromkeys(["192.0.2.1", "192.0.2.2"], CEPH),
        ),
        ("fuse.ceph-fuse ceph-fuse rw,user_id=0", {"": CEPH}),
        ("ceph x@3d0c.data=/ rw", {"": CEPH}),
        (
            "lustre 192.0.2.1@tcp,192.0.2.2@tcp1:192.0.2.3@o2ib:/data rw",
            dict.fromkeys(["192.0.2.1", "192.0.2.2", "192.0.2.3"], ("988",)),
        ),
        ("lustre mgs1@tcp:/data rw", {"mgs1": ("988",)}),
        ("ext4 /dev/sda1 rw", {}),
        ("overlay overlay rw,lowerdir=/a:/b", {}),
        ("nfsd nfsd rw", {}),
    ],
)
def test_each_file_system_names_its_servers(tmp_path: Path, mount: str, servers: dict[str, tuple[str, ...]]) -> None:
    assert {entry.server: entry.ports for entry in found(tmp_path, mount)} == servers


def test_a_server_is_listed_once_with_its_first_mount_and_all_ports(tmp_path: Path) -> None:
    first, second = "nfs4 a:/x rw,addr=192.0.2.7", "nfs a:/y rw,mountport=635,addr=192.0.2.7"
    assert found(tmp_path, first, second) == [StorageMount("NFS", "192.0.2.7", "/mnt/0", (*NFS, "635"))]


def test_names_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (is_ipv4("192.0.2.7"), is_ipv4("::1"), is_ipv4("mgs1"), is_ipv4("")) == (True, False, False, False)
    assert resolve("localhost") == "127.0.0.1"

    def fail(*_arguments: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(module.socket, "getaddrinfo", fail)
    assert resolve("mgs1") == ""
