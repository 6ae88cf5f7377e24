# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Queue entries, their state transitions, and the order in which PENDING sessions are tried.

**No session starves.** Without a limit, small sessions that fit would be started before a large one forever. So a
PENDING session may be skipped at most ``max_skips`` times: by sessions of its resource group that arrived later and do
not have a higher priority. Then it is *due*, and such sessions do not start before it.

The argument: each skip is counted, and the last one that is allowed makes the session due, so there is no further one.
Only sessions of a higher priority, which is what priorities are for, and those that arrived earlier, of which there are
finitely many, start before a due session. Every other session ends at some time and releases its capacity: the due
session starts as soon as the capacity that it requests is free. This holds for every policy, since a policy only orders
the sessions that are not due. The caller has one obligation: a session that would not fit even if its resource group
were empty, because an agent was removed, must not be in ``entries`` for :func:`blocked_by`.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ...module_utils._model.errors import ClusterError, as_phrase
from ...module_utils._model.images import ImageIdentity
from ...module_utils._model.plan import SessionPlan
from ...module_utils._model.state_format import StateFormat
from .._report.record import check_record
from .._request.spec import check_spec, spec_from_dict

# Waits for capacity; is started by a run; was started from this queue; has to be removed from agents; history.
PENDING, CREATING, RUNNING, TERMINATING, TERMINATED = STATES = (
    "PENDING",
    "CREATING",
    "RUNNING",
    "TERMINATING",
    "TERMINATED",
)

# How many times a PENDING session may be skipped.
DEFAULT_MAX_SKIPS = 16

# Options that make no difference to whether there is room, and often differ where the rest of a request is equal.
IRRELEVANT = frozenset({
    "name", "env", "authorized_keys", "command", "command_scope", "bootstrap_script", "apps", "uid", "gid",
    "failure_policy", "priority", "pending_timeout", "stop_grace", "stop_command", "max_lifetime", "idle_timeout",
    "no_new_privileges",
})  # fmt: skip

_DAY = 86400.0


class CorruptEntryError(ClusterError, ValueError):
    """The file does not contain a valid entry. The message is one sentence for the operator."""


@dataclasses.dataclass(frozen=True)
class Owner:
    """A process of a control node.

    ``host`` identifies the machine and its boot. ``started`` is the start of the process in ticks since that boot,
    which distinguishes it from a later process with the same ``pid``. Raises :class:`ValueError` for a ``pid`` that no
    process has.
    """

    host: str
    pid: int
    started: str

    def __post_init__(self) -> None:
        if not 0 < self.pid < 1 << 31:
            raise ValueError("no process has such a number")


