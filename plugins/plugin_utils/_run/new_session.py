# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans the session that a run is asked for, and saves in the queue that this run starts it, or that it waits."""

from __future__ import annotations

import dataclasses
import getpass
import os
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...module_utils._model.errors import as_phrase, as_sentence
from ...module_utils._model.printable import printable
from ...module_utils._model.validation import ValidationError
from .._lifecycle.start_steps import start_arguments
from .._lifecycle.time_limits import next_ends
from .._placement.place import Unschedulable
from .._placement.unschedulable import join_names
from .._planner.cluster_state import ClusterState
from .._planner.decision import Decision, check_time_limits, decide
from .._planner.disk_room import describe_tight_disks
from .._planner.outlook import NEVER, look_ahead
from .._planner.session_network import PlanningError
from .._planner.shares import amounts_by_gpus
from .._queue.answers import Answers as Decider
from .._queue.answers import wait_for_agents
from .._queue.entry import (
    CREATING,
    PENDING,
    RUNNING,
    TERMINATED,
    TERMINATING,
    QueueEntry,
    ending_ids,
    mark_creating,
    mark_pending,
    recorded_plans,
)
from .._queue.owner import current_owner
from .._queue.schedule import positions, waits_behind
from .._report.record import unplanned_record, with_next_end
from .._request.advice import advise
from .._request.defaults import (
    add_apps,
    complete_resources,
    describe_followed,
    roles_that_follow,
    warn_of_fixed,
)
from .._request.run_options import NO_UID
from .._request.spec import SessionSpec, check_same_request, spec_from_dict
from ..cluster_view import Answers, warnings_about
from .planning import User, cluster_of, free_room, give_groups, groups_of, with_groups
from .site import Site


class NotPlannedError(Exception):
    """The session cannot be planned, now or ever. The message is one sentence; ``warnings`` may explain it."""

    def __init__(self, sentence: str, warnings: Sequence[str]) -> None:
        super().__init__(sentence)
        self.warnings = list(warnings)


@dataclasses.dataclass(frozen=True)
class Planned:
    """How the session of a run starts: by ``start``, the arguments of :func:`start_arguments`, unless it waits.

    ``record`` is that of a session that waits, ``no_room`` why it does. ``capacity_released``: what the session waits
    for may have become free already. ``description`` is what the plan of a new session says, line by line. ``spec`` is
    the request with what it left open, ``notes`` what has been decided about that.
    """

    id: str
    warnings: list[str]
    spec: SessionSpec
    notes: list[str]
    start: dict[str, Any] | None = None
    record: dict[str, Any] | None = None
    no_room: Unschedulable | None = None
    capacity_released: bool = False
    description: str = ""


def plan_session(site: Site, answers: Answers, attempt: int = 1, refused: Sequence[str] = ()) -> Planned:
    """Plan the session of the request, and save the decision.

    ``refused`` is why agents refused the plan of the ``attempt`` before this one. Raises :class:`NotPlannedError`.
    """
    spec = site.request.spec
    if spec is None:
        raise ValueError("the run was not asked for a session")
    # The queue is parsed, and due sessions are judged, before the lock is taken: under it, only what has changed
    # since is parsed, and what was not judged is waited for.
    entries = site.entries()
    cluster = cluster_of(site, answers, entries)
    request = _Request(site, spec, cluster, attempt, refused)
    try:
        return request.plan(entries)
    except (ValidationError, PlanningError) as error:
        raise NotPlannedError(as_sentence(str(error)), warnings_about(cluster)) from None


