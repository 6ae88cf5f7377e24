# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Measures what sessions on an agent use at this moment: all of them over the same second."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Sequence

from .._docker.sdk import docker
from .._host.container_use import cpu_seconds, gpu_loads
from .._host.local_session import LocalSession
from .._host.store import Store
from .._model.errors import EXPECTED
from .._model.use import Load
from .look import running_pids

SECONDS = 1.0


def measure_loads(client: docker.APIClient, store: Store, sessions: Sequence[LocalSession]) -> dict[str, Load]:
    """Return the loads of those sessions that run, by their ids. A container that ends meanwhile is left out.

    So is a session whose containers the engine cannot read: that is no failure of the agent, nor of other sessions.
    """
    pids: dict[str, dict[str, int]] = {}
    for session in sessions:
        with contextlib.suppress(*EXPECTED):
            if session.committed:
                pids[session.plan.id] = running_pids(client, store, session)
    every = [pid for found in pids.values() for pid in found.values()]
    began, before = time.monotonic(), _cpu_of(every)
    time.sleep(SECONDS)
    seconds, after = time.monotonic() - began, _cpu_of(every)
    used = {pid: (total - before[pid]) / seconds for pid, total in after.items() if pid in before}
    gpus = gpu_loads() or {}
    return {
        session.plan.id: Load(
            round(sum(used.get(pid, 0.0) for pid in pids[session.plan.id].values()), 2),
            tuple(gpus[device] for device in _devices(session) if device in gpus),
        )
        for session in sessions
        if session.plan.id in pids
    }


def _cpu_of(pids: Iterable[int]) -> dict[int, float]:
    found = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            found[pid] = cpu_seconds(pid)
    return found


def _devices(session: LocalSession) -> list[str]:
    return [device for pinned in session.pinned.values() for device in pinned.device_ids]
