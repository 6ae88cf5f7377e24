# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Keeps what containers printed when they are removed, on their agent, and reads it.

``output/<id>/session.json`` describes the session; beside it is a gzip file for each log.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from .._docker.logs import Allowance, LogReadError, tail_of_kept
from .._docker.sdk import docker
from .._host.local_session import LocalSession
from .._host.store import Store
from .._model.files import locked, write_atomically
from .._model.held_session import ContainerState
from .._model.plain_data import to_plain
from .._model.plan import SessionPlan
from .._model.session import is_session_id
from .._model.state_format import StateFormat
from .app_logs import AppLogs
from .container_states import container_states, read_end
from .kept_logs import KEPT_BYTES, SECONDS, Others, keep_logs
from .reply_logs import Read, ReplyLogs

MAX_BYTES = 4 << 30
"""The size of the output of all sessions on an agent: of more, the oldest of the user who has most are removed."""

# How much of what was kept is decompressed for one reply, and for how long.
_DECOMPRESSED_BYTES, _DECOMPRESSING_SECONDS = 2 << 30, 120

DAYS = 30

_LOCK_SECONDS = 30


@dataclasses.dataclass(frozen=True)
class KeptOutput:
    """What is kept of an agent's part of a session; times are in seconds since the epoch.

    ``containers`` are the last states by hostname, ``lost`` says of containers why some of their output was not kept.
    """

    plan: SessionPlan
    agent: str
    ended_at: float
    expires_at: float
    containers: dict[str, ContainerState]
    lost: dict[str, str]


_KEPT = StateFormat("the output", KeptOutput)


def keep_output(
    client: docker.APIClient,
    store: Store,
    session: LocalSession,
    existing: Mapping[str, Mapping[str, Any]],
    days: float = DAYS,
    seconds: float = SECONDS,
    later: Collection[str] = (),
) -> dict[str, str]:
    """Keep the output of a session's ``existing`` containers, which have ended, for ``days``.

    Return what was lost, by hostname, also of those whose output was kept when their command ended. The output of the
    hostnames of ``later`` is kept by another call. It takes ``seconds`` at most. A repetition replaces what was kept of
    the same containers. That nothing can be written does not keep a session from ending.
    """
    hostnames = {kernel.hostname for kernel in session.kernels}
    existing = {hostname: container for hostname, container in existing.items() if hostname in hostnames}
    now, root = time.time(), store.root / "output"
    folder, kept_before = root / session.plan.id, _kept_containers(store, session)
    if not existing and not kept_before:
        return {}
    try:
        root.mkdir(mode=0o700, exist_ok=True)
        with locked(root, _LOCK_SECONDS):
            folder.mkdir(mode=0o700, exist_ok=True)
            before = _load(folder)
            states = container_states(client, store, session, existing)
            kept = KeptOutput(session.plan, session.agent, now, now + days * 86400, states, {})
            if before:
                lost = {name: problem for name, problem in before.lost.items() if name not in existing}
                kept = dataclasses.replace(kept, containers={**before.containers, **states}, lost=lost)
            write_atomically(folder / "session.json", _KEPT.dump(kept))
        ids = {container["Id"][:12] for container in existing.values()}
        other_ids = {container[:12] for container in kept_before.values()} - ids
        kept_bytes = sum(size for _path, container, size in _kept_files(folder) if container in other_ids)
        app_logs, others = AppLogs(store, session.plan.id), Others(kept_bytes, later)
        lost = keep_logs(client, folder, app_logs, session.plan.apps, existing, seconds, others)
        _remove_replaced(folder, ids | other_ids)
        if lost:
            write_atomically(folder / "session.json", _KEPT.dump(dataclasses.replace(kept, lost={**kept.lost, **lost})))
    except OSError as error:
        problem = f"{folder} cannot be written ({error.strerror or error})"
        return dict.fromkeys(existing, problem)
    # What has expired is removed by the next one.
    with contextlib.suppress(OSError):
        prune(store, session.plan.id)
    return {**{name: problem for name, problem in kept.lost.items() if name in kept_before}, **lost}


def _kept_containers(store: Store, session: LocalSession) -> dict[str, str]:
    """Return the ids of the containers whose output was kept when their command ended, by hostname."""
    ends = {name: read_end(store, session.plan.id, name) for name in store.started_commands(session)}
    return {name: end.container for name, end in ends.items() if end and end.state}


def _kept_files(folder: Path) -> list[tuple[Path, str, int]]:
    """Return the kept logs of a session, each with the beginning of its container's id and its size, oldest first."""
    files = [(path, path.stat()) for path in folder.glob("*.gz")]
    files.sort(key=lambda file: file[1].st_mtime)
    return [(path, path.name.split("@", 2)[1], status.st_size) for path, status in files]