class _Request:
    """The session of a run, while it is planned with the state of the agents."""

    def __init__(
        self, site: Site, spec: SessionSpec, cluster: ClusterState, attempt: int, refused: Sequence[str]
    ) -> None:
        self._site, self._spec, self._cluster = site, spec, cluster
        self._attempt, self._refused = attempt, refused
        self._limited, self._nonce = bool(site.rules.limits), uuid.uuid4().hex

    def plan(self, entries: Sequence[QueueEntry]) -> Planned:
        """Plan the session; ``entries`` are those of the queue before its lock is taken."""
        site, spec, user = self._site, self._spec, self._user()
        # Accounts may be those of a slow directory.
        groups = groups_of(site, user, spec.mounts, self._cluster)
        own = _make_entry(spec, user, time.time(), limited=self._limited)
        decider = Decider(free_room(self._cluster, entries), site.request.pools, time.time())
        without_groups = self._judge_due(entries, own, decider)
        with site.transaction():
            entries = site.entries()
            self._cluster = dataclasses.replace(self._cluster, records=recorded_plans(entries))
            if site.request.run.user_uid != NO_UID and not site.request.repair:
                _check_owner(spec.name, user, entries)
            notes, fixed = self._complete(entries)
            spec = self._spec
            known = _find_entry(spec, entries, self._cluster, site.request.repair, time.time())
            entry = known or _make_entry(spec, user, time.time(), limited=self._limited)
            room = free_room(self._cluster, entries, entry.id)
            waits = self._waits(entries, entry, decider.may_block, without_groups)
            decision = give_groups(self._decide(room, entries, entry, waits), entry, groups, self._cluster)
            if entry.state == RUNNING and not (isinstance(decision, Decision) and decision.existing):
                problem = decision.reason if isinstance(decision, Unschedulable) else "no agent has committed it"
                raise PlanningError(f"the session {spec.name!r} cannot be repaired: {problem}")
            self._save(entry, decision)
        if known is None:
            notes += advise(spec, site.request.pools, by_manager=self._limited)
            notes += [_describe_plan(decision)] if site.check_mode else []
        warnings = [*warnings_about(self._cluster), *fixed]
        if isinstance(decision, Unschedulable):
            since = site.request.started_at
            released = room.in_flight or any(_releases_capacity(other, since) for other in entries)
            return Planned(
                entry.id,
                warnings,
                spec,
                notes,
                record=self._waiting_record(entries, entry, decision),
                no_room=decision,
                capacity_released=released,
            )
        return dataclasses.replace(self._started(entries, entry, decision, warnings), notes=notes)

    def _complete(self, entries: Iterable[QueueEntry]) -> tuple[list[str], list[str]]:
        """Decide what the request leaves open, unless it is that of a session that lives: that keeps what it has.

        Return sentences about what was decided, and warnings of what was not.
        """
        request, defaults, left_open = self._site.request, self._site.rules.defaults, self._site.request.left_open
        if request.repair:
            return [], []
        live = (entry for entry in entries if entry.name == self._spec.name and entry.spec is not None)
        before = next((spec_from_dict(entry.spec or {}) for entry in live), None)
        if request.gateways:
            self._spec = add_apps(self._spec, defaults, before)
        if defaults.fixed or not roles_that_follow(self._spec, left_open):
            return [], [] if before else warn_of_fixed(self._spec, left_open)
        if before:
            kept = {role.name: role.resources for role in before.effective_roles}
            self._spec = complete_resources(self._spec, left_open, lambda role: kept.get(role.name, {}))
            return [], []
        self._spec = complete_resources(self._spec, left_open, amounts_by_gpus(self._spec, self._cluster, defaults))
        return describe_followed(self._spec, left_open, defaults), []

    def _started(
        self, entries: Sequence[QueueEntry], entry: QueueEntry, decision: Decision, warnings: list[str]
    ) -> Planned:
        warnings += describe_tight_disks([decision.missing_images], self._cluster.facts)
        if decision.route_problem:
            warnings.append(f"gateways get no route to {self._spec.name}: {decision.route_problem}.")
        start = start_arguments(
            decision,
            ending_ids(entries),
            nonce=self._nonce,
            never_completed=decision.plan.id in {each.id for each in entries if each.unfinished},
            recorded_images=entry.images,
        )
        description = "".join(f"{line}\n" for line in decision.plan.lines()) if not decision.existing else ""
        return Planned(entry.id, warnings, self._spec, [], start=start, description=description)

    def _waiting_record(
        self, entries: Sequence[QueueEntry], entry: QueueEntry, decision: Unschedulable
    ) -> dict[str, Any]:
        """Return the record of a session that waits, with its place in the queue."""
        own = dataclasses.replace(entry, state=PENDING, spec=dataclasses.asdict(self._spec))
        others = [other for other in entries if other.id != entry.id]
        places = positions([*others, own], self._cluster, self._site.policy)
        end = next_ends([*others, own], self._cluster, places, time.time()).get(entry.id)
        record = with_next_end(_pending_record(self._spec, entry, decision), end)
        return {**record, "queue_position": places[entry.id]}

    def _user(self) -> User:
        """Return who the session of this run belongs to: by default the user that runs Ansible."""
        user, uid = self._site.request.run.user, self._site.request.run.user_uid
        if uid == NO_UID:
            return (printable(user), None) if user else (getpass.getuser(), os.getuid())
        return printable(user or getpass.getuser()), uid

    def _judge_due(self, entries: Sequence[QueueEntry], own: QueueEntry, decider: Decider) -> set[str]:
        """Judge the due sessions that ``own`` has to wait behind, until one does block.

        Return the ids of those that have room, and do not start for want of the groups of their users.
        """
        refused: set[str] = set()

        def blocks(due: QueueEntry) -> bool:
            if not decider.blocks(due):
                return False
            has_groups = due.state == PENDING and due.limited and self._site.rules.groups
            answer = decider.decide(due) if has_groups else None
            if isinstance(answer, Decision):
                refused.update(with_groups(self._site, [(due, answer)], self._cluster)[1])
            return due.id not in refused

        self._waits(entries, own, blocks)
        return refused

    def _waits(
        self,
        entries: Sequence[QueueEntry],
        entry: QueueEntry,
        blocks: Callable[[QueueEntry], bool],
        refused: Iterable[str] = (),
    ) -> Unschedulable | None:
        """Return why a session of this run waits behind another one, if it does."""
        barred = {*self._site.rules.held, *self._site.limits.held_back(entries), *refused}
        others = (other for other in entries if other.id != entry.id)
        return waits_behind([*others, entry], entry, blocks, self._site.policy, barred)

    def _decide(
        self,
        room: ClusterState,
        entries: Sequence[QueueEntry],
        entry: QueueEntry,
        waits_for_due: Unschedulable | None,
    ) -> Decision | Unschedulable:
        """Return the decision about the request; after too many lost claims, the session stays pending."""
        spec, pools, attempts = self._spec, self._site.request.pools, self._site.request.run.claim_attempts
        if self._attempt > attempts:
            refusals = "; ".join(self._refused)
            return Unschedulable(
                f"other runs claimed the resources first, {attempts} times in a row; last error: {refusals}", {}
            )
        try:
            decision = decide(spec, room, pools, entry.id, entry.user, entry.updated_at)
        except (ValidationError, PlanningError) as error:
            if self._attempt == 1:
                raise
            return Unschedulable(as_phrase(error), {})
        if isinstance(decision, Decision) and decision.existing:
            return decision
        if isinstance(decision, Unschedulable):
            decision = look_ahead(decision, spec, room, pools, entry.id, entry.updated_at)
        if entry.spec is None:
            check_time_limits(spec, pools)
        if isinstance(decision, Decision):
            waits = wait_for_agents(entry, room) or waits_for_due
            decision = waits or decision.with_uid(entry.user_uid)
        if entry.spec is None:
            containers = sum(role.replicas for role in spec.effective_roles)
            waits_now = isinstance(decision, Unschedulable)
            if waits_now:
                _check_not_away(spec.name, entries, room)
            self._site.limits.check((entry.user, entry.user_uid), containers, entries, waits=waits_now)
            self._refuse_never(decision)
        return decision

    def _refuse_never(self, decision: Decision | Unschedulable) -> None:
        """Raise :class:`PlanningError` for a new session that never has a place, where those do not wait."""
        if isinstance(decision, Unschedulable) and decision.never and self._site.rules.defaults.refuses_never:
            # It says why, unless that is the reason why there is no room now.
            reason = "" if decision.outlook.startswith(f"{NEVER}: ") else f"{decision.reason}; "
            raise PlanningError(f"{reason}{decision.outlook}; --wait-for-hosts lets it wait for agents with more room")

    def _save(self, entry: QueueEntry, decision: Decision | Unschedulable) -> None:
        """Save that the session is pending, or that this run starts it, so that a later run can finish a killed one.

        The entry of a session that a run has started stays as it is, but for its plan.
        """
        queue = self._site.queue
        if self._site.check_mode:
            return
        if entry.state == RUNNING:
            if isinstance(decision, Decision) and decision.plan != entry.plan:
                queue.save(dataclasses.replace(entry, plan=decision.plan))
            return
        with_request = dataclasses.replace(entry, spec=dataclasses.asdict(self._spec))
        if isinstance(decision, Unschedulable):
            record = _pending_record(self._spec, entry, decision)
            queue.save(mark_pending(with_request, record, entry.updated_at))
            return
        queue.save(mark_creating(with_request, current_owner(), entry.updated_at, decision.plan, self._nonce))