@dataclasses.dataclass(frozen=True)
class Head:
    """What a run needs of most entries of a long queue, without the request and the record.

    It is that of a session that waits or has ended, and that has no plan. The fields are attributes of the entry.
    """

    id: str
    name: str
    state: str
    user: str
    resource_group: str
    priority: int
    enqueued_at: float
    updated_at: float
    skipped: int
    attempts: int
    pending_timeout: int
    attended: bool
    user_uid: int | None
    request_key: str
    wanted_images: tuple[str, ...]
    wanted_paths: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class QueueEntry:
    """A session of a control node: in its queue, running, or ended.

    It belongs to ``user``, whose uid on the control node is ``user_uid``, if that is known.
    ``spec`` is the whole request, which may contain secrets, and ``plan`` what the last run started: both are kept
    until the session ends, so that a repair needs no word of an agent. The plan reserves capacity as soon as the entry
    is saved, before the facts of the agents show it. ``images`` are those of a RUNNING session, by name. ``record`` is
    the session's record. ``skipped`` counts the sessions of the same or a lower priority that arrived later and started
    first, ``attempts`` the failed starts (starts refused for lack of capacity are not counted). ``owner`` is the run
    that starts the session; if it is ``attended``, somebody learns of a failure, so the session does not wait for
    another start. ``agents`` are the agents from which the session is still to be removed. Times are in seconds since
    the epoch; ``pending_timeout`` is in seconds, 0 for none. ``priority`` is 0 to 100.

    Raises :class:`ValueError` for an unknown state, and for a state that contradicts ``spec``: a PENDING session has a
    request, a TERMINATING or TERMINATED one has none.
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
    attended: bool = False
    images: dict[str, ImageIdentity] = dataclasses.field(default_factory=dict)
    user_uid: int | None = None

    def __post_init__(self) -> None:
        if self.state not in STATES:
            raise ValueError(f"state is none of {', '.join(STATES)}")
        mismatch = self.state == PENDING if self.spec is None else self.state in (TERMINATING, TERMINATED)
        if mismatch:
            raise ValueError(f"the state {self.state} {'requires' if self.spec is None else 'must not have'} a spec")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Read the request and the record of an entry that was made from its head."""
            if name not in ("spec", "record") or "_read" not in self.__dict__:
                raise AttributeError(name)
            self.__dict__.update(self.__dict__["_read"]())
            return self.__dict__[name]

    @classmethod
    def from_head(cls, head: Head, read: Callable[[], Mapping[str, Any]]) -> QueueEntry:
        """Return the entry with that head; ``read`` returns its ``spec`` and ``record`` once one of them is needed."""
        entry = object.__new__(cls)
        entry.__dict__.update(vars(head), owner=None, agents=(), plan=None, images={}, _read=read)
        return entry

    @property
    def has_head(self) -> bool:
        """Whether :attr:`head` is all that most runs need of this entry."""
        return self.state in (PENDING, TERMINATED) and not (self.owner or self.agents or self.plan or self.images)

    @property
    def head(self) -> Head:
        """The head of this entry."""
        return Head(*(getattr(self, field.name) for field in dataclasses.fields(Head)))

    def with_skipped(self, skipped: int) -> QueueEntry:
        """Return this entry with another count; nothing else of it is parsed for that."""
        entry = object.__new__(type(self))
        entry.__dict__.update(vars(self), skipped=skipped)
        return entry

    @functools.cached_property
    def request_key(self) -> str:
        """A digest of what decides whether there is room for the request."""
        spec = self.spec or {}
        relevant = {option: value for option, value in spec.items() if option not in IRRELEVANT}
        relevant["roles"] = [{**role, "env": {}} for role in spec.get("roles", ())]
        return hashlib.sha256(json.dumps(relevant, sort_keys=True).encode()).hexdigest()[:32]

    @functools.cached_property
    def wanted_images(self) -> tuple[str, ...]:
        """The images of the request."""
        return tuple(spec_from_dict(self.spec).images) if self.spec else ()

    @functools.cached_property
    def wanted_paths(self) -> tuple[str, ...]:
        """The folders of agents that the request mounts."""
        return tuple(mount.source for mount in spec_from_dict(self.spec).mounts) if self.spec else ()

    @property
    def unfinished(self) -> bool:
        """Whether something is left to do: the session waits, is started, or has to be removed."""
        return self.state not in (RUNNING, TERMINATED)

    @property
    def waits_for_start(self) -> bool:
        """Whether the session is PENDING, or will be again if the run that starts it dies."""
        return not self.attended and (self.state == PENDING or (self.state == CREATING and self.spec is not None))

    @property
    def arrival_key(self) -> tuple[float, str]:
        """The sort key of arrival, unique for each entry."""
        return self.enqueued_at, self.id

    def to_json(self) -> str:
        """Return the entry as the text of a file, to be read by :meth:`from_json`."""
        return _FORMAT.dump(self)

    @classmethod
    def from_json(cls, content: bytes | str, path: str) -> QueueEntry:
        """Return the entry that :meth:`to_json` wrote; raise :class:`CorruptEntryError` for invalid content."""
        try:
            entry = _FORMAT.load(content)
            check_record(entry.record)
            if entry.plan is not None:
                entry.plan.check()
            if entry.spec is not None:
                check_spec(spec_from_dict(entry.spec))
        except ValueError as error:
            raise CorruptEntryError(
                f"{path} is corrupt ({as_phrase(error)}): move it to another folder, then create or end its session."
            ) from None
        return entry


