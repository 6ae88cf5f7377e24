# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How large a reply may be, and what becomes of a result that is larger."""

from __future__ import annotations

import json
from typing import Any

from .._model.errors import ClusterError

MAX_REPLY = 16 << 20
"""How many bytes of a reply the control node reads."""

# What is around the result in a reply.
_ENVELOPE = 1 << 16

_NO_DIFF = "(what changes is too much to be shown)\n"


class ReplyTooLargeError(ClusterError):
    """A result is larger than a reply may be; the message is one sentence."""


def within_limit(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result that fits into a reply: without its diff if it must be, then without what is most of it.

    That is the result of a session, the largest first: each of these becomes an error of that session, and the others
    arrive. Raises :class:`ReplyTooLargeError` for a result that is not of sessions.
    """
    if _fits(result):
        return result
    if result.get("diff"):
        result = {**result, "diff": {"before": "", "after": _NO_DIFF}}
    sessions: dict[str, Any] = dict(result.get("sessions") or {})
    by_size = sorted(sessions, key=lambda session_id: len(json.dumps(sessions[session_id])))
    while not _fits({**result, "sessions": sessions} if sessions else result):
        if not by_size:
            raise ReplyTooLargeError(f"its result is larger than {MAX_REPLY >> 20} MiB, of which a reply has no more")
        problem = f"the result of this session is larger than a reply may be, {MAX_REPLY >> 20} MiB."
        sessions[by_size.pop()] = {"failed": problem}
    return {**result, "sessions": sessions} if sessions else result


def _fits(result: dict[str, Any]) -> bool:
    return len(json.dumps(result)) + _ENVELOPE <= MAX_REPLY
