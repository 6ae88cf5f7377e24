# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks the folders of a manager's policy on a host before a user meets what is wrong with them.

On agents: whether sessions may mount them. On each host that shares them: whether a setuid file or a device node that a
session has left there is worth anything.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from .._docker.sdk import docker
from .._host.mount_table import Mounted, is_network, mount_of, read_mounts, unescape
from .._host.path_look import NoFolder, Place, Unsafe, look
from .._host.store import Store
from .._model.mounts import MISSING, Source, find_path_problem, is_within, unsafe
from .mount_sources import SILENT, MountSettings, find_sources

USER = "{user}"
"""What stands for the user's name in the source of a folder."""

EXPORTS = Path("/var/lib/nfs/etab")
"""What this host exports by NFS."""

PROTECTION = ("nosuid", "nodev")

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}")


class PolicyFolder(NamedTuple):
    """A folder of the policy; the name of each user replaces ``{user}`` in its ``source``."""

    source: str
    read_only: bool = False

    def sources(self, users: Iterable[str]) -> list[Source]:
        """Return what sessions of these users mount."""
        names = users if USER in self.source else [""]
        return [Source(self.source.replace(USER, name), True, self.read_only) for name in names]

    @property
    def above(self) -> str:
        """The folder in which each user has an own one; empty for a folder of all."""
        before, placeholder, _after = self.source.partition(USER)
        return posixpath.dirname(before) if placeholder else ""


def known_users(names: Iterable[str]) -> list[str]:
    """Return those names that are components of a path and nothing else: agents and requests have named them."""
    return sorted({name for name in names if _NAME.fullmatch(name) and name not in (".", "..")})


def find_folder_problems(
    client: docker.APIClient | None,
    store: Store,
    settings: MountSettings,
    folders: Iterable[PolicyFolder],
    users: Collection[str],
) -> list[str]:
    """Return a phrase for each folder that sessions may not mount here, with the component and the remedy.

    A folder that is missing is no problem: its sessions are placed on other agents. Without a client, on a host that is
    not provisioned yet, only the paths are looked at.
    """
    problems: list[str] = []
    for folder in folders:
        # That each folder above is root's is to be known before the first user has a session.
        inside = Place(f"{folder.above}/.", strict=True)
        answer = look([inside])[inside] if folder.above else NoFolder.MISSING
        if isinstance(answer, Unsafe):
            problems.append(f"{folder.source}: {unsafe(*answer).explanation}")
        elif answer is NoFolder.SILENT:
            problems.append(f"{folder.source}: {folder.above} {SILENT.problem}: {SILENT.explanation}")
        else:
            problems += _find_source_problems(client, store, settings, folder.sources(users))
    return problems


def _find_source_problems(
    client: docker.APIClient | None, store: Store, settings: MountSettings, sources: Collection[Source]
) -> Iterator[str]:
    odd = [source.path for source in sources if find_path_problem(source.path)]
    yield from (f"{path} {find_path_problem(path)}" for path in odd)
    usable = [source for source in sources if source.path not in odd]
    for source, unusable in find_sources(client, store, settings, usable)[1].items():
        if unusable != MISSING:
            yield f"{source.path} {unusable.problem}: {unusable.explanation}"


def find_unprotected(folders: Iterable[PolicyFolder], users: Collection[str]) -> list[str]:
    """Return a phrase for each shared file system with folders of the policy on which setuid files and devices work."""
    table, exports = read_mounts(), _exports()
    paths = {source.path for folder in folders for source in folder.sources(users)}
    above = {folder.above for folder in folders if folder.above}
    # Each user's folder may be mounted by itself.
    inside = [entry for entry in table for path in above if is_within(entry.path, path)]
    covering = [mount_of(path, table) for path in sorted(paths | above)]
    found = dict.fromkeys(
        entry for entry in [*covering, *inside] if entry and _is_shared(entry, paths | above, exports)
    )
    return [
        f"{entry.path} ({entry.fs_type} of {entry.fs_source}) is mounted without {' and '.join(lacking)}: add"
        " nosuid,nodev to the options of that mount"
        for entry in found
        if (lacking := [name for name in PROTECTION if name not in entry.options])
    ]


def _is_shared(entry: Mounted, paths: Collection[str], exports: Collection[str]) -> bool:
    """Return whether other hosts have what is on a mount: of a network file system, or exported from here."""
    if is_network(entry.fs_type):
        return True
    ours = [path for path in paths if is_within(path, entry.path)]
    return any(is_within(path, export) or is_within(export, path) for path in ours for export in exports)


def _exports() -> list[str]:
    try:
        lines = EXPORTS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return []
    return [unescape(line.split("\t")[0]) for line in lines if line]