def _remove_replaced(folder: Path, current: Collection[str]) -> None:
    """Remove logs of containers that were replaced, the oldest first, while a session keeps more than it may."""
    files = _kept_files(folder)
    too_much = sum(size for _path, _container, size in files) - KEPT_BYTES
    for path, container, size in files:
        if too_much > 0 and container not in current:
            too_much -= size
            path.unlink()


def _load(folder: Path) -> KeptOutput | None:
    """Return the description of a session's output; ``None`` if it is missing or damaged."""
    try:
        return _KEPT.load((folder / "session.json").read_bytes())
    except (OSError, ValueError):
        return None


def prune(store: Store, excluded: str = "") -> None:
    """Remove the output that has expired, and while there is too much, the oldest of the user who has most of it.

    That of sessions which the agent still holds, or which are ``excluded``, is about to be written.
    """
    root = store.root / "output"
    if not root.is_dir():
        return
    with locked(root, _LOCK_SECONDS) as handle:
        if handle is None:
            return
        held = {excluded, *store.held_ids()}
        folders = [folder for folder in root.iterdir() if is_session_id(folder.name)]
        kept = {folder: _load(folder) for folder in folders}
        sizes = {folder: sum(path.stat().st_size for path in folder.iterdir()) for folder in folders}
        for folder, output in kept.items():
            if folder.name not in held and (output is None or output.expires_at < time.time()):
                shutil.rmtree(folder)
                del sizes[folder]
        for folder in _too_much(sizes, kept, held):
            shutil.rmtree(folder)


def _too_much(
    sizes: Mapping[Path, int], kept: Mapping[Path, KeptOutput | None], held: Collection[str]
) -> Iterator[Path]:
    """Yield the folders to remove while there are more than :data:`MAX_BYTES`: of the user who has most, the oldest."""
    by_user: dict[str, list[tuple[float, Path]]] = {}
    for folder in sizes:
        output = kept[folder]
        if output and folder.name not in held:
            by_user.setdefault(output.plan.user, []).append((output.ended_at, folder))
    total = sum(sizes.values())
    while total > MAX_BYTES and by_user:
        user = max(by_user, key=lambda name: (sum(sizes[folder] for _ended, folder in by_user[name]), name))
        oldest = min(by_user[user])
        by_user[user].remove(oldest)
        if not by_user[user]:
            del by_user[user]
        total -= sizes[oldest[1]]
        yield oldest[1]


def find_kept(store: Store, session_id: str) -> KeptOutput | None:
    """Return the output of the session with that id."""
    return _load(store.root / "output" / session_id) if is_session_id(session_id) else None


def read_kept(store: Store, kept: KeptOutput, hostname: str, lines: int, reply: ReplyLogs) -> dict[str, Any]:
    """Return this agent's part of an ended session, in the form of that of a running one, with when it ended."""
    hostnames = [name for name in kept.containers if hostname in ("", name)]
    reads = kept_reads(store, kept, hostnames, lines)
    return {
        "id": kept.plan.id,
        "batch": bool(kept.plan.command),
        "containers": to_plain(kept.containers),
        "logs": reply.collect(reads),
        "ended_at": kept.ended_at,
    }


def kept_reads(store: Store, kept: KeptOutput, hostnames: Collection[str], lines: int) -> dict[str, dict[str, Read]]:
    """Return what reads the last lines of logs that were kept of these containers, by hostname and then by app."""
    allowance = Allowance(_DECOMPRESSED_BYTES, _DECOMPRESSING_SECONDS)
    logs: dict[str, dict[str, list[Path]]] = {name: {"": []} for name in hostnames}
    for path, _id, _size in reversed(_kept_files(store.root / "output" / kept.plan.id)):
        name, _container, app = path.name.removesuffix(".gz").split("@", 2)
        if name in logs:
            logs[name].setdefault(app, []).append(path)
    return {
        name: {
            app: partial(_read_logs, paths, lines, allowance, "" if app else kept.lost.get(name, ""))
            for app, paths in apps.items()
        }
        for name, apps in logs.items()
    }


def _read_logs(paths: Sequence[Path], lines: int, allowance: Allowance, lost: str) -> tuple[list[str], str]:
    """Return the last lines of the logs of a container, the newest of which is first, and what was lost of them.

    A container that was replaced has logs of its own, which are older.
    """
    read: list[str] = []
    problems = [lost] if lost else []
    for path in paths:
        if len(read) < lines:
            try:
                read = [*tail_of_kept(str(path), lines - len(read), allowance), *read]
            except LogReadError as error:
                problems.append(str(error))
    return read, "; ".join(problems)
