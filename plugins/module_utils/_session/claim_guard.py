# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A session that this run has claimed: whether it still has it, and for how long."""

from __future__ import annotations

import dataclasses

from .._host.store import Held, Store, deadline
from .._model.errors import ClusterError


class NotClaimed(ClusterError):
    """This run has no claim here (any more); the message is one sentence."""


def claimed(store: Store, session_id: str, nonce: str) -> Held:
    """Return a session that this run may change: the run claimed it last, or the session is committed.

    Raises :class:`NotClaimed`.
    """
    held = store.session(session_id)
    if held is None:
        raise NotClaimed(f"the session {session_id} is not claimed on this agent: its claim expired, or was removed")
    if not held.committed and held.nonce != nonce:
        raise NotClaimed(f"session_name: {held.plan.name!r} was taken over by a later run; this one gives way")
    return held


def renew(store: Store, session_id: str, nonce: str, seconds: int) -> Held:
    """Let a claim of this run last for so many seconds at least; a session that is committed has no end.

    Raises :class:`NotClaimed`.
    """
    with store.lock():
        held, least = claimed(store, session_id, nonce), deadline(seconds)
        if held.expires_at is not None and held.expires_at < least:
            held = dataclasses.replace(held, expires_at=least)
            store.save(held)
        return held
