# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan sessions from the facts of all agents and save their state in the queue, on the control node."""

from __future__ import annotations

import dataclasses
import getpass
import time
import uuid
from collections.abc import Collection, Sequence
from typing import Any

from ansible.errors import AnsibleActionFail

from ..module_utils._model.errors import as_phrase, as_sentence
from ..module_utils._model.validation import ValidationError
from ..plugin_utils._lifecycle.reconcile import find_terminating
from ..plugin_utils._placement.place import Unschedulable
from ..plugin_utils._planner.cluster_state import ClusterState
from ..plugin_utils._planner.decision import Decision, decide
from ..plugin_utils._planner.session_network import PlanningError
from ..plugin_utils._queue.entry import (
    CREATING,
    PENDING,
    TERMINATED,
    TERMINATING,
    QueueEntry,
    count_skips,
    mark_creating,
    mark_pending,
)
from ..plugin_utils._queue.schedule import QueuePolicy, schedule, waits_behind
from ..plugin_utils._queue.store import QueueStore, current_owner
from ..plugin_utils._report.record import describe_pending, to_json, unplanned_record
from ..plugin_utils._request.run_options import NetworkPools
from ..plugin_utils._request.spec import SessionSpec, check_same_request, fingerprint, spec_from_dict
from ..plugin_utils.control import ControlAction, start_arguments


