# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads the table of mounts of a process: the kernel answers from memory, and waits for no lost file system."""

from __future__ import annotations

import dataclasses
import errno
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from .._model.mounts import is_within

OWN = Path("/proc/thread-self/mountinfo")

_NETWORK_TYPES = frozenset(
    (
        *("9p", "afs", "beegfs", "ceph", "cifs", "fuse", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "panfs"),
        *("pvfs2", "smb3", "virtiofs", "wekafs"),
    )
)

# The version that client and server agree on decides which of the two names a mount has.
_SAME_TYPES = {"nfs4": "nfs", "smb3": "cifs"}


class Mounted(NamedTuple):
    """A mount: its ``path``, the ``options`` of this mount, and type, source and options of its file system."""

    path: str
    options: frozenset[str]
    fs_type: str
    fs_source: str
    fs_options: tuple[str, ...]

    def option(self, name: str) -> str:
        """Return the value of an option of the file system; empty without one."""
        return next((text.partition("=")[2] for text in self.fs_options if text.startswith(f"{name}=")), "")


def is_network(fs_type: str) -> bool:
    """Return whether a type is that of a network file system, such as ``nfs4`` or ``fuse.sshfs``."""
    return fs_type.partition(".")[0] in _NETWORK_TYPES


@dataclasses.dataclass(frozen=True)
class FolderOnMount:
    """The real ``path`` of a folder, and the mount that it is on: its path, and type and source of its file system.

    These three are empty if no mount is known.
    """

    path: str
    mount: str = ""
    fs_type: str = ""
    fs_source: str = ""

    @classmethod
    def find(cls, path: str, mounts: Iterable[Mounted]) -> FolderOnMount:
        """Return a folder, given its real path, with the mount that it is on."""
        found = mount_of(path, mounts)
        return cls(path, found.path, found.fs_type, found.fs_source) if found else cls(path)

    def is_on_mount_of(self, other: FolderOnMount) -> bool:
        """Return whether two folders are on the same mount, also if there was a reboot in between.

        A local disk may have another name then, and an export other servers before the last colon of its source.
        """
        return self._lasting() == other._lasting()

    def _lasting(self) -> tuple[str, str, str]:
        source = self.fs_source.rpartition(":")[2] if is_network(self.fs_type) else ""
        return self.mount, _SAME_TYPES.get(self.fs_type, self.fs_type), source

    @property
    def description(self) -> str:
        """The mount as a phrase, such as ``the mount at /data (nfs4 of files:/export)``."""
        return f"the mount at {self.mount} ({self.fs_type} of {self.fs_source})" if self.mount else "no mount"


def read_mounts(path: Path = OWN) -> list[Mounted]:
    """Return what ``/proc/PID/mountinfo`` lists, in that order; nothing of a process that has ended."""
    try:
        text = path.read_bytes().decode(errors="surrogateescape")
    except OSError as error:
        # EINVAL is that of a process which its parent has not waited for yet.
        if error.errno not in (errno.ENOENT, errno.ESRCH, errno.EINVAL):
            raise
        return []
    return [_parse(line) for line in text.splitlines()]


def _parse(line: str) -> Mounted:
    """Return the mount of a line, as in proc(5): there is any number of optional fields before the ``-``."""
    before, _separator, after = line.partition(" - ")
    fields, rest = before.split(" "), after.split(" ")
    return Mounted(
        path=unescape(fields[4]),
        options=frozenset(fields[5].split(",")),
        fs_type=rest[0],
        fs_source=unescape(rest[1]),
        fs_options=tuple(rest[2].split(",")),
    )


def unescape(text: str) -> str:
    """Return a text without the kernel's escapes for space, tab, newline and backslash."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


def mounts_below(path: str, mounts: Iterable[Mounted]) -> list[str]:
    """Return where something is mounted inside of a folder."""
    return sorted({mount.path for mount in mounts if mount.path != path and is_within(mount.path, path)})


def mount_of(path: str, mounts: Iterable[Mounted]) -> Mounted | None:
    """Return the mount that a path is on: of the longest ones the last, which hides the others."""
    above = [mount for mount in mounts if is_within(path, mount.path)]
    return max(reversed(above), key=lambda mount: len(mount.path), default=None)
