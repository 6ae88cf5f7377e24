# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan sessions from the facts of all agents and save their state in the queue, on the control node."""

from __future__ import annotations

import dataclasses
import getpass
import os
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, TypeGuard, TypeVar

from ansible.errors import AnsibleActionFail

from ..module_utils._gateway.model import Gateway
from ..module_utils._model.errors import as_phrase, as_sentence
from ..module_utils._model.plain_data import to_plain
from ..module_utils._model.printable import printable
from ..module_utils._model.session import Mount
from ..module_utils._model.validation import ValidationError
from ..plugin_utils._placement.place import Unschedulable
from ..plugin_utils._planner.cluster_state import ClusterState
from ..plugin_utils._planner.decision import Decision, check_time_limits, decide
from ..plugin_utils._planner.disk_room import describe_tight_disks
from ..plugin_utils._planner.session_network import PlanningError
from ..plugin_utils._planner.user_groups import Membership, owning_groups
from ..plugin_utils._queue.answers import Answers, digest_of_inputs, wait_for_agents
from ..plugin_utils._queue.entry import (
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
from ..plugin_utils._queue.limits import UserLimits, limits_from
from ..plugin_utils._queue.owner import current_owner
from ..plugin_utils._queue.schedule import QueuePolicy, positions, schedule, still_first, waits_behind
from ..plugin_utils._queue.store import QueueStore
from ..plugin_utils._report.record import describe_pending, to_json, unplanned_record
from ..plugin_utils._request.advice import advise
from ..plugin_utils._request.run_options import NO_UID, NetworkPools
from ..plugin_utils._request.spec import SessionSpec, check_same_request, spec_from_dict
from ..plugin_utils.control import ControlAction, start_arguments
from ..plugin_utils.host_program import release
from ..plugin_utils.user_groups import Directory, GroupRules, read_groups, with_names

User = tuple[str, int | None]
"""The user that a session belongs to, and the user's uid, if that is known."""

_Answer = TypeVar("_Answer", Decision, Decision | Unschedulable)


class ActionModule(ControlAction):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result, variables = super().run(tmp, task_vars), task_vars or {}
        planned = self._plan_pending(variables) if self._task.args.get("queue") else self._plan_request(variables)
        return {**result, "changed": False, **planned}

    def _plan_pending(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Decide which pending sessions start now, and save in the queue why the others do not."""
        now, queue = time.time(), self.queue(variables)
        before = {entry.id: entry for entry in self.entries(queue)}
        cluster = self._cluster(variables, before.values())
        stale_ids = ending_ids(before.values())
        free = self._free(cluster, before.values())
        seen = digest_of_inputs(before.values(), free, self._pools(), self._inputs())
        if queue.has_seen(seen):
            return {"starts": [], "agents": [], "specs": {}}
        # The queue is not locked while deciding, which may take long: entries that other runs have changed are left
        # to the next pass.
        held_back = self._limits.held_back(before.values())
        refused: dict[str, str] = {}
        while True:
            answers = Answers(free, self._pools(), now)
            decisions = schedule(before.values(), answers, self._rules, {*self._held, *held_back, *refused})
            chosen = [(entry, answer) for entry, answer in decisions if isinstance(answer, Decision)]
            chosen, without_groups = self._with_groups(chosen, cluster)
            if not without_groups:
                break
            # The room of those that cannot start is for others.
            refused |= without_groups
        waiting = [(entry, answer) for entry, answer in decisions if isinstance(answer, Unschedulable)]
        waiting += [(before[name], Unschedulable(reason, {})) for name, reason in {**held_back, **refused}.items()]
        started = self._save_starts(queue, chosen, answers, refused, now)
        if not self._task.check_mode:
            self._save_reasons(queue, waiting)
            waits = any(entry.state == PENDING for entry in before.values())
            if waits and not chosen and not refused:
                queue.save_seen(seen)
        starts = [start_arguments(decision, stale_ids, never_completed=True) for _entry, decision in started]
        # The user's environment may hold secrets.
        # Ansible hides the warnings of a result that it hides.
        missing = [decision.missing_images for _entry, decision in started]
        for warning in dict.fromkeys(describe_tight_disks(missing, cluster.facts)):
            self._display.warning(warning)
        return {
            "starts": starts,
            "agents": list(dict.fromkeys(agent for start in starts for agent in start["agents"])),
            "specs": {entry.name: entry.spec or {} for entry, _decision in started},
            "_ansible_no_log": bool(started),
        }

    def _inputs(self) -> list[Any]:
        """Return what decides a pass beside the queue and the agents, as plain data."""
        args = self._task.args
        options = {name: args.get(name) for name in ("pools", "held", "limits", "groups")}
        return [release(), dataclasses.asdict(self._rules), to_plain(options)]

    def _save_starts(
        self,
        queue: QueueStore,
        chosen: Sequence[tuple[QueueEntry, Decision]],
        answers: Answers,
        refused: Iterable[str],
        now: float,
    ) -> list[tuple[QueueEntry, Decision]]:
        """Mark sessions as CREATING, and return those that no other run has changed since, nor made wait for others."""
        started = []
        for batch in [chosen] if self._task.check_mode else queue.batches(chosen):
            entries = {entry.id: entry for entry in self.entries(queue)}
            barred = {*self._held, *self._limits.held_back(entries.values()), *refused}
            same = [
                entry for entry, _decision in batch if entry.id not in barred and _is_same(entries.get(entry.id), entry)
            ]
            first = still_first(entries.values(), same, answers.may_block, self._rules, barred)
            for entry, decision in batch:
                if entry.id not in first:
                    continue
                current = entries[entry.id]
                started.append((entry, decision))
                if not self._task.check_mode:
                    queue.save(mark_creating(current, current_owner(), now, decision.plan))
        return started

    def _save_reasons(self, queue: QueueStore, waiting: Iterable[tuple[QueueEntry, Unschedulable]]) -> None:
        """Save in the records of sessions why they wait, where that has changed."""
        pending = {entry.id: (entry, describe_pending(answer)) for entry, answer in waiting}
        changed = [each for each in pending.values() if each[0].record.get("pending") != each[1]]
        for batch in queue.batches(changed):
            current = [(self.entry(queue, entry.id), entry, reason) for entry, reason in batch]
            queue.save(
                *(
                    dataclasses.replace(now, record={**now.record, "pending": reason})
                    for now, entry, reason in current
                    if _is_same(now, entry)
                )
            )

    def _with_groups(
        self, chosen: Iterable[tuple[QueueEntry, Decision]], cluster: ClusterState
    ) -> tuple[list[tuple[QueueEntry, Decision]], dict[str, str]]:
        """Return decisions with the groups of their users, and why other sessions cannot have theirs, by id."""
        given, refused = [], {}
        for entry, decision in chosen:
            try:
                user = (entry.user, entry.user_uid) if entry.limited else ("", None)
                groups = self._read_groups(user, decision.plan.mounts, cluster)
                given.append((entry, _give(decision, entry, groups, cluster)))
            except (ValidationError, PlanningError) as error:
                refused[entry.id] = as_phrase(error)
        return given, refused

    def _read_groups(self, user: User, mounts: Sequence[Mount], cluster: ClusterState) -> Membership | None:
        """Return the groups of a user as they are now; ``None`` if sessions get none, or keep theirs."""
        rules = GroupRules.from_variable(self._task.args.get("groups") or {})
        name, uid = user
        if rules is None or uid is None:
            return None
        directory = Directory()
        groups = read_groups(name, uid, rules, directory)
        return with_names(groups, owning_groups(mounts, cluster.agents), directory)

    def _plan_request(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Plan the requested session, and save in the queue that this run starts it, or that it is pending."""
        args = self._task.args
        spec, queue, user = spec_from_dict(args["spec"]), self.queue(variables), self._user()
        # The queue is parsed, and due sessions are judged, before the lock is taken: under it, only what has changed
        # since is parsed, and what was not judged is waited for.
        entries = self.entries(queue)
        cluster = self._cluster(variables, entries)
        try:
            # Accounts may be those of a slow directory.
            groups = self._read_groups(user, spec.mounts, cluster)
            own = _make_entry(spec, user, time.time(), limited=self._is_limited)
            answers = Answers(self._free(cluster, entries), self._pools(), time.time())
            refused = self._judge_due(entries, own, answers, cluster)
            with self.transaction(queue):
                entries = self.entries(queue)
                cluster = dataclasses.replace(cluster, records=recorded_plans(entries))
                if args.get("user_uid", NO_UID) != NO_UID and not args.get("repair"):
                    _check_owner(spec.name, user, entries)
                known = _find_entry(spec, entries, cluster, str(args.get("repair") or ""), time.time())
                entry = known or _make_entry(spec, user, time.time(), limited=self._is_limited)
                stale_ids = ending_ids(entries)
                planned = self._free(cluster, entries, entry.id)
                waits = self._waits(entries, entry, answers.may_block, refused)
                decision = self._decide_request(spec, planned, entries, entry, waits)
                decision = _give(decision, entry, groups, cluster)
                if entry.state == RUNNING and not (isinstance(decision, Decision) and decision.existing):
                    problem = decision.reason if isinstance(decision, Unschedulable) else "no agent has committed it"
                    raise PlanningError(f"the session {spec.name!r} cannot be repaired: {problem}")
                self._save_decision(queue, spec, entry, decision)
        except (ValidationError, PlanningError) as error:
            raise self._failure(spec, cluster, error) from None
        warnings = self.warnings(cluster) + (advise(spec) if self._task.check_mode else [])
        result: dict[str, Any] = {"warnings": warnings, "queued": entry.waits_for_start}
        if isinstance(decision, Unschedulable):
            capacity_released = planned.in_flight or any(
                _releases_capacity(other, float(args.get("started_at", 0.0))) for other in entries
            )
            waiting = self._pending_result(spec, entries, entry, decision, cluster)
            return {**result, **waiting, "capacity_released": capacity_released}
        new = "".join(f"{line}\n" for line in decision.plan.lines()) if not decision.existing else ""
        start = start_arguments(
            decision,
            stale_ids,
            never_completed=decision.plan.id in _unfinished_ids(entries),
            recorded_images=entry.images,
        )
        warnings += describe_tight_disks([decision.missing_images], cluster.facts)
        if decision.route_problem:
            warnings.append(f"gateways get no route to {spec.name}: {decision.route_problem}.")
        return {
            **result,
            **start,
            "starts": [start],
            # A plan changes nothing. In check mode, the session that would be created counts, so that --diff shows it.
            "changed": bool(new) and self._task.check_mode,
            "diff": {"before": "", "after": new},
            "pending": None,
            "record": None,
        }

    def _failure(self, spec: SessionSpec, cluster: ClusterState, error: Exception) -> AnsibleActionFail:
        """Return the error of a request that cannot be planned; its record is written."""
        sentence = as_sentence(str(error))
        self.write_report(
            self._task.args.get("record_path", ""),
            to_json(unplanned_record(spec, spec.name, "ERROR", error=sentence)),
        )
        # Warnings of agents may explain the failure, and Ansible shows no warnings of a failed task.
        for warning in self.warnings(cluster):
            self._display.warning(warning)
        return AnsibleActionFail(sentence)

    def _pending_result(
        self,
        spec: SessionSpec,
        entries: Sequence[QueueEntry],
        entry: QueueEntry,
        decision: Unschedulable,
        cluster: ClusterState,
    ) -> dict[str, Any]:
        """Return the result for a session that waits, with its place in the queue."""
        own = dataclasses.replace(entry, state=PENDING, spec=self._task.args["spec"])
        others = [other for other in entries if other.id != entry.id]
        place = positions([*others, own], cluster, self._rules)[entry.id]
        return {
            "plan": None,
            "id": entry.id,
            "agents": [],
            "public_keys": {},
            "starts": [],
            "record": {**_pending_record(spec, entry, decision), "queue_position": place},
            "pending": describe_pending(decision),
            "no_room": {
                "unplaced": decision.unplaced,
                "missing": decision.missing,
                "blocking_sessions": decision.blocking_sessions,
            },
        }

    def _user(self) -> User:
        """Return who the session of this run belongs to: by default the user that runs Ansible."""
        user, uid = self._task.args.get("user"), int(self._task.args.get("user_uid", NO_UID))
        if uid == NO_UID:
            return (printable(user), None) if user else (getpass.getuser(), os.getuid())
        return printable(user or getpass.getuser()), uid

    @property
    def _is_limited(self) -> bool:
        """Whether a manager's policy says what the user of this run may have."""
        return bool(self._task.args.get("limits"))

    @property
    def _held(self) -> set[str]:
        """The ids of the sessions that the manager holds back."""
        return {*(self._task.args.get("held") or ())}

    @property
    def _limits(self) -> UserLimits:
        return limits_from(self._task.args.get("limits") or {})

    @property
    def _rules(self) -> QueuePolicy:
        args = self._task.args
        return QueuePolicy(args.get("policy", "fifo"), int(args.get("max_skips", 16)))

    def _cluster(self, variables: dict[str, Any], entries: Iterable[QueueEntry]) -> ClusterState:
        """Return the state of the agents, with the addresses that the inventory gives them if there are gateways."""
        cluster = self.with_inventory(self.cluster_state(self._task.args["agents"], variables, entries), variables)
        return self.with_addresses(cluster, variables) if self._task.args["pools"]["gateways"] else cluster

    def _pools(self) -> NetworkPools:
        pools = self._task.args["pools"]
        return NetworkPools(**{**pools, "sites": [Gateway(**site) for site in pools.get("sites") or ()]})

    def _free(self, cluster: ClusterState, entries: Collection[QueueEntry], own_id: str = "") -> ClusterState:
        """Return the state as it will be once other runs have claimed what they have planned."""
        ended = cluster.with_ended([entry.id for entry in entries if entry.has_ended])
        return self.with_reservations(ended.without_sessions(ending_ids(entries)), entries, own_id)

    def _judge_due(
        self, entries: Sequence[QueueEntry], own: QueueEntry, answers: Answers, cluster: ClusterState
    ) -> set[str]:
        """Judge the due sessions that ``own`` has to wait behind, until one does block.

        Return the ids of those that have room, and do not start for want of the groups of their users.
        """
        refused: set[str] = set()

        def blocks(due: QueueEntry) -> bool:
            if not answers.blocks(due):
                return False
            has_groups = due.state == PENDING and due.limited and self._task.args.get("groups")
            answer = answers.decide(due) if has_groups else None
            if isinstance(answer, Decision):
                refused.update(self._with_groups([(due, answer)], cluster)[1])
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
        barred = {*self._held, *self._limits.held_back(entries), *refused}
        others = (other for other in entries if other.id != entry.id)
        return waits_behind([*others, entry], entry, blocks, self._rules, barred)

    def _decide_request(
        self,
        spec: SessionSpec,
        cluster: ClusterState,
        entries: Sequence[QueueEntry],
        entry: QueueEntry,
        waits_for_due: Unschedulable | None,
    ) -> Decision | Unschedulable:
        """Return the decision about the request; after too many lost claims, the session stays pending."""
        args = self._task.args
        attempt, attempts = int(args.get("attempt", 1)), int(args.get("attempts", 5))
        if attempt > attempts:
            refusals = "; ".join(args.get("refused") or [])
            return Unschedulable(
                f"other runs claimed the resources first, {attempts} times in a row; last error: {refusals}", {}
            )
        try:
            decision = decide(spec, cluster, self._pools(), entry.id, entry.user, entry.updated_at)
        except (ValidationError, PlanningError) as error:
            if attempt == 1:
                raise
            return Unschedulable(as_phrase(error), {})
        if isinstance(decision, Decision) and decision.existing:
            return decision
        if entry.spec is None:
            check_time_limits(spec, self._pools())
        if isinstance(decision, Decision):
            waits = wait_for_agents(entry, cluster) or waits_for_due
            decision = waits or decision.with_uid(entry.user_uid)
        if entry.spec is None:
            containers = sum(role.replicas for role in spec.effective_roles)
            waits_now = isinstance(decision, Unschedulable)
            if waits_now:
                _check_not_away(spec.name, entries, cluster)
            self._limits.check((entry.user, entry.user_uid), containers, entries, waits=waits_now)
        return decision

    def _save_decision(
        self, queue: QueueStore, spec: SessionSpec, entry: QueueEntry, decision: Decision | Unschedulable
    ) -> None:
        """Save that the session is pending, or that this run starts it, so that a later run can finish a killed one.

        The entry of a session that a run has started stays as it is, but for its plan.
        """
        if self._task.check_mode:
            return
        if entry.state == RUNNING:
            if isinstance(decision, Decision) and decision.plan != entry.plan:
                queue.save(dataclasses.replace(entry, plan=decision.plan))
            return
        with_request = dataclasses.replace(entry, spec=dataclasses.asdict(spec))
        if isinstance(decision, Unschedulable):
            record = _pending_record(spec, entry, decision)
            queue.save(mark_pending(with_request, record, entry.updated_at))
            return
        queue.save(mark_creating(with_request, current_owner(), entry.updated_at, decision.plan))


def _is_same(current: QueueEntry | None, entry: QueueEntry) -> TypeGuard[QueueEntry]:
    """Return whether an entry is as it was, whatever its record says of why it waits."""
    return current is not None and dataclasses.replace(current, record=entry.record) == entry


def _give(decision: _Answer, entry: QueueEntry, groups: Membership | None, cluster: ClusterState) -> _Answer:
    """Return a decision with those of its user's groups that its plan gets. Raises :class:`PlanningError`.

    Those of operators' playbooks get none.
    """
    is_users = groups is not None and entry.limited and (entry.user, entry.user_uid) == (groups.user, groups.uid)
    if groups is None or not is_users or not isinstance(decision, Decision):
        return decision
    return decision.with_groups(groups.of_plan(decision.plan, cluster.facts))


def _pending_record(spec: SessionSpec, entry: QueueEntry, decision: Unschedulable) -> dict[str, Any]:
    """Return the record of a session that waits for capacity."""
    record = unplanned_record(spec, spec.name, "PENDING", entry.id, no_room=decision)
    return {**record, "user": entry.user, "uid": entry.user_uid, "created_at": entry.enqueued_at}


def _unfinished_ids(entries: Sequence[QueueEntry]) -> set[str]:
    """Return the ids of the sessions in the queue that no run has started, or that have to be removed."""
    return {entry.id for entry in entries if entry.unfinished}


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
