# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks the queue again while time passes: sessions that wait, and owners whose accounts are removed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import RefusedError
from ..policy import Policy
from .identity import Accounts, find_caller
from .ownership import KnownSession
from .queue import PENDING, session_of_entry
from .request import check_waiting

USERS = "no_new_privileges"
"""The field of a stored request that says that a user of the command has made it."""


def find_disallowed(
    entries: Iterable[Mapping[str, Any]], policy: Policy, accounts: Accounts, users_group: str, operators_group: str
) -> dict[str, str]:
    """Return why sessions that wait may not start any more, by their ids. Those of operators' own runs always may."""
    reasons = {}
    for entry in entries:
        spec, known = entry.get("spec"), session_of_entry(entry)
        if entry.get("state") != PENDING or known is None or not isinstance(spec, dict) or not spec.get(USERS):
            continue
        try:
            if not known.has_owner(accounts):
                raise RefusedError(f"the account of its owner, {known.user}, is gone.")
            caller = find_caller(str(known.uid), accounts, users_group, operators_group)
            reason = check_waiting(spec, policy, caller)
        except RefusedError as error:
            reason = str(error)
        if reason:
            reasons[known.id] = reason
    return reasons


def find_orphans(
    live: Sequence[KnownSession], accounts: Accounts, since: Mapping[str, Any], now: float, after: int
) -> tuple[dict[str, float], list[KnownSession]]:
    """Return since when the owners of live sessions are known to be gone, by id, and the sessions that end now.

    They end ``after`` that many seconds; 0 for never. A session that never had a uid has no owner who could be gone.
    """
    gone = [session for session in live if session.uid is not None and not session.has_owner(accounts)]
    first = {session.id: min(_moment(since.get(session.id), now), now) for session in gone}
    return first, [session for session in gone if after and now - first[session.id] >= after]


def _moment(value: Any, now: float) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else now