def _describe_plan(decision: Decision | Unschedulable) -> str:
    """Return what would become of a session that is only planned."""
    if isinstance(decision, Unschedulable):
        return f"It would wait: {as_sentence(decision.reason)}"
    return f"It would start now, on {join_names(decision.plan.agents)}."


def _pending_record(spec: SessionSpec, entry: QueueEntry, decision: Unschedulable) -> dict[str, Any]:
    """Return the record of a session that waits for capacity."""
    record = unplanned_record(spec, spec.name, "PENDING", entry.id, no_room=decision)
    return {**record, "user": entry.user, "uid": entry.user_uid, "created_at": entry.enqueued_at}


def _releases_capacity(entry: QueueEntry, since: float) -> bool:
    """Return whether a session is terminating, or has ended since the agents were read."""
    return entry.state == TERMINATING or (entry.state == TERMINATED and entry.updated_at >= since)


def _find_entry(
    spec: SessionSpec, entries: Sequence[QueueEntry], cluster: ClusterState, repaired_id: str, now: float
) -> QueueEntry | None:
    """Return the queue's entry of a session that agents hold, or that is pending or starting; ``None`` without one.

    With ``repaired_id`` it is the entry of that session. Raises :class:`ValidationError` if its request differs, if
    another run starts it and has claimed nothing yet (only claimed sessions can be taken over), and
    :class:`PlanningError` if no agent holds the session that is to be repaired.
    """
    same_name = [entry for entry in entries if entry.name == spec.name and repaired_id in ("", entry.id)]
    held = [entry for entry in same_name if entry.state == RUNNING and entry.id in cluster.sessions]
    waiting = [entry for entry in same_name if entry.state in (PENDING, CREATING)]
    entry = next(iter([*held, *waiting]), None)
    if entry is None:
        if repaired_id:
            unavailable = cluster.explain_unavailable(cluster.unavailable)
            suffix = f", and not all agents can be used: {unavailable}" if unavailable else ""
            raise PlanningError(f"the session {spec.name!r} cannot be repaired: no agent holds a part of it{suffix}")
        return None
    if entry.spec is not None:
        check_same_request(spec, spec_from_dict(entry.spec), RUNNING if entry.state == RUNNING else PENDING)
    if entry.owner is not None and entry.owner != current_owner() and entry.id not in cluster.sessions:
        other = f"another run, process {entry.owner.pid}"
        raise ValidationError(f"session_name: {spec.name!r} is being started by {other}; wait for it")
    return dataclasses.replace(entry, updated_at=now)


