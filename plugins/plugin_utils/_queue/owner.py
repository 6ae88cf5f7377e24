# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which process starts a session, and whether it still exists."""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path

from ansible.errors import AnsibleActionFail

from ...module_utils._host.processes import boot_id, process_start_time
from .entry import CREATING, Owner, QueueEntry, mark_pending

OWNER_TIMEOUT = 7200.0
"""Seconds after which a run on another machine that shares the queue counts as dead."""


def current_owner(pid: int | None = None) -> Owner:
    """Return this process: it starts a session from beginning to end, and undoes that if it is interrupted."""
    pid = pid or os.getpid()
    try:
        return Owner(_host(), pid, process_start_time(pid))
    except OSError as error:
        raise AnsibleActionFail(f"the run cannot be found in /proc (process {pid}): {error.strerror}.") from None


def judge_owner(entry: QueueEntry) -> QueueEntry:
    """Return an entry of a dead run without its owner, PENDING again if nobody learned of the failure; others as is.

    Claims that the run left on agents expire, or are taken over by the next start.
    """
    if entry.state != CREATING or owner_is_alive(entry, OWNER_TIMEOUT):
        return entry
    ownerless = dataclasses.replace(entry, owner=None)
    return mark_pending(ownerless, entry.record, entry.updated_at) if entry.waits_for_start else ownerless


def owner_is_alive(entry: QueueEntry, timeout: float) -> bool:
    """Return whether the run that starts a session still exists.

    A process that cannot be checked, because it is on another machine that shares the folder, or hidden as another
    user's, counts as alive if the entry was updated within the last ``timeout`` seconds.
    """
    owner = entry.owner
    if owner is None:
        return False
    if owner.host == _host():
        try:
            return process_start_time(owner.pid) == owner.started
        except (FileNotFoundError, ProcessLookupError):
            return False
        except PermissionError:
            pass
    elif owner.host.split()[:2] == _host().split()[:2] and owner.host.split()[2:3] != _host().split()[2:3]:
        # This machine has been rebooted since.
        return False
    return time.time() - entry.updated_at < timeout


def _host() -> str:
    """Return the identity of this machine, its boot and its PID namespace: a container has process ids of its own."""
    try:
        machine = Path("/etc/machine-id").read_text().strip()
    except OSError:
        machine = ""
    return f"{os.uname().nodename} {machine or '-'} {boot_id()} {os.readlink('/proc/self/ns/pid')}"