class ActionModule(ControlAction):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result, variables = super().run(tmp, task_vars), task_vars or {}
        if not self._task.check_mode:
            self.queue(variables).make_digest_key()
        planned = self._plan_pending(variables) if self._task.args.get("queue") else self._plan_request(variables)
        return {**result, "changed": False, **planned}

    def _plan_pending(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Decide which pending sessions start now, and save in the queue why the others do not."""
        args, now = self._task.args, time.time()
        queue, rules = self.queue(variables), QueuePolicy(args.get("policy", "fifo"), int(args.get("max_skips", 16)))
        cluster, starts, specs = self.cluster_state(args["agents"], variables), [], {}
        before = {entry.id: entry for entry in self.entries(queue)}
        stale_ids = [
            session_id for _entry, ids in find_terminating(before.values(), cluster.sessions) for session_id in ids
        ]
        free = self.with_reservations(cluster.without_sessions(stale_ids), before.values())
        decisions = schedule(before.values(), free, NetworkPools(**args["pools"]), rules, now)
        # The queue is not locked while deciding, which may take long: entries that other runs have changed are skipped.
        with self.transaction(queue):
            current = {entry.id: entry for entry in self.entries(queue)}
            for entry, decision in decisions:
                if current.get(entry.id) != before[entry.id]:
                    continue
                if isinstance(decision, Decision):
                    specs[entry.name] = entry.spec or {}
                    request, key = spec_from_dict(specs[entry.name]), cluster.digest_key
                    starts.append(start_arguments(decision, request, stale_ids, never_completed=True, digest_key=key))
                    changed = mark_creating(entry, current_owner(), now, decision.plan)
                else:
                    changed = mark_pending(
                        entry, {**entry.record, "pending": describe_pending(decision)}, entry.updated_at
                    )
                if not self._task.check_mode:
                    queue.save(changed)
        agents = list(dict.fromkeys(agent for start in starts for agent in start["agents"]))
        self.invalidate_facts(agents, variables)
        # The user's environment may hold secrets.
        return {"starts": starts, "agents": agents, "specs": specs, "_ansible_no_log": bool(specs)}

    def _plan_request(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Plan the requested session, and save in the queue that this run starts it, or that it is pending."""
        args = self._task.args
        spec, cluster = spec_from_dict(args["spec"]), self.cluster_state(args["agents"], variables)
        queue = self.queue(variables)
        try:
            with self.transaction(queue):
                entries = self.entries(queue)
                entry = _find_or_make_entry(
                    spec, entries, cluster.sessions, args.get("user") or getpass.getuser(), time.time()
                )
                stale_ids = [
                    session_id for _entry, ids in find_terminating(entries, cluster.sessions) for session_id in ids
                ]
                planned = self.with_reservations(cluster.without_sessions(stale_ids), entries, entry.id)
                decision = self._decide_request(spec, planned, entries, entry)
                self._save_decision(queue, spec, entries, entry, decision)
        except (ValidationError, PlanningError) as error:
            sentence = as_sentence(str(error))
            self.write_report(
                args.get("record_path", ""), to_json(unplanned_record(spec, spec.name, "ERROR", error=sentence))
            )
            # Warnings of agents may explain the failure, and Ansible shows no warnings of a failed task.
            for warning in self.warnings(cluster):
                self._display.warning(warning)
            raise AnsibleActionFail(sentence) from None
        result = {"warnings": self.warnings(cluster), "queued": entry.spec is not None}
        if isinstance(decision, Unschedulable):
            details = {
                "unplaced": decision.unplaced,
                "missing": decision.missing,
                "blocking_sessions": decision.blocking_sessions,
            }
            capacity_released = planned.in_flight or any(
                _releases_capacity(other, float(args.get("started_at", 0.0))) for other in entries
            )
            pending_result: dict[str, Any] = {
                "plan": None,
                "id": entry.id,
                "agents": [],
                "public_keys": {},
                "capacity_released": capacity_released,
            }
            pending_result["starts"] = []
            record = unplanned_record(spec, spec.name, "PENDING", entry.id, no_room=decision)
            return {
                **result,
                **pending_result,
                "record": record,
                "pending": describe_pending(decision),
                "no_room": details,
            }
        self.invalidate_facts(decision.plan.agents, variables)
        new = "".join(f"{line}\n" for line in decision.plan.lines()) if not decision.existing else ""
        never_completed = decision.plan.id in _unfinished_ids(entries)
        start = start_arguments(
            decision, spec, stale_ids, never_completed=never_completed, digest_key=cluster.digest_key
        )
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

    def _decide_request(
        self, spec: SessionSpec, cluster: ClusterState, entries: Sequence[QueueEntry], entry: QueueEntry
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
            decision = decide(spec, cluster, NetworkPools(**args["pools"]), entry.id, entry.user, entry.updated_at)
        except (ValidationError, PlanningError) as error:
            if attempt == 1:
                raise
            return Unschedulable(as_phrase(error), {})
        if isinstance(decision, Unschedulable) or decision.existing:
            return decision
        rules = QueuePolicy(args.get("policy", "fifo"), int(args.get("max_skips", 16)))
        return waits_behind(entries, entry, cluster, rules) or decision

    def _save_decision(
        self,
        queue: QueueStore,
        spec: SessionSpec,
        entries: Sequence[QueueEntry],
        entry: QueueEntry,
        decision: Decision | Unschedulable,
    ) -> None:
        """Save that the session is pending, or that this run starts it, so that a later run can finish a killed one.

        A session that all agents have committed needs no entry, unless a killed run has left one.
        """
        if self._task.check_mode:
            return
        if isinstance(decision, Unschedulable):
            record = unplanned_record(spec, spec.name, "PENDING", entry.id, no_room=decision)
            queue.save(
                mark_pending(dataclasses.replace(entry, spec=dataclasses.asdict(spec)), record, entry.updated_at)
            )
            return
        if entry.id != decision.plan.id:
            # The pending session and that of an agent that has returned are the same.
            queue.remove(entry.id)
        if decision.public_keys and decision.plan.id not in _unfinished_ids(entries):
            return
        owned = dataclasses.replace(entry, id=decision.plan.id)
        queue.save(mark_creating(owned, current_owner(), entry.updated_at, decision.plan))
        if not decision.existing and int(self._task.args.get("attempt", 1)) == 1:
            for passed in count_skips(entries, entry):
                queue.save(passed)


def _unfinished_ids(entries: Sequence[QueueEntry]) -> set[str]:
    """Return the ids of the sessions in the queue that have not ended."""
    return {entry.id for entry in entries if entry.state != TERMINATED}


def _releases_capacity(entry: QueueEntry, since: float) -> bool:
    """Return whether a session is terminating, or has ended since the agents were read."""
    return entry.state == TERMINATING or (entry.state == TERMINATED and entry.updated_at >= since)


def _find_or_make_entry(
    spec: SessionSpec, entries: Sequence[QueueEntry], held_ids: Collection[str], user: str, now: float
) -> QueueEntry:
    """Return the queue's entry of a session that is pending or starting, else a new one.

    Raises :class:`ValidationError` if the pending session has another request, and if another run starts it and has
    claimed nothing yet: only claimed sessions can be taken over.
    """
    for entry in entries:
        if entry.name == spec.name and entry.state in (PENDING, CREATING):
            if entry.spec is not None:
                before = fingerprint(spec_from_dict(entry.spec), entry.id)
                check_same_request(spec, before, entry.id, "PENDING")
            if entry.owner is not None and entry.owner != current_owner() and entry.id not in held_ids:
                other = f"another run, process {entry.owner.pid}"
                raise ValidationError(f"session_name: {spec.name!r} is being started by {other}; wait for it")
            return dataclasses.replace(entry, updated_at=now)
    session_id = str(uuid.uuid4())
    return QueueEntry(
        id=session_id,
        name=spec.name,
        state=CREATING,
        user=user,
        resource_group=spec.resource_group,
        priority=spec.priority,
        spec=None,
        record=unplanned_record(spec, spec.name, "CREATING", session_id),
        enqueued_at=now,
        updated_at=now,
        pending_timeout=spec.pending_timeout,
    )