def _check_not_away(name: str, entries: Iterable[QueueEntry], cluster: ClusterState) -> None:
    """Raise :class:`PlanningError` if a session of that name runs on agents that are away: another one must not wait.

    Whoever repeats a request means that session.
    """
    for entry in entries:
        plan = entry.plan if entry.name == name and entry.state == RUNNING else None
        away = [agent for agent in plan.agents if agent not in cluster.facts] if plan else []
        if away:
            reasons = cluster.explain_unavailable(away)
            raise PlanningError(f"the session {name!r} has containers on agents that cannot be used: {reasons}")


def _check_owner(name: str, user: User, entries: Iterable[QueueEntry]) -> None:
    """Raise :class:`ValidationError` if a live session of that name belongs to somebody else, without details of it."""
    live = (entry for entry in entries if entry.name == name and not entry.has_ended)
    if any((entry.user, entry.user_uid) != user for entry in live):
        raise ValidationError(f"session_name: {name!r} is taken by another user's session; choose another name")


def _make_entry(spec: SessionSpec, user: User, now: float, *, limited: bool) -> QueueEntry:
    """Return the entry of a new session; ``limited`` is as in the entry."""
    session_id, record = str(uuid.uuid4()), unplanned_record(spec, spec.name, "CREATING")
    name, uid = user
    return QueueEntry(
        id=session_id,
        name=spec.name,
        state=CREATING,
        user=name,
        resource_group=spec.resource_group,
        priority=spec.priority,
        spec=None,
        record={**record, "id": session_id, "user": name, "uid": uid, "created_at": now},
        enqueued_at=now,
        updated_at=now,
        pending_timeout=spec.pending_timeout,
        attended=True,
        user_uid=uid,
        limited=limited,
    )
