# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Verifies an agent's part of a session without changing anything."""

from __future__ import annotations

from typing import Any

from .._docker import containers
from .._docker.sdk import docker
from .._host.local_session import LocalSession
from .._host.store import Store
from .._model.plain_data import to_plain
from .connectivity import Running, check_pairs
from .container_states import container_states
from .drift import find_drift
from .ownership import own_containers


def verify(client: docker.APIClient, store: Store, session: LocalSession, seconds: int) -> dict[str, Any]:
    """Return the state of this agent's part of a session, as plain data.

    ``drift`` has an entry for each change of a repair, ``pairs`` is the result of :func:`check_pairs`. Reachability
    checks are retried for ``seconds``.
    """
    with store.session_lock(session.plan.id):
        drift = find_drift(client, store, session)
    existing = own_containers(client, store, session)
    running = {
        hostname: Running(container["Id"], pid)
        for hostname, container in existing.items()
        if (pid := containers.pid_of(client, container["Id"]))
    }
    return {
        "plan": session.plan.to_dict(),
        "committed": session.committed,
        "expired": session.expired,
        "containers": to_plain(container_states(client, store, session, existing)),
        "drift": [{"subject": change.subject, "actual": change.before, "expected": change.after} for change in drift],
        "pairs": check_pairs(client, session, running, seconds),
    }
