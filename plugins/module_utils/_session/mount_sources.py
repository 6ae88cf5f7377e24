# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Judges the folders that sessions mount, and compares them with what containers got.

The folders are the users': they may be on file systems that no longer answer, and may be replaced at any time. So they
are only looked at with a time limit and without the agent's lock. Of a strict one nobody but root decides which folder
it is, and the engine gets it as it is named; of another one it gets the real path. What it has mounted is compared with
what was judged before the container's entrypoint goes on, and what is read-only has no file system that is not.
"""

from __future__ import annotations

import dataclasses
import os
import posixpath
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from .._docker import containers
from .._docker.image_store import engine_folder, image_folder
from .._docker.mounts import is_recursive
from .._docker.sdk import docker
from .._host import selinux
from .._host.local_session import LocalSession
from .._host.mount_table import FolderOnMount, Mounted, mounts_below, read_mounts
from .._host.path_look import PATH_SECONDS, Answer, Folder, NoFolder, Place, Unsafe, look
from .._host.store import Store
from .._model.errors import ClusterError
from .._model.mounts import (
    MISSING,
    MountRules,
    Source,
    Unusable,
    describe_unusable,
    find_mount_problem,
    is_within,
    unsafe,
    writable_below,
)
from .._model.session import Mount
from .ownership import own_containers

SILENT = Unusable(
    f"did not answer within {PATH_SECONDS:g} seconds", "repair or unmount its file system, or mount another folder"
)


class MountRefusedError(ClusterError):
    """A folder is not mounted, or is not the one that was judged. The message is one sentence."""


class InnerFolderMissingError(MountRefusedError):
    """A mount inside of another one has no folder there; waiting would not help. The message is one sentence."""


@dataclasses.dataclass(frozen=True)
class MountSettings:
    """The settings of an agent for mounts: ``agent_mount_roots`` and ``agent_docker_host``.

    Raises :class:`ValueError` for roots that are not absolute paths.
    """

    roots: Sequence[str] = ("/",)
    docker_host: str = "unix:///var/run/docker.sock"

    def __post_init__(self) -> None:
        for root in self.roots:
            if not root.startswith("/"):
                raise ValueError(f"agent_mount_roots: {root!r} must be an absolute path")


def find_sources(
    client: docker.APIClient | None, store: Store, settings: MountSettings, sources: Collection[Source]
) -> tuple[dict[Source, Folder], dict[Source, Unusable]]:
    """Return the folder of each source that sessions may mount here, and why they may not mount the others.

    Without a client, on a host that is not provisioned yet, there are no rules.
    """
    if not sources:
        return {}, {}
    places = {source: Place(source.path, strict=source.strict) for source in sources}
    answers = look([*places.values(), *map(Place, settings.roots)])
    real_roots = [_real_path(root, answers[Place(root)]) for root in settings.roots]
    rules = MountRules(real_roots, _own_folders(client, store, settings.docker_host)) if client else None
    found: dict[Source, Folder] = {}
    unusable: dict[Source, Unusable] = {}
    for source, place in places.items():
        answer = answers[place]
        if not isinstance(answer, Folder):
            unusable[source] = _describe_answer(answer)
            continue
        refusal = None
        if client and rules:
            refusal = (
                rules.find_refusal(answer.path)
                or _find_writable(client, source, answer.path)
                or _find_closed(client, source, answer)
            )
        if refusal:
            unusable[source] = refusal
        else:
            found[source] = answer
    return found, unusable


def _describe_answer(answer: NoFolder | Unsafe) -> Unusable:
    if isinstance(answer, Unsafe):
        return unsafe(answer.component, answer.problem)
    return SILENT if answer is NoFolder.SILENT else MISSING


def _find_writable(client: docker.APIClient, source: Source, path: str) -> Unusable | None:
    """Return why a source cannot be read-only as a whole: what is mounted below it, with an engine that leaves that."""
    below = mounts_below(path, read_mounts()) if source.read_only else []
    return writable_below(path, below) if below and not is_recursive(client) else None


def _find_closed(client: docker.APIClient, source: Source, folder: Folder) -> Unusable | None:
    """Return why SELinux keeps containers from a folder: its label, which is the operator's to change."""
    if not (folder.label and selinux.is_enforced() and containers.has_selinux(client.info())):
        return None
    opening = selinux.find_opening(folder.path, folder.label, read_only=source.read_only)
    return (
        Unusable("is closed to containers by SELinux", f"its label is {folder.label}: {opening}") if opening else None
    )


