# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Finds the servers of NFS, Ceph and Lustre in the table of mounts."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .._host.mount_table import Mounted

NFS, CEPH, LUSTRE = "NFS", "Ceph", "Lustre"
NFS_PORTS, LUSTRE_PORTS = ("111", "2049"), ("988",)
CEPH_PORTS = ("3300", "6789", "6800-7568")
"""Of monitors, by both protocols, and of daemons, which share hosts with monitors in small clusters."""

_KINDS = {"nfs": NFS, "nfs4": NFS, "ceph": CEPH, "fuse.ceph": CEPH, "fuse.ceph-fuse": CEPH, "lustre": LUSTRE}


class StorageMount(NamedTuple):
    """A mount from a server: its address or name, and ports that the mount itself names."""

    kind: str
    server: str
    path: str
    ports: tuple[str, ...]


def storage_mounts(mounts: Iterable[Mounted]) -> list[StorageMount]:
    """Return each server of each kind once, with the first path at which something of it is mounted.

    Where a mount does not tell its servers the name is empty.
    """
    found: dict[tuple[str, str], StorageMount] = {}
    for mounted in mounts:
        kind = _KINDS.get(mounted.fs_type, "")
        if not kind:
            continue
        servers = dict.fromkeys(_SERVERS[kind](mounted)) or {("", ""): None}
        for server, port in servers:
            earlier = found.get((kind, server))
            path, ports = (earlier.path, earlier.ports) if earlier else (mounted.path, _PORTS[kind])
            found[kind, server] = StorageMount(
                kind, server, path, tuple(dict.fromkeys([*ports, *filter(None, [port])]))
            )
    return [mount for mount in found.values() if not _is_unreachable(mount.server)]


def resolve(name: str) -> str:
    """Return the IPv4 address of a name or an address; empty if it has none."""
    try:
        return str(socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])
    except (OSError, UnicodeError):
        return ""


def is_ipv4(text: str) -> bool:
    """Return whether a text is an IPv4 address."""
    return _parse(text) is not None and ":" not in text


def _is_unreachable(server: str) -> bool:
    """Return whether containers do not reach an address anyway: they have no IPv6, and loopback is their own."""
    address = _parse(server)
    return address is not None and (address.version == 6 or address.is_loopback)


def _parse(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _nfs_servers(mounted: Mounted) -> Iterator[tuple[str, str]]:
    """Yield the servers of data and of mountd, which the kernel names by address, with their ports."""
    host = mounted.fs_source.rpartition(":/")[0].strip("[]")
    yield mounted.option("addr") or host, mounted.option("port")
    yield mounted.option("mountaddr") or mounted.option("addr") or host, _port(mounted.option("mountport"))


def _ceph_servers(mounted: Mounted) -> Iterator[tuple[str, str]]:
    """Yield the monitors: ``addr:port,addr:/path``, or ``user@fsid.name=/path`` with an option of their addresses."""
    named = mounted.option("mon_addr").split("/")
    if not any(named) and ":/" in mounted.fs_source:
        named = mounted.fs_source.rpartition(":/")[0].split(",")
    for monitor in filter(None, named):
        # Those of IPv6 are in brackets.
        address = re.fullmatch(r"(\[[^\]]*\]|[^:]*)(?::(\d+))?", monitor)
        if address:
            yield address[1].strip("[]"), _port(address[2] or "")


def _lustre_servers(mounted: Mounted) -> Iterator[tuple[str, str]]:
    """Yield the management servers: ``address@net,address@net:address@net:/name``."""
    for nid in re.split("[:,]", mounted.fs_source.rpartition(":/")[0]):
        address, at, _network = nid.partition("@")
        if at:
            yield address, ""


def _port(text: str) -> str:
    return text if text.isascii() and text.isdigit() and 0 < int(text) <= 65535 else ""


_SERVERS = {NFS: _nfs_servers, CEPH: _ceph_servers, LUSTRE: _lustre_servers}
_PORTS = {NFS: NFS_PORTS, CEPH: CEPH_PORTS, LUSTRE: LUSTRE_PORTS}
