# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Judges the folders that sessions mount by their real paths, and compares them with what containers got.

The folders are the users': they may be on file systems that no longer answer, and may be replaced at any time. So they
are only looked at with a time limit and without the agent's lock, the engine gets real paths, and what it has mounted
is compared with what was judged before the container's entrypoint goes on.
"""

from __future__ import annotations

import dataclasses
import os
import posixpath
from collections.abc import Collection, Mapping, Sequence

from .._docker import containers, labels
from .._docker.sdk import docker
from .._host.local_session import LocalSession
from .._host.path_look import PATH_SECONDS, Folder, NoFolder, Place, look
from .._host.store import Store
from .._model.errors import ClusterError
from .._model.mounts import MISSING, MountRules, Unusable, describe_unusable, find_mount_problem
from .._model.session import Mount

SILENT = Unusable(
    f"did not answer within {PATH_SECONDS:g} seconds", "repair or unmount its file system, or mount another folder"
)


class MountRefusedError(ClusterError):
    """A folder is not mounted, or is not the one that was judged. The message is one sentence."""


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
    client: docker.APIClient, store: Store, settings: MountSettings, sources: Collection[str]
) -> tuple[dict[str, Folder], dict[str, Unusable]]:
    """Return the folder of each source that sessions may mount here, and why they may not mount the others."""
    if not sources:
        return {}, {}
    answers = look([Place(path) for path in (*sources, *settings.roots)])
    real_roots = [_real_path(root, answers[Place(root)]) for root in settings.roots]
    rules = MountRules(real_roots, _own_folders(client, store, settings.docker_host))
    found: dict[str, Folder] = {}
    unusable: dict[str, Unusable] = {}
    for source in sources:
        answer = answers[Place(source)]
        if isinstance(answer, NoFolder):
            unusable[source] = SILENT if answer is NoFolder.SILENT else MISSING
            continue
        refusal = rules.find_refusal(answer.path)
        if refusal:
            unusable[source] = refusal
        else:
            found[source] = answer
    return found, unusable


def _real_path(root: str, answer: Folder | NoFolder) -> str:
    # A root that does not answer has no folders that do.
    return answer.path if isinstance(answer, Folder) else posixpath.normpath(root)


def _own_folders(client: docker.APIClient, store: Store, docker_host: str) -> list[str]:
    """Return the real paths of this agent's state, of the engine's data, and of its socket."""
    scheme, _separator, socket = docker_host.partition("://")
    paths = [str(store.root), client.info().get("DockerRootDir"), socket if scheme == "unix" else None]
    return [os.path.realpath(path) for path in paths if path]


def judge_mounts(
    client: docker.APIClient, store: Store, settings: MountSettings, mounts: Sequence[Mount], agent: str
) -> dict[str, Folder]:
    """Return the folder of each source of a session. Raises :class:`MountRefusedError`."""
    problem = find_mount_problem(mounts)
    if problem:
        raise MountRefusedError(f"{problem}; {agent} refuses it")
    found, unusable = find_sources(client, store, settings, [mount.source for mount in mounts])
    if unusable:
        raise MountRefusedError(describe_unusable(unusable, agent))
    return found


def check_before_start(
    client: docker.APIClient, store: Store, session: LocalSession, settings: MountSettings | None = None
) -> dict[str, Folder]:
    """Return the folders of a session, by source, before its containers start: those that were judged at first.

    Raises :class:`MountRefusedError`.
    """
    recorded = store.mount_sources(session.plan.id)
    paths = {mount.source: recorded.get(mount.source, mount.source) for mount in session.plan.mounts}
    mounts = [dataclasses.replace(mount, source=paths[mount.source]) for mount in session.plan.mounts]
    found = judge_mounts(client, store, settings or MountSettings(), mounts, session.agent)
    for source, path in paths.items():
        if source in recorded and found[path].path != path:
            raise MountRefusedError(
                f"session_mounts: {path} on {session.agent} was the folder that the session mounts, and leads to"
                f" {found[path].path!r} by now; allowed is a folder at that path"
            )
    return {source: found[path] for source, path in paths.items()}


def check_after_start(
    client: docker.APIClient,
    session: LocalSession,
    folders: Mapping[str, Folder],
    hostnames: Collection[str],
) -> None:
    """Check that containers that were just started have these folders; others are killed.

    A folder can be replaced by a link while the engine starts a container. Until its network is complete, the
    entrypoint runs nothing of the image or the user. Raises :class:`MountRefusedError`.
    """
    if not folders:
        return
    started = {
        container["Id"]: (container["Labels"][labels.HOSTNAME], f"/proc/{pid}/root")
        for container in containers.find_containers(client, session.plan.id)
        if container["Labels"].get(labels.HOSTNAME) in hostnames
        for pid in [containers.pid_of(client, container["Id"])]
        if pid
    }
    mounts = session.plan.mounts
    answers = look([Place(mount.target, root) for _name, root in started.values() for mount in mounts])
    replaced: list[str] = []
    for container, (hostname, root) in started.items():
        for mount in mounts:
            answer = answers[Place(mount.target, root)]
            if not _is_same(answer, folders[mount.source]) and containers.pid_of(client, container):
                containers.kill(client, container)
                replaced.append(f"{mount.source} was replaced on {session.agent} while {hostname} started")
                break
    if replaced:
        raise MountRefusedError(f"session_mounts: {'; '.join(replaced)}, so the container was stopped")


def _is_same(answer: Folder | NoFolder, folder: Folder) -> bool:
    return isinstance(answer, Folder) and (answer.device, answer.inode) == (folder.device, folder.inode)
