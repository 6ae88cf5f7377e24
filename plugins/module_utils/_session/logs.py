# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads the logs of a session's containers on an agent, whether they run or have ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from .._docker.logs import LogReadError, tail_of
from .._docker.sdk import docker
from .._host.local_session import LocalSession
from .._host.store import Store
from .._model.plain_data import to_plain
from .._model.session import MAIN1
from .app_logs import AppLogs
from .container_states import container_states
from .output import find_kept, kept_reads
from .ownership import own_containers
from .reply_logs import Read, ReplyLogs


def read_logs(
    client: docker.APIClient,
    store: Store,
    session: LocalSession,
    hostname: str,
    lines: int,
    reply: ReplyLogs,
    since: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Return this agent's part of a session as plain data, with the last ``lines`` of each log.

    ``batch`` is whether it has a command, with which it ends. ``logs`` has for each container here, by hostname: its
    ``log``, the logs of its ``apps`` by name, and an ``error`` for logs that could not be read. With a ``hostname``,
    only that container is included; with ``since``, in seconds since the epoch by hostname, only later lines of
    containers, and no logs of apps. Of containers that somebody has removed after their command had ended, the logs are
    those that were kept.
    """
    existing = own_containers(client, store, session)
    ids = {hostname: container["Id"] for hostname, container in existing.items()}
    selected = [kernel for kernel in session.kernels if kernel.hostname in ids and hostname in ("", kernel.hostname)]
    reads: dict[str, dict[str, Read]] = {}
    for kernel in selected:
        container, from_then = ids[kernel.hostname], (since or {}).get(kernel.hostname, 0)
        own = partial(tail_of, client, container, lines, timestamps=True, since=from_then)
        logs = {"": partial(_read_or_error, own)}
        if kernel.hostname == MAIN1 and since is None:
            apps = AppLogs(store, session.plan.id)
            of_apps = {app.name: partial(apps.tail, app.name, lines) for app in session.plan.apps}
            logs |= {name: partial(_read_or_error, read) for name, read in of_apps.items()}
        reads[kernel.hostname] = {**logs}
    states, kept = container_states(client, store, session, existing), find_kept(store, session.plan.id)
    if kept:
        removed = [name for name in states if name not in ids and hostname in ("", name)]
        reads |= kept_reads(store, kept, removed, lines)
    return {
        "id": session.plan.id,
        "batch": bool(session.plan.command),
        "containers": to_plain(states),
        "logs": reply.collect(reads),
    }


def _read_or_error(read: Callable[[], list[str] | None]) -> tuple[list[str] | None, str]:
    """Return a log, or an error message if it cannot be read."""
    try:
        return read(), ""
    except LogReadError as error:
        return None, str(error)
