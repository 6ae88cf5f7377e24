# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Keeps what containers printed when they are removed, on their agent, and reads it.

``output/<id>/session.json`` describes the session; beside it is a gzip file for each log.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .._docker import labels
from .._docker.logs import END_LINES, LogLimitError, LogReadError, compressed_file, compressed_log, tail_of_kept
from .._docker.sdk import docker
from .._host.local_session import LocalSession
from .._host.store import Store
from .._host.threads import in_threads
from .._model.errors import as_phrase, reason
from .._model.files import locked, write_atomically
from .._model.held_session import ContainerState
from .._model.plain_data import to_plain
from .._model.plan import SessionPlan
from .._model.session import MAIN1, is_session_id
from .._model.state_format import StateFormat
from .container_states import container_states

# The log file of an app in main1.
APP_LOG = "/var/log/backendai/{name}.log"

MAX_BYTES = 4 << 30
"""The size of the output of all sessions on an agent: of more, the sessions that ended first are removed."""

DAYS = 30

_LOCK_SECONDS = 30

# The readers share one interpreter, and each log has a time limit.
_PARALLEL_LOGS = 2

LOGS_SECONDS = 240
"""How long the logs of a session may take: of those that are not read then, only the end is kept."""


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
    existing: Sequence[Mapping[str, Any]],
    days: float = DAYS,
) -> dict[str, str]:
    """Keep the output of containers that have ended for ``days``; return what was lost, by hostname.

    A repetition replaces what was kept of the same containers. That nothing can be written does not keep a session from
    ending.
    """
    hostnames = {kernel.hostname for kernel in session.kernels}
    existing = [container for container in existing if _hostname(container) in hostnames]
    if not existing:
        return {}
    now, root = time.time(), store.root / "output"
    folder = root / session.plan.id
    try:
        root.mkdir(mode=0o700, exist_ok=True)
        with locked(root, _LOCK_SECONDS):
            folder.mkdir(mode=0o700, exist_ok=True)
            before = _load(folder)
            states = container_states(client, existing)
            kept = KeptOutput(session.plan, session.agent, now, now + days * 86400, states, {})
            if before:
                lost = {name: problem for name, problem in before.lost.items() if name not in states}
                kept = dataclasses.replace(kept, containers={**before.containers, **states}, lost=lost)
            write_atomically(folder / "session.json", _KEPT.dump(kept))
        until = time.monotonic() + LOGS_SECONDS

        def keep_logs(container: Mapping[str, Any]) -> str:
            return _keep_logs(client, folder, session.plan, container, until)

        problems = in_threads(keep_logs, existing, threads=_PARALLEL_LOGS)
        lost = {_hostname(container): problem for container, problem in zip(existing, problems) if problem}
        if lost:
            write_atomically(folder / "session.json", _KEPT.dump(dataclasses.replace(kept, lost={**kept.lost, **lost})))
    except OSError as error:
        problem = f"{folder} cannot be written ({error.strerror or error})"
        return {_hostname(container): problem for container in existing}
    # What has expired is removed by the next one.
    with contextlib.suppress(OSError):
        prune(store, session.plan.id)
    return lost


def _keep_logs(
    client: docker.APIClient, folder: Path, plan: SessionPlan, container: Mapping[str, Any], until: float
) -> str:
    """Write the logs of one container; return why some were lost, empty if none.

    After ``until``, by the monotonic clock, only the end of the container's own log is written.
    """
    apps = [app.name for app in plan.apps] if _hostname(container) == MAIN1 else []
    return "; ".join(filter(None, (_keep_log(client, folder, container, app, until) for app in ("", *apps))))


def _keep_log(client: docker.APIClient, folder: Path, container: Mapping[str, Any], app: str, until: float) -> str:
    """Write the log of an app, or of the container itself; return why it was lost, empty if it was not."""
    container_id = container["Id"]
    path = APP_LOG.format(name=app)
    loss = ""
    try:
        try:
            if not app and time.monotonic() > until:
                raise LogLimitError(f"the logs of the session took more than {LOGS_SECONDS} seconds")
            content = compressed_file(client, container_id, path) if app else compressed_log(client, container_id)
        except LogLimitError as error:
            content = compressed_log(client, container_id, END_LINES)
            loss = f"only the last {END_LINES:,} lines of its log were kept: {as_phrase(reason(error))}"
        if content is not None:
            write_atomically(folder / f"{_hostname(container)}@{container_id[:12]}@{app}.gz", content)
    except (LogReadError, OSError) as error:
        return as_phrase(reason(error))
    return loss


def _hostname(container: Mapping[str, Any]) -> str:
    return str(container["Labels"].get(labels.HOSTNAME, ""))


def _load(folder: Path) -> KeptOutput | None:
    """Return the description of a session's output; ``None`` if it is missing or damaged."""
    try:
        return _KEPT.load((folder / "session.json").read_bytes())
    except (OSError, ValueError):
        return None


def prune(store: Store, excluded: str = "") -> None:
    """Remove the output that has expired, and while there is too much, that of the sessions that ended first.

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
        oldest_first = sorted(folders, key=lambda folder: output.ended_at if (output := kept[folder]) else 0.0)
        for folder in oldest_first:
            output = kept[folder]
            too_much = sum(sizes.values()) > MAX_BYTES
            if folder.name not in held and (output is None or output.expires_at < time.time() or too_much):
                shutil.rmtree(folder)
                del sizes[folder]


def find_kept(store: Store, name: str, session_id: str) -> KeptOutput | None:
    """Return the output of the session with that id, or of the last one with that name."""
    root = store.root / "output"
    if session_id:
        return _load(root / session_id) if is_session_id(session_id) else None
    loaded: Iterable[KeptOutput | None] = map(_load, root.iterdir()) if root.is_dir() else ()
    matching = [output for output in loaded if output and output.plan.name == name]
    return max(matching, key=lambda output: (output.plan.created_at, output.plan.id), default=None)


def read_kept(store: Store, kept: KeptOutput, hostname: str, lines: int) -> dict[str, Any]:
    """Return this agent's part of an ended session, in the form of that of a running one, with when it ended."""
    folder = store.root / "output" / kept.plan.id
    logs = {name: _read_logs(folder, kept, name, lines) for name in kept.containers if hostname in ("", name)}
    return {
        "plan": kept.plan.to_dict(),
        "containers": to_plain(kept.containers),
        "logs": logs,
        "ended_at": kept.ended_at,
    }


def _read_logs(folder: Path, kept: KeptOutput, hostname: str, lines: int) -> dict[str, Any]:
    logs: dict[str, list[str]] = {"": []}
    problems = [kept.lost[hostname]] if hostname in kept.lost else []
    # A container that was replaced has logs of its own, which are older.
    for path in sorted(folder.glob(f"{hostname}@*.gz"), key=lambda path: path.stat().st_mtime):
        app = path.name.removesuffix(".gz").split("@", 2)[2]
        try:
            logs[app] = [*logs.get(app, []), *tail_of_kept(str(path), lines)][-lines:]
        except LogReadError as error:
            problems.append(str(error))
    texts = {app: json.dumps(log) for app, log in logs.items()}
    return {"log": texts.pop(""), "apps": texts, "error": "; ".join(problems) or None}
