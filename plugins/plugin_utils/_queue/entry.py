# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The sessions that a manager remembers because the agents do not hold them, and which of those that wait goes first.

**No session starves.** Small sessions that fit would pass a large one that waits for ever. So a waiting session may be
passed at most ``patience`` times: by sessions of its resource group that came later and have no higher priority. Then
it is *due*, and such sessions do not start before it.

The argument: each pass is counted, and the last that is allowed makes the session due, so there is no further one.
Before a due session start only those of a higher priority, which is what priorities are for, and those that came
earlier, of which there are finitely many. Everything else that runs ends at some time and leaves its room free: the due
session starts as soon as what it asks for is there. It holds for every policy, for a policy only orders the others. It
needs one thing of the caller: a session that would not fit even if its resource group were empty, because an agent has
gone, is left out of ``entries`` when it is asked who has to wait behind whom.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ...module_utils._model.errors import ClusterError
from ...module_utils._model.files import dump_state, load_state
from ...module_utils._model.plain_data import from_plain, to_plain
from ...module_utils._model.plan import SessionPlan

# PENDING; a run is at work; to be taken away from agents; history. A running session is with the agents alone.
PENDING, CREATING, TERMINATING, TERMINATED = STATES = ("PENDING", "CREATING", "TERMINATING", "TERMINATED")

# How many times a waiting session may be passed.
DEFAULT_MAX_SKIPS = 16

_DAY = 86400.0


class CorruptEntryError(ClusterError, ValueError):
    """What was stored is no entry; the message is one sentence for the operator."""


@dataclasses.dataclass(frozen=True)
class Owner:
    """A process of a manager.

    ``host`` names the machine since it was booted. ``started`` is the start of the process in ticks since then, which
    tells it from a later one with the same ``pid``.
    """

    host: str
    pid: int
    started: str


@dataclasses.dataclass(frozen=True)
class QueueEntry:
    """A session as the manager remembers it.

    ``spec`` is the whole request, which may hold secrets: it is there while the session waits, and where a run starts
    one that has waited; a run that starts its own keeps the request to itself. ``record`` is what programs are told.
    ``passed`` counts the sessions of the same or a lower priority that came later and started first, ``attempts`` the
    starts that failed (those that were refused for want of room are not counted). ``owner`` is the run that starts it;
    ``plan`` is what that run starts: it takes room from when it is noted, which agents may not say yet.
    ``agents`` are those that have yet to be cleared. Times are in seconds since the epoch; ``pending_timeout`` is in
    seconds, 0 for none. ``priority`` is 0 to 100.

    Raises :class:`ValueError` for an unknown state, and where the state and ``spec`` do not belong together: what waits
    has a request, and what ends or has ended has none.
    """

    id: str
    name: str
    state: str
    user: str
    resource_group: str
    priority: int
    spec: dict[str, Any] | None
    record: dict[str, Any]
    enqueued_at: float
    updated_at: float
    skipped: int = 0
    attempts: int = 0
    owner: Owner | None = None
    agents: tuple[str, ...] = ()
    pending_timeout: int = 0
    plan: SessionPlan | None = None

    def __post_init__(self) -> None:
        if self.state not in STATES:
            raise ValueError(f"state is none of {', '.join(STATES)}")
        mismatch = self.state == PENDING if self.spec is None else self.state in (TERMINATING, TERMINATED)
        if mismatch:
            raise ValueError(f"the state {self.state} does not go {'without' if self.spec is None else 'with'} a spec")

    @property
    def arrival_key(self) -> tuple[float, str]:
        """What tells earlier from later; no two entries have the same."""
        return self.enqueued_at, self.id

    def to_json(self) -> str:
        """Return the entry as the text of a file; :meth:`from_json` gives it back."""
        return dump_state(to_plain(self))

    @classmethod
    def from_json(cls, content: bytes | str, path: str) -> QueueEntry:
        """Return the entry that :meth:`to_json` wrote; raise :class:`CorruptEntryError` where the file holds none."""
        try:
            return from_plain(cls, load_state(content), "the entry")
        except (ValueError, RecursionError) as error:
            raise CorruptEntryError(
                f"{path} is damaged ({error}): move it away, then create or end its session."
            ) from None


def sort_pending(
    entries: Iterable[QueueEntry], policy: str, shares: Mapping[str, float], max_skips: int = DEFAULT_MAX_SKIPS
) -> list[QueueEntry]:
    """Return the waiting sessions in the order in which to try them.

    Those that are due come first, by arrival. Then higher priorities come first, and within one the earliest arrival
    (``fifo``), the latest (``lifo``), or the user with the smallest dominant share (``drf``), then the earliest.
    ``shares`` are those of :func:`dominant_shares`, to be updated by the caller as sessions start; a user who is not in
    them has nothing.
    """

    def place(entry: QueueEntry) -> tuple[bool, int, float, float, str]:
        if entry.skipped >= max_skips:
            return False, 0, 0.0, *entry.arrival_key
        share = shares.get(entry.user, 0.0) if policy == "drf" else 0.0
        return True, -entry.priority, share, -entry.enqueued_at if policy == "lifo" else entry.enqueued_at, entry.id

    return sorted((entry for entry in entries if entry.state == PENDING), key=place)


