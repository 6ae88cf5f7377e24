# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Starts the command of a batch session once all agents have committed, and waits for its end."""

from __future__ import annotations

import time

from .._docker.sdk import docker
from .._host.store import Store
from .._host.units import OUTPUT, start_units
from .._model.change import Change
from .._model.session import MAIN1, STOPPED
from .claim_guard import ClaimLostError, require_claim
from .container_states import container_states
from .ownership import own_containers

POLL_SECONDS = 0.5


def start_command(store: Store, session_id: str, nonce: str, *, check_mode: bool) -> list[Change]:
    """Start the session's command in the containers here that run it; a command is started only once.

    Raises :class:`ClaimLostError` when a later run took the session over, or the session is not committed yet.
    """
    with store.session_lock(session_id):
        session = require_claim(store, session_id, nonce)
        name = session.plan.name
        if not session.committed:
            raise ClaimLostError(
                f"session_name: {name!r} is not committed on this agent, so its command may not start yet"
            )
        hostnames = [kernel.hostname for kernel in session.kernels if session.plan.runs_command(kernel.hostname)]
        pending = [hostname for hostname in hostnames if hostname not in store.started_commands(session)]
        for hostname in pending if not check_mode else ():
            store.start_marker(session_id, hostname).touch(mode=0o600)
    if pending and not check_mode:
        start_units([OUTPUT.format(session_id=session_id)])
    return [Change(f"command of {name} in {hostname}", None, "started") for hostname in pending]


def wait_for_end(client: docker.APIClient, store: Store, session_id: str, seconds: float) -> tuple[bool, int | None]:
    """Wait at most that many seconds for main1 to end; return whether it has ended, and its exit code.

    A container or a session that does not exist here counts as ended, without an exit code.
    """
    until = time.monotonic() + seconds
    while True:
        session = store.session(session_id)
        own = own_containers(client, store, session) if session else {}
        main = container_states(client, store, session, own).get(MAIN1) if session else None
        if main is None:
            return True, None
        if main.status in STOPPED:
            return True, main.exit_code
        remaining = until - time.monotonic()
        if remaining <= 0:
            return False, None
        time.sleep(min(POLL_SECONDS, remaining))