def stored_details(content: bytes) -> dict[str, Any]:
    """Return the request and the record in the text of a file that was checked before, for :meth:`from_head`."""
    data = _FORMAT.load_plain(content)
    return {name: data[name] for name in ("spec", "record")}


def _with_record(data: dict[str, Any]) -> dict[str, Any]:
    """Return an entry of version 1, which had no request of a session that a user's run started, in version 2."""
    return {**data, "attended": False, "images": {}}


_FORMAT = StateFormat("the entry", QueueEntry, (_with_record,))


def sort_pending(
    entries: Iterable[QueueEntry], policy: str, shares: Mapping[str, float], max_skips: int = DEFAULT_MAX_SKIPS
) -> list[QueueEntry]:
    """Return the PENDING sessions in the order in which to try them.

    Due sessions come first, by arrival. The others are sorted by priority, highest first, and within one priority by
    the earliest arrival (``fifo``), the latest (``lifo``), or the user with the smallest dominant share (``drf``), then
    the earliest. ``shares`` is the result of :func:`dominant_shares`, to be updated by the caller as sessions start; a
    user that is missing there has a share of 0.
    """

    def place(entry: QueueEntry) -> tuple[bool, int, float, float, str]:
        if entry.skipped >= max_skips:
            return False, 0, 0.0, *entry.arrival_key
        return True, *place_in_order(entry, policy, shares)

    return sorted((entry for entry in entries if entry.state == PENDING), key=place)


def place_in_order(entry: QueueEntry, policy: str, shares: Mapping[str, float]) -> tuple[int, float, float, str]:
    """Return the sort key of a session that is not due."""
    share = shares.get(entry.user, 0.0) if policy == "drf" else 0.0
    return -entry.priority, share, -entry.enqueued_at if policy == "lifo" else entry.enqueued_at, entry.id


def queue_positions(ordered: Iterable[QueueEntry]) -> dict[str, int]:
    """Return the positions of PENDING sessions by id, each in its resource group, from 1, as they will be tried."""
    groups: dict[str, int] = {}
    positions = {}
    for entry in ordered:
        positions[entry.id] = groups[entry.resource_group] = groups.get(entry.resource_group, 0) + 1
    return positions


