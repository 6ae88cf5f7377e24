# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Queue entries, and their state transitions."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ...module_utils._model.errors import ClusterError, as_phrase
from ...module_utils._model.images import ImageIdentity
from ...module_utils._model.mounts import Source
from ...module_utils._model.network import HOST_NETWORK
from ...module_utils._model.plan import SessionPlan
from ...module_utils._model.state_format import StateFormat
from ...module_utils._model.validation import ValidationError
from .._report.record import check_record
from .._request.spec import SessionSpec, check_spec, spec_from_dict

# Waits for capacity; is started by a run; was started from this queue; has to be removed from agents; history.
PENDING, CREATING, RUNNING, TERMINATING, TERMINATED = STATES = (
    "PENDING",
    "CREATING",
    "RUNNING",
    "TERMINATING",
    "TERMINATED",
)

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
class QueueEntry:
    """A session of a control node: in its queue, running, or ended.

    It belongs to ``user``, whose uid on the control node is ``user_uid``, if that is known.
    ``spec`` is the whole request, which may contain secrets, and ``plan`` what the last run started: both are kept
    until the session ends, so that a repair needs no word of an agent; one that waits has a plan while something may be
    left of its last start. The plan reserves capacity as soon as the entry is saved, before the facts of the agents
    show it; ``nonce`` is how agents know the start that it is of. ``images`` are those of a RUNNING session, by name.
    ``record`` is the session's record. ``has_started`` is whether a run has ever begun to start it, whatever became of
    that, and ``attempts`` counts the failed starts (starts refused for lack of capacity are not counted). ``owner`` is
    the run that starts the session; if it is ``attended``, somebody learns of a failure, so the session does not wait
    for another start. ``agents`` are the agents from which the session is still to be removed. Times are in seconds
    since the epoch; ``pending_timeout`` is in seconds, 0 for none. ``priority`` is 0 to 100. ``limited`` is whether a
    user of a manager's command made it, so that the limits of its policy apply, and no operator by a playbook.

    Raises :class:`ValueError` for an unknown state, for a state that contradicts ``spec``: a PENDING session has a
    request, a TERMINATING or TERMINATED one has none; and for what is no nonce.
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
    has_started: bool = False
    attempts: int = 0
    owner: Owner | None = None
    agents: tuple[str, ...] = ()
    pending_timeout: int = 0
    plan: SessionPlan | None = None
    nonce: str = ""
    attended: bool = False
    images: dict[str, ImageIdentity] = dataclasses.field(default_factory=dict)
    user_uid: int | None = None
    limited: bool = False

    def __post_init__(self) -> None:
        if self.state not in STATES:
            raise ValueError(f"state is none of {', '.join(STATES)}")
        mismatch = self.state == PENDING if self.spec is None else self.state in (TERMINATING, TERMINATED)
        if mismatch:
            raise ValueError(f"the state {self.state} {'requires' if self.spec is None else 'must not have'} a spec")
        if not re.fullmatch("(?:[0-9a-f]{32})?", self.nonce):
            raise ValueError("nonce is not one")

    @functools.cached_property
    def request_key(self) -> str:
        """A digest of what decides whether there is room for the request.

        Of apps it is their number, which is that of the ports that they need; on a host network, their ports.
        """
        spec = self.spec or {}
        relevant = {option: value for option, value in spec.items() if option not in IRRELEVANT}
        relevant["ports"] = self.host_ports or len(spec.get("apps", ()))
        relevant["roles"] = [{**role, "env": {}} for role in spec.get("roles", ())]
        return hashlib.sha256(json.dumps(relevant, sort_keys=True).encode()).hexdigest()

    @property
    def host_ports(self) -> list[int]:
        """The ports of the apps of a request for the agents' own network, where they are needed themselves."""
        spec = self.spec or {}
        return [app["port"] for app in spec.get("apps", ())] if spec.get("network_driver") == HOST_NETWORK else []

    @functools.cached_property
    def request(self) -> SessionSpec:
        """The request of an entry that has one. Raises :class:`DataError` for one that is damaged."""
        return spec_from_dict(self.spec or {})

    def understand(self) -> SessionSpec:
        """Return what the options of the request mean now. Raises :class:`ValidationError` if it could not be made."""
        return _understand(json.dumps(self.spec, sort_keys=True))

    def check_request(self) -> None:
        """Raise :class:`ValidationError` unless the request is one that could be made, as it would be stored."""
        if self.understand() != self.request:
            raise ValidationError(
                "the stored request is not what its own options mean: cancel the session, and create it again"
            )

    @property
    def wanted_images(self) -> tuple[str, ...]:
        """The images of the request."""
        return tuple(self.request.images) if self.spec else ()

    @property
    def wanted_paths(self) -> tuple[str, ...]:
        """The folders of agents that the request mounts, as words of :class:`Source`."""
        return tuple(Source.of(mount).word for mount in self.request.mounts) if self.spec else ()

    @property
    def unfinished(self) -> bool:
        """Whether something is left to do: the session waits, is started, or has to be removed."""
        return self.state not in (RUNNING, TERMINATED)

    @property
    def has_ended(self) -> bool:
        """Whether the session does not run, and will not: agents may still hold a part of it."""
        return self.state in (TERMINATING, TERMINATED)

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
                entry.understand()
        except ValueError as error:
            raise CorruptEntryError(
                f"{path} is corrupt ({as_phrase(error)}): move it to another folder, then create or end its session."
            ) from None
        return entry


