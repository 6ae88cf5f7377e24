# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads the logs of a session's containers on an agent, whether they run or have ended."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from .._docker import containers, labels
from .._docker.logs import LogReadError, tail_of, tail_of_file
from .._docker.sdk import docker
from .._host.local_session import LocalSession
from .._host.threads import in_threads
from .._model.plain_data import to_plain
from .._model.plan import Kernel
from .._model.session import MAIN1, App
from .container_states import container_states
from .output import APP_LOG


def read_logs(
    client: docker.APIClient, session: LocalSession, hostname: str, lines: int, since: int = 0
) -> dict[str, Any]:
    """Return this agent's part of a session as plain data, with the last ``lines`` of each log.

    ``logs`` has for each container here, by hostname: its ``log``, the logs of its ``apps`` by name, and an ``error``
    for logs that could not be read. A log is a list of lines as JSON text, so that it arrives as it is: in the text of
    a reply, control characters are escaped. With a ``hostname``, only that container is included; with
    ``since``, in seconds since the epoch, only later lines of containers.
    """
    existing = containers.find_containers(client, session.plan.id)
    ids = {container["Labels"].get(labels.HOSTNAME): container["Id"] for container in existing}
    selected = [kernel for kernel in session.kernels if kernel.hostname in ids and hostname in ("", kernel.hostname)]

    def read_kernel(kernel: Kernel) -> dict[str, Any]:
        apps = session.plan.apps if kernel.hostname == MAIN1 else ()
        return _container_logs(client, ids[kernel.hostname], () if since else apps, lines, since)

    logs = dict(zip((kernel.hostname for kernel in selected), in_threads(read_kernel, selected)))
    return {"plan": session.plan.to_dict(), "containers": to_plain(container_states(client, existing)), "logs": logs}


def _container_logs(
    client: docker.APIClient, container: str, apps: tuple[App, ...], lines: int, since: int
) -> dict[str, Any]:
    """Return all logs of one container."""
    log, error = _read_or_error(partial(tail_of, client, container, lines, timestamps=True, since=since))
    errors, app_logs = [error], {}
    for app in apps:
        path = APP_LOG.format(name=app.name)
        app_log, error = _read_or_error(partial(tail_of_file, client, container, path, lines))
        errors.append(error)
        if app_log is not None:
            app_logs[app.name] = json.dumps(app_log)
    return {"log": json.dumps(log or []), "apps": app_logs, "error": "; ".join(filter(None, errors)) or None}


def _read_or_error(read: Callable[[], list[str] | None]) -> tuple[list[str] | None, str]:
    """Return a log, or an error message if it cannot be read."""
    try:
        return read(), ""
    except LogReadError as error:
        return None, str(error)