def blocked_by(
    entries: Iterable[QueueEntry],
    candidate_priority: int,
    resource_group: str,
    max_skips: int = DEFAULT_MAX_SKIPS,
    own_id: str | None = None,
) -> QueueEntry | None:
    """Return the due session that a candidate has to wait behind, the earliest of them; ``None`` where it may start.

    The candidate is the entry ``own_id``, or a new session where there is none of that id. It waits behind due ones of
    its resource group that arrived earlier and whose priority is not lower than its own. One that a run is starting
    counts too, or it could lose its room to others again and again; once the agents hold its claim nobody can take
    that room, and the caller may leave it out.
    """
    listed = list(entries)
    own = next((entry for entry in listed if entry.id == own_id), None)
    ahead = [
        entry
        for entry in listed
        if entry.state in (PENDING, CREATING)
        and entry.resource_group == resource_group
        and entry.skipped >= max_skips
        and entry.priority >= candidate_priority
        and (own is None or entry.arrival_key < own.arrival_key)
    ]
    return min(ahead, key=lambda entry: entry.arrival_key, default=None)


def count_skips(entries: Iterable[QueueEntry], started: QueueEntry) -> list[QueueEntry]:
    """Return the entries that ``started`` has passed, their ``passed`` one higher: what the caller has to save.

    Those are the waiting sessions of its resource group that arrived earlier and whose priority is not lower. To count
    in the same step that notes a session as starting keeps the promise when several start at once: a start that fails
    afterwards has then been counted too, which makes no one wait longer.
    """
    return [
        dataclasses.replace(entry, skipped=entry.skipped + 1)
        for entry in entries
        if entry.state == PENDING
        and entry.resource_group == started.resource_group
        and entry.priority >= started.priority
        and entry.arrival_key < started.arrival_key
    ]


def dominant_shares(usage: Mapping[str, Mapping[str, float]], capacity: Mapping[str, float]) -> dict[str, float]:
    """Return each user's dominant share: the largest fraction that the user has of any one slot's capacity.

    Both are amounts by slot; what there is no capacity of is left out. After Ghodsi et al., "Dominant Resource
    Fairness", NSDI 2011.
    """
    return {
        user: max((amount / capacity[slot] for slot, amount in slots.items() if capacity.get(slot)), default=0.0)
        for user, slots in usage.items()
    }


def mark_pending(entry: QueueEntry, record: dict[str, Any], now: float, *, failed: bool = False) -> QueueEntry:
    """Return the session as one that waits (again); ``failed`` says that a start of it has failed."""
    attempts = entry.attempts + failed
    return dataclasses.replace(
        entry, state=PENDING, record=record, updated_at=now, attempts=attempts, owner=None, agents=(), plan=None
    )


def mark_creating(entry: QueueEntry, owner: Owner, now: float, plan: SessionPlan | None = None) -> QueueEntry:
    """Return the session as one that ``owner`` starts as the ``plan`` says."""
    return dataclasses.replace(entry, state=CREATING, owner=owner, updated_at=now, plan=plan)


def mark_terminating(entry: QueueEntry, record: dict[str, Any], agents: Iterable[str], now: float) -> QueueEntry:
    """Return the session as one that has to be taken away from ``agents``; its request and its owner are dropped."""
    return dataclasses.replace(
        entry, state=TERMINATING, spec=None, record=record, updated_at=now, owner=None, agents=tuple(agents), plan=None
    )


def mark_terminated(entry: QueueEntry, record: dict[str, Any], now: float) -> QueueEntry:
    """Return the session as history; its request and its owner are dropped."""
    return dataclasses.replace(
        entry, state=TERMINATED, spec=None, record=record, updated_at=now, owner=None, agents=(), plan=None
    )


def reserved_plans(entries: Iterable[QueueEntry], held_ids: Collection[str], own_id: str = "") -> list[SessionPlan]:
    """Return the plans that other runs carry out and no agent shows yet; ``held`` are the ids that agents show."""
    others = (entry for entry in entries if entry.id != own_id and entry.id not in held_ids)
    return [entry.plan for entry in others if entry.state == CREATING and entry.owner and entry.plan]


def timed_out(entry: QueueEntry, now: float) -> bool:
    """Return whether a session has waited for as long as it may."""
    return entry.state == PENDING and 0 < entry.pending_timeout <= now - entry.enqueued_at


def abandoned(entry: QueueEntry, alive: bool) -> bool:
    """Return whether the run that was starting a session is gone (not ``alive``): the session is :func:`waiting` then.

    What that run left on agents is a claim, which ends by itself or is taken over by the next start.
    """
    return entry.state == CREATING and not alive


def expired_history(entries: Iterable[QueueEntry], now: float, days: float) -> list[QueueEntry]:
    """Return what ended more than so many days ago: what the caller has to remove."""
    return [entry for entry in entries if entry.state == TERMINATED and now - entry.updated_at > days * _DAY]
