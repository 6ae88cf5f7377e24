# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whose a session is, who may act on it, and what others see of it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import RefusedError
from .identity import Accounts, Caller

ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
LIVE = ("PENDING", "CREATING", "RUNNING", "DEGRADED")

# What others may see of a session: neither errors nor reasons, which quote what its owner wrote, nor ways into it.
_SHOWN = (
    "id",
    "name",
    "status",
    "cluster_mode",
    "cluster_size",
    "requested_cluster_mode",
    "resource_group",
    "user",
    "uid",
    "image",
    "resources",
    "created_at",
    "started_at",
    "ended_at",
    "ends_at",
    "queue_position",
    "gpu_models",
)
_SHOWN_OF_KERNELS = ("id", "role", "index", "rank", "hostname", "agent", "status")


@dataclasses.dataclass(frozen=True)
class KnownSession:
    """What is known of a session. The owner is who has both ``user`` and ``uid``; a session without a uid has none.

    One that is ``ending`` does not live any more, and is still to be removed from agents.
    """

    id: str
    name: str
    user: str | None
    uid: int | None
    live: bool
    since: float = 0.0
    ending: bool = False

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> KnownSession | None:
        """Return what a record says; ``None`` if it has no id."""
        session_id, uid = record.get("id"), record.get("uid")
        if not isinstance(session_id, str) or not ID.fullmatch(session_id):
            return None
        return cls(
            session_id,
            str(record.get("name") or ""),
            record["user"] if isinstance(record.get("user"), str) else None,
            uid if isinstance(uid, int) and not isinstance(uid, bool) else None,
            record.get("status") in LIVE,
            float(record.get("created_at") or 0.0),
        )

    def belongs_to(self, caller: Caller) -> bool:
        """Return whether the caller is the owner."""
        return (self.user, self.uid) == (caller.name, caller.uid)

    def has_owner(self, accounts: Accounts) -> bool:
        """Return whether the account of the owner still exists, under the same name and uid."""
        account = accounts.by_name(self.user) if self.user else None
        return account is not None and account.uid == self.uid


def may_act(session: KnownSession, caller: Caller) -> bool:
    """Return whether a caller may see all of a session, end it, and enter it."""
    return caller.operator or session.belongs_to(caller)


def find_session(
    sessions: Iterable[KnownSession], word: str, caller: Caller, *, ended: bool = False
) -> KnownSession | None:
    """Return the session of an id, else of a name, that the caller may act on; the caller's own first, if it is a name.

    If none of that name lives, it is the last one that is ending, or with ``ended`` the last one that has ended, too.
    Raises :class:`RefusedError` if several live ones have the name.
    """
    known = [session for session in sessions if may_act(session, caller)]
    named = [session for session in known if session.id == word] or [
        session for session in known if session.name == word
    ]
    live = [session for session in named if session.live]
    own = [session for session in live if session.belongs_to(caller)]
    chosen = own or live
    if len({session.id for session in chosen}) > 1:
        ids = ", ".join(sorted(session.id for session in chosen))
        raise RefusedError(f"several sessions are named {word}; use one of the ids {ids}.")
    if chosen:
        return chosen[0]
    past = [session for session in named if ended or session.ending or session.id == word]
    return max(past, key=lambda session: (session.since, session.id), default=None)


def not_found(word: str, caller: Caller) -> RefusedError:
    """Return the refusal, which is the same for a session that does not exist and one of somebody else."""
    return RefusedError(
        f"there is no session {word}{'' if caller.operator else ' of yours'}; backendai list shows what there is."
    )


def visible_records(records: Iterable[Mapping[str, Any]], caller: Caller, *, everybody: bool) -> list[dict[str, Any]]:
    """Return the records that a caller sees: own ones, and with ``everybody`` what may be seen of others.

    What only agents say is for operators.
    """
    seen = []
    for record in records:
        session = KnownSession.from_record(record)
        if session is None:
            continue
        if everybody and caller.operator:
            seen.append(dict(record))
        elif not record.get("recorded"):
            continue
        elif session.belongs_to(caller):
            seen.append(dict(record))
        elif everybody:
            seen.append(redact(record))
    return seen


def redact(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of somebody else's session, with all of its fields, and those empty that are not to be seen."""
    kernels = [{name: kernel.get(name) for name in _SHOWN_OF_KERNELS} for kernel in record.get("kernels") or ()]
    empty = {"kernels": kernels, "apps": [], "mounts": []}
    return {name: record[name] if name in _SHOWN else empty.get(name) for name in record}
