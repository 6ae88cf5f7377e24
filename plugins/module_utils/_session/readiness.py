# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Waits until the entrypoints of started containers are done, bootstrap scripts included."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from .._docker.containers import pid_of
from .._docker.logs import LogReadError, tail_of
from .._docker.sdk import docker
from .._host.local_session import LocalSession
from .._host.processes import process_start_time
from .._host.store import Store
from .._model.errors import ClusterError
from .._model.printable import printable

# Marker file that the entrypoint writes when it is done, in the container's own folder on the agent. Contains the start
# time of PID 1.
READY = "own/ready"

# The number of log lines that are shown of a container that failed, and the number of their characters.
LAST_LINES, LINE_LENGTH = 3, 300

POLL_SECONDS = 0.05


class NotReadyError(ClusterError):
    """A container failed to start. The message is one sentence with its name and the reason."""

    def __init__(self, client: docker.APIClient, container: str, problem: str) -> None:
        super().__init__(f"container {container} {problem}")
        self.printed = tuple(f"{container}: {line}" for line in _last_lines(client, container))


def ready_markers(store: Store, session: LocalSession, names: Collection[str]) -> dict[str, Path]:
    """Return the marker files of these containers of a session, by their names."""
    return {
        kernel.container: store.homes.folder(session.plan.id, kernel.hostname) / READY
        for kernel in session.kernels
        if kernel.container in names
    }


def await_ready(
    client: docker.APIClient, markers: Mapping[str, Path], until: float, patience: float | None = None
) -> bool:
    """Wait until containers are ready, given their marker files by name; ``until`` is a time of the monotonic clock.

    After ``patience`` seconds it returns ``False``. Raises :class:`NotReadyError` for the first container that ends, is
    removed, or takes longer than ``until``.
    """
    impatient = time.monotonic() + patience if patience is not None else until
    remaining = {name: _first_process(client, name) for name in markers}
    while True:
        remaining = {name: process for name, process in remaining.items() if not _is_marked(markers[name], process)}
        if not remaining:
            return True
        if time.monotonic() >= until:
            slow = next(iter(remaining))
            raise NotReadyError(
                client,
                slow,
                "did not become ready in time; session_bootstrap_script must finish within session_claim_ttl",
            )
        if time.monotonic() >= impatient:
            return False
        time.sleep(POLL_SECONDS)
        remaining = {
            name: process if _runs(process) else _first_process(client, name) for name, process in remaining.items()
        }


class _Process(NamedTuple):
    """A process of this host; ``started`` is its :func:`process_start_time`."""

    pid: int
    started: str


def _first_process(client: docker.APIClient, name: str) -> _Process:
    """Return the first process of a container; raises :class:`NotReadyError` if it has none."""
    try:
        pid = pid_of(client, name)
        if pid:
            return _Process(pid, process_start_time(pid))
    except (docker.errors.NotFound, ProcessLookupError, FileNotFoundError):
        pass
    raise NotReadyError(client, name, "ended while it started")


def _runs(process: _Process) -> bool:
    """Return whether a process still runs, without an engine call."""
    try:
        return process_start_time(process.pid) == process.started
    except (ProcessLookupError, FileNotFoundError):
        return False


def _is_marked(marker: Path, process: _Process) -> bool:
    """Return whether the ready marker is from this start: right after a restart the previous one still exists.

    Times cannot be compared: the engine records a start after it happened, and the entrypoint may be faster.
    """
    try:
        # The container controls the file: it may be a link or a FIFO.
        handle = os.open(marker, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(handle) as file:
            return file.read(32).strip() == process.started
    except (OSError, UnicodeDecodeError):
        return False


def _last_lines(client: docker.APIClient, name: str) -> list[str]:
    try:
        return [printable(line)[:LINE_LENGTH] for line in tail_of(client, name, LAST_LINES)]
    except LogReadError as error:
        return [str(error)]