_FORMAT = StateFormat("the entry", QueueEntry)


@functools.lru_cache(4096)
def _understand(request: str) -> SessionSpec:
    """Return what the options of a request mean, from its JSON text: a pass reads most requests twice."""
    return check_spec(spec_from_dict(json.loads(request)))


def mark_pending(entry: QueueEntry, record: dict[str, Any], now: float, *, failed: bool = False) -> QueueEntry:
    """Return the entry as PENDING; ``failed`` counts a failed start."""
    attempts = entry.attempts + failed
    # The plan remains: agents may still hold what the last run claimed.
    return dataclasses.replace(
        entry, state=PENDING, record=record, updated_at=now, attempts=attempts, owner=None, agents=(), attended=False
    )


def mark_creating(
    entry: QueueEntry, owner: Owner, now: float, plan: SessionPlan | None = None, nonce: str = ""
) -> QueueEntry:
    """Return the entry as CREATING: ``owner`` starts it according to ``plan``; ``nonce`` is that of the start."""
    return dataclasses.replace(
        entry, state=CREATING, owner=owner, updated_at=now, plan=plan, nonce=nonce, has_started=True
    )


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


def forget_start(entry: QueueEntry) -> QueueEntry:
    """Return the entry of a session that waits for another start: no agent has anything of the last one, or will."""
    return dataclasses.replace(entry, plan=None, nonce="")


_WITHOUT_REQUEST: dict[str, Any] = {
    "spec": None,
    "plan": None,
    "nonce": "",
    "images": {},
    "owner": None,
    "attended": False,
}
"""The fields of a session that ends."""


def recorded_plans(entries: Iterable[QueueEntry]) -> dict[str, SessionPlan]:
    """Return the plans by session id that this control node has made, and has the requests of."""
    planned = (entry for entry in entries if entry.plan and entry.spec is not None)
    return {entry.id: entry.plan for entry in planned if entry.plan and entry.plan.id == entry.id}


def ending_ids(entries: Iterable[QueueEntry]) -> list[str]:
    """Return the ids of the sessions that have to be removed from agents."""
    return [entry.id for entry in entries if entry.state == TERMINATING]


def reserved_plans(entries: Iterable[QueueEntry], held_ids: Collection[str], own_id: str = "") -> list[SessionPlan]:
    """Return the plans of other runs that have not been claimed yet; ``held_ids`` are the session ids on agents."""
    others = (entry for entry in entries if entry.id != own_id and entry.id not in held_ids)
    return [entry.plan for entry in others if entry.state == CREATING and entry.owner and entry.plan]


def timed_out(entry: QueueEntry, now: float) -> bool:
    """Return whether a PENDING session has exceeded its ``pending_timeout``."""
    return entry.state == PENDING and 0 < entry.pending_timeout <= now - entry.enqueued_at


def expired_history(entries: Iterable[QueueEntry], now: float, days: float) -> list[QueueEntry]:
    """Return the sessions that ended more than ``days`` days ago, for the caller to remove."""
    return [entry for entry in entries if entry.state == TERMINATED and now - entry.updated_at > days * _DAY]