def _real_path(root: str, answer: Answer) -> str:
    # A root that does not answer has no folders that do.
    return answer.path if isinstance(answer, Folder) else posixpath.normpath(root)


def _own_folders(client: docker.APIClient, store: Store, docker_host: str) -> list[str]:
    """Return the real paths of this agent's state and homes, of the engine's data, and of its socket."""
    info = client.info()
    scheme, _separator, socket = docker_host.partition("://")
    paths = [
        str(store.root),
        str(store.homes_link),
        engine_folder(info),
        image_folder(info),
        socket if scheme == "unix" else None,
    ]
    return list(dict.fromkeys(os.path.realpath(path) for path in paths if path))


def judge_mounts(
    client: docker.APIClient, store: Store, settings: MountSettings, mounts: Sequence[Mount], agent: str
) -> dict[str, Folder]:
    """Return the folder of each source of a session. Raises :class:`MountRefusedError`."""
    problem = find_mount_problem(mounts)
    if problem:
        raise MountRefusedError(f"{problem}; {agent} refuses it")
    found, unusable = find_sources(client, store, settings, list(dict.fromkeys(map(Source.of, mounts))))
    if unusable:
        described = {source.word: refusal for source, refusal in unusable.items()}
        raise MountRefusedError(describe_unusable(described, agent))
    _require_inner_folders(mounts, found, agent)
    return {source.path: folder for source, folder in found.items()}


def _require_inner_folders(mounts: Sequence[Mount], found: Mapping[Source, Folder], agent: str) -> None:
    """Check that there is a folder for each mount inside of another one, in what is mounted around it.

    The engine would make it as root in a folder of the user's, where links lead it, and cannot do so on a file system
    that is read-only there. Raises :class:`MountRefusedError`, and :class:`InnerFolderMissingError`.
    """
    places = {
        (mount, outer): Place(
            found[Source.of(outer)].path, strict=outer.strict, inner=posixpath.relpath(mount.target, outer.target)
        )
        for mount in mounts
        for outer in _innermost_around(mount, mounts)
    }
    answers = look(places.values()) if places else {}
    for (mount, outer), place in places.items():
        answer = answers[place]
        if isinstance(answer, Folder):
            continue
        if answer is not NoFolder.MISSING:
            raise MountRefusedError(describe_unusable({Source.of(outer).word: _describe_answer(answer)}, agent))
        raise InnerFolderMissingError(
            f"session_mounts: {mount.target} (from {mount.source}) is in the mount at {outer.target}, and"
            f" {outer.source} on {agent} has no folder {place.inner} that its root reaches without a symbolic link:"
            f" make the folder in {outer.source} first, as the user whose that is, or choose another target"
        )


def _innermost_around(mount: Mount, mounts: Iterable[Mount]) -> list[Mount]:
    """Return the mount that another one is directly in, if there is one."""
    around = [other for other in mounts if other.target != mount.target and is_within(mount.target, other.target)]
    return sorted(around, key=lambda other: len(other.target))[-1:]


def check_before_start(
    client: docker.APIClient, store: Store, session: LocalSession, settings: MountSettings | None = None
) -> dict[str, Folder]:
    """Return the folders of a session, by source, before its containers start: those that were judged at first.

    Each is at the same path, and on the same mount: below one that is not there, such as that of an NFS after a reboot,
    there may be a folder, too. Raises :class:`MountRefusedError`.
    """
    stored, sources = store.mount_sources(session.plan.id), [mount.source for mount in session.plan.mounts]
    recorded = {source: stored[source] for source in sources if source in stored}
    paths = {source: recorded[source].path if source in recorded else source for source in sources}
    mounts = [dataclasses.replace(mount, source=paths[mount.source]) for mount in session.plan.mounts]
    try:
        # This looks at each folder, so that automatic mounts take place.
        found = judge_mounts(client, store, settings or MountSettings(), mounts, session.agent)
    except MountRefusedError:
        # What is missing below a mount point says less than what is not mounted there.
        _require_mounts(recorded.values(), session.agent)
        raise
    for source, path in paths.items():
        if source in recorded and found[path].path != path:
            raise MountRefusedError(
                f"session_mounts: {path} on {session.agent} was the folder that the session mounts, and leads to"
                f" {found[path].path!r} by now; allowed is a folder at that path"
            )
    _require_mounts(recorded.values(), session.agent)
    return {source: found[path] for source, path in paths.items()}


