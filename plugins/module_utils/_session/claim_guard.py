# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks that a run still holds its claim on a session, and extends it."""

from __future__ import annotations

import dataclasses

from .._host.deadline import deadline_in
from .._host.local_session import LocalSession
from .._host.store import Store
from .._model.errors import ClusterError


class ClaimLostError(ClusterError):
    """This run does not, or no longer, hold the claim here. The message is one sentence."""


def require_claim(store: Store, session_id: str, nonce: str) -> LocalSession:
    """Return a session that this run may change: it holds the claim, or the session is committed.

    Raises :class:`ClaimLostError`.
    """
    session = store.session(session_id)
    if session is None:
        raise ClaimLostError(
            f"the session {session_id} is not claimed on this agent: its claim expired, or was removed"
        )
    if not session.committed and session.nonce != nonce:
        raise ClaimLostError(f"session_name: {session.plan.name!r} was taken over by a later run, so this one stops")
    return session


def renew_claim(store: Store, session_id: str, nonce: str, seconds: int) -> LocalSession:
    """Extend a claim of this run to at least that many seconds from now; a committed session does not expire.

    Raises :class:`ClaimLostError`.
    """
    with store.lock():
        session = require_claim(store, session_id, nonce)
        if session.expires_at is not None and session.expires_at.seconds_left < seconds:
            session = dataclasses.replace(session, expires_at=deadline_in(seconds))
            store.save(session)
        return session
