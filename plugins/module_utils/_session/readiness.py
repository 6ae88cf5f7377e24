# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Waiting for containers that were started: their entrypoint has to get through, a bootstrap script included."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterable

from .._docker.containers import pid_of
from .._docker.logs import LogReadError, tail_of
from .._docker.sdk import docker
from .._host.processes import process_start_time
from .._model.errors import ClusterError

# What the entrypoint makes in its container once it is through: in it stands when the first process started.
READY = "/var/lib/backendai/ready"

# How much of a container's log tells why it ended.
LAST_LINES = 3

POLL_SECONDS = 0.05


class NotReadyError(ClusterError):
    """A container did not get through its start; the message says which and why, in one sentence."""


def await_ready(client: docker.APIClient, names: Iterable[str], until: float) -> None:
    """Wait until containers are through their start, by their names; ``until`` is a time of the monotonic clock.

    Raises :class:`NotReady` for the first that ends, is removed, or takes longer.
    """
    remaining = {name: _first_process(client, name) for name in names}
    while True:
        remaining = {name: process for name, process in remaining.items() if not _has_ready_marker(process)}
        if not remaining:
            return
        if time.monotonic() >= until:
            slow = next(iter(remaining))
            raise NotReadyError(
                f"container {slow} is not through its start: session_bootstrap_script, if there is one, has to be"
                f" done within session_claim_ttl{_log_tail(client, slow)}"
            )
        time.sleep(POLL_SECONDS)
        remaining = {
            name: process if _runs(process) else _first_process(client, name) for name, process in remaining.items()
        }


@dataclasses.dataclass(frozen=True)
class _Process:
    """A process of this host; ``started`` is as :func:`process_start_time` has it."""

    pid: int
    started: str


def _first_process(client: docker.APIClient, name: str) -> _Process:
    """Return the first process of a container; raises :class:`NotReady` where it has none."""
    try:
        pid = pid_of(client, name)
        if pid:
            return _Process(pid, process_start_time(pid))
    except (docker.errors.NotFound, ProcessLookupError, FileNotFoundError):
        pass
    raise NotReadyError(f"container {name} ended while it started{_log_tail(client, name)}")


def _runs(process: _Process) -> bool:
    """Return whether a process still runs. That costs nothing, and to ask the engine each time would."""
    try:
        return process_start_time(process.pid) == process.started
    except (ProcessLookupError, FileNotFoundError):
        return False


def _has_ready_marker(process: _Process) -> bool:
    """Return whether the mark is of this start: one that is started again has its last one for a moment.

    Clocks would not tell: the engine notes a start when it is over, and the entrypoint may be faster.
    """
    try:
        # The file is the container's: it may be anything.
        handle = os.open(f"/proc/{process.pid}/root{READY}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(handle) as mark:
            return mark.read(32).strip() == process.started
    except (OSError, UnicodeDecodeError):
        return False


def _log_tail(client: docker.APIClient, name: str) -> str:
    try:
        lines = tail_of(client, name, LAST_LINES)
    except LogReadError as error:
        lines = [str(error)]
    return f"; its log ends with: {' / '.join(lines)}" if lines else ""