def _require_mounts(recorded: Collection[FolderOnMount], agent: str) -> None:
    """Raise :class:`MountRefusedError` if a folder is not on the mount that it was on."""
    table = read_mounts() if recorded else []
    for before in recorded:
        now = FolderOnMount.find(before.path, table)
        if not now.is_on_mount_of(before):
            raise MountRefusedError(
                f"session_mounts: {before.path} on {agent} was on {before.description}, and is on {now.description} by"
                " now: restore the former, or end the session"
            )


def check_after_start(
    client: docker.APIClient,
    store: Store,
    session: LocalSession,
    folders: Mapping[str, Folder],
    hostnames: Collection[str],
) -> None:
    """Check that containers that were just started have these folders, read-only as a whole; others are killed.

    A folder can be replaced by a link while the engine starts a container. Until the agent lets it begin, the
    entrypoint runs nothing of the image or the user. Raises :class:`MountRefusedError`.
    """
    if not folders:
        return
    started = {
        container["Id"]: (hostname, pid)
        for hostname, container in own_containers(client, store, session).items()
        if hostname in hostnames
        for pid in [containers.pid_of(client, container["Id"])]
        if pid
    }
    mounts = session.plan.mounts
    roots = {container: f"/proc/{pid}/root" for container, (_name, pid) in started.items()}
    answers = look([Place(mount.target, root) for root in roots.values() for mount in mounts])
    problems: list[str] = []
    for container, (hostname, pid) in started.items():
        there = {mount: answers[Place(mount.target, roots[container])] for mount in mounts}
        found = [
            f"{mount.source} was replaced on {session.agent} while {hostname} started"
            for mount, answer in there.items()
            if not _is_same(answer, folders[mount.source])
        ]
        table = read_mounts(Path(f"/proc/{pid}/mountinfo"))
        targets = {_real_target(mount.target, answer, table): mount.read_only for mount, answer in there.items()}
        found += [
            f"{hostname} on {session.agent} could write to {path}, although that folder is read-only"
            for path in find_writable(targets, table)
        ]
        if found and containers.pid_of(client, container):
            containers.kill(client, container)
            problems.append(found[0])
    if problems:
        raise MountRefusedError(f"session_mounts: {'; '.join(problems)}, so the container was stopped")


def _real_target(target: str, answer: Answer, table: Iterable[Mounted]) -> str:
    """Return where a target is mounted: the image may have a link there, such as ``/var/run``."""
    real = answer.path if isinstance(answer, Folder) else target
    return real if any(entry.path == real for entry in table) else target


def find_writable(read_only: Mapping[str, bool], table: Collection[Mounted]) -> list[str]:
    """Return where a process with this table of mounts may be able to write at or below a target that is read-only.

    ``read_only`` says so of each target, by its real path. A mount of the plan inside of another one is what it says
    itself; a target that the table lacks is none.
    """
    elsewhere = {target for target in read_only if read_only[target]} - {entry.path for entry in table}
    writable = [entry.path for entry in table if "ro" not in entry.options and "ro" not in entry.fs_options]
    return sorted(elsewhere | {path for path in writable if read_only.get(_innermost(path, read_only))})


def _innermost(path: str, targets: Iterable[str]) -> str:
    return max((target for target in targets if is_within(path, target)), key=len, default="")


def _is_same(answer: Answer, folder: Folder) -> bool:
    return isinstance(answer, Folder) and (answer.device, answer.inode) == (folder.device, folder.inode)