def blocked_by(
    entries: Iterable[QueueEntry],
    candidate_priority: int,
    resource_group: str,
    max_skips: int = DEFAULT_MAX_SKIPS,
    own_id: str | None = None,
    blocks: Callable[[QueueEntry], bool] = lambda _entry: True,
) -> QueueEntry | None:
    """Return the earliest due session that a candidate has to wait behind; ``None`` if the candidate may start.

    The candidate is the entry ``own_id``, or a new session if there is no such entry. It waits behind due sessions of
    its resource group that arrived earlier and have no lower priority. CREATING sessions count as well, or they could
    lose their capacity to others again and again; once the agents hold its claim, a session's capacity is safe, and the
    caller may omit it. ``blocks`` is asked, the earliest first, until one of them is what others wait behind.
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
    return next(filter(blocks, sorted(ahead, key=lambda entry: entry.arrival_key)), None)


def count_skips(entries: Iterable[QueueEntry], started: QueueEntry) -> list[QueueEntry]:
    """Return the entries that ``started`` skips, with ``skipped`` incremented, for the caller to save.

    Those are the PENDING sessions of its resource group that arrived earlier and have no lower priority. They have to
    be counted in the transaction that marks a session as CREATING, so that the limit holds when several sessions start
    at once: a start that fails afterwards is then counted too, which makes no session wait longer.
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

    ``usage`` (by user) and ``capacity`` are amounts by slot; slots without capacity are ignored. After Ghodsi et al.,
    "Dominant Resource Fairness", NSDI 2011.
    """
    return {
        user: max((amount / capacity[slot] for slot, amount in slots.items() if capacity.get(slot)), default=0.0)
        for user, slots in usage.items()
    }


def mark_pending(entry: QueueEntry, record: dict[str, Any], now: float, *, failed: bool = False) -> QueueEntry:
    """Return the entry as PENDING; ``failed`` counts a failed start."""
    attempts = entry.attempts + failed
    # The plan remains: agents may still hold what the last run claimed.
    return dataclasses.replace(
        entry, state=PENDING, record=record, updated_at=now, attempts=attempts, owner=None, agents=(), attended=False
    )


def mark_creating(entry: QueueEntry, owner: Owner, now: float, plan: SessionPlan | None = None) -> QueueEntry:
    """Return the entry as CREATING: ``owner`` starts it according to ``plan``."""
    return dataclasses.replace(entry, state=CREATING, owner=owner, updated_at=now, plan=plan)


def mark_running(
    entry: QueueEntry,
    now: float,
    record: dict[str, Any],
    images: Mapping[str, ImageIdentity] | None = None,
) -> QueueEntry:
    """Return the entry as RUNNING: its request, plan and images are kept until the session ends."""
    return dataclasses.replace(
        entry,
        state=RUNNING,
        record={**record, "created_at": entry.enqueued_at},
        updated_at=now,
        skipped=0,
        attempts=0,
        owner=None,
        attended=False,
        images=dict(images or {}),
    )


def mark_terminating(entry: QueueEntry, record: dict[str, Any], agents: Iterable[str], now: float) -> QueueEntry:
    """Return the entry as TERMINATING: the session has to be removed from ``agents``. Drops its request and owner."""
    return dataclasses.replace(
        entry, state=TERMINATING, record=record, updated_at=now, agents=tuple(agents), **_WITHOUT_REQUEST
    )


def mark_terminated(entry: QueueEntry, record: dict[str, Any], now: float) -> QueueEntry:
    """Return the entry as TERMINATED: history. Drops its request and its owner."""
    return dataclasses.replace(entry, state=TERMINATED, record=record, updated_at=now, agents=(), **_WITHOUT_REQUEST)


_WITHOUT_REQUEST: dict[str, Any] = {"spec": None, "plan": None, "images": {}, "owner": None, "attended": False}
"""The fields of a session that ends."""


def recorded_plans(entries: Iterable[QueueEntry]) -> dict[str, SessionPlan]:
    """Return the plans by session id that this control node has made, and has the requests of."""
    planned = (entry for entry in entries if entry.plan and entry.spec is not None)
    return {entry.id: entry.plan for entry in planned if entry.plan and entry.plan.id == entry.id}


def reserved_plans(entries: Iterable[QueueEntry], held_ids: Collection[str], own_id: str = "") -> list[SessionPlan]:
    """Return the plans of other runs that have not been claimed yet; ``held_ids`` are the session ids on agents."""
    others = (entry for entry in entries if entry.id != own_id and entry.id not in held_ids)
    return [entry.plan for entry in others if entry.state == CREATING and entry.owner and entry.plan]


def timed_out(entry: QueueEntry, now: float) -> bool:
    """Return whether a PENDING session has exceeded its ``pending_timeout``."""
    return entry.state == PENDING and 0 < entry.pending_timeout <= now - entry.enqueued_at


def abandoned(entry: QueueEntry, alive: bool) -> bool:
    """Return whether the run that was starting a session has ended (not ``alive``): the session is PENDING again then.

    Claims that the run left on agents expire, or are taken over by the next start.
    """
    return entry.state == CREATING and not alive


def expired_history(entries: Iterable[QueueEntry], now: float, days: float) -> list[QueueEntry]:
    """Return the sessions that ended more than ``days`` days ago, for the caller to remove."""
    return [entry for entry in entries if entry.state == TERMINATED and now - entry.updated_at > days * _DAY]
