# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find the sessions to end or restart, and save them in the queue, on the control node."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Mapping
from typing import Any

from ..plugin_utils._lifecycle.absence import describe_cut_off, end_lost
from ..plugin_utils._lifecycle.reconcile import ReconcileActions, reconcile
from ..plugin_utils._lifecycle.routes import build_gateway_update, find_vacated, reachable_plans, sent_ids
from ..plugin_utils._lifecycle.termination import add_end_results
from ..plugin_utils._planner.cluster_state import ClusterState
from ..plugin_utils._queue.entry import PENDING, RUNNING, TERMINATING, QueueEntry, expired_history, recorded_plans
from ..plugin_utils._queue.policy import DEFAULT_MAX_SKIPS, still_counted
from ..plugin_utils._queue.store import BATCH, QueueStore
from ..plugin_utils.absence_file import load_absences, save_absences
from ..plugin_utils.control import ControlAction, registered

# The variable of each agent with the result of its last reap.
REAPED = "__session_reap"

LOST_SECONDS = 600
"""After how long an agent that does not answer is lost, unless the operator says otherwise."""


class ActionModule(ControlAction):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        args, now = self._task.args, time.time()
        cluster, queue = self.cluster_state(args["agents"], task_vars or {}), self.queue(task_vars or {})
        surveyed_since = float(args.get("started_at") or 0.0)
        unreachable = [name for name in args["agents"] if name not in cluster.facts]
        # Before the lock is taken: under it, only entries that have changed since are parsed.
        self.entries(queue)
        end_results = self._end_results(task_vars or {})
        with self.transaction(queue):
            entries = self.entries(queue)
            cluster = dataclasses.replace(cluster, records=recorded_plans(entries))
            abandoned = bool(args.get("abandoned"))
            away, answered = self.attendance(args["agents"], task_vars or {})
            if len(away) + len(answered) < len(args["agents"]):
                # What some say, as with --limit, does not show whether this control node is cut off.
                away, answered = [], []
            before = load_absences(queue.path)
            absences = before.after(away, answered, float(args.get("started_at") or now), now)
            lost_after = int(args.get("agent_lost_after", LOST_SECONDS))
            lost = absences.lost(away, answered, lost_after)
            gone = {entry.id: entry for entry in end_lost(entries, cluster.sessions, lost, lost_after, now)}
            current = [gone.get(entry.id, entry) for entry in entries]
            read = {name: facts.damaged_sessions for name, facts in cluster.facts.items()}
            current = [
                dataclasses.replace(entry, record=add_end_results(entry.record, end_results[entry.id]))
                if entry.state == TERMINATING and entry.id in end_results
                else entry
                for entry in current
            ]
            actions = reconcile(current, cluster.held, unreachable, abandoned, now, read, surveyed_since)
            to_save = [*{**gone, **{entry.id: entry for entry in actions.entries_to_save}}.values()]
            if not self._task.check_mode:
                save_absences(queue.path, before, absences)
                queue.save(*to_save[:BATCH])
        needed = still_counted(entries, int(args.get("max_skips", DEFAULT_MAX_SKIPS)))
        old = expired_history(entries, now, int(args.get("history_days", 30)))
        expired = [entry for entry in old if entry.id not in needed]
        if not self._task.check_mode:
            self._save_others(queue, entries, to_save[BATCH:])
            for batch in queue.batches(expired):
                queue.remove(*(entry.id for entry in batch))
        ending_ids = {entry.id for entry in entries if entry.state == TERMINATING}
        self.show(
            f"Session {entry.name} is {entry.record['status']}: {entry.record['reason']}."
            for entry in to_save
            if entry.id not in ending_ids and entry.state not in (PENDING, RUNNING)
        )
        if args.get("all_routes"):
            cluster = self.with_addresses(cluster, task_vars or {})
        return {
            **result,
            "changed": False,
            "warnings": describe_cut_off(away, answered),
            "end": actions.end,
            "restart": actions.restart,
            "agents": actions.agents,
            "reserving": sorted(find_vacated(cluster)) if args.get("all_routes") else [],
            "routes": self._routes(
                cluster, self.entries(queue) if to_save or expired else entries, actions, task_vars or {}
            ),
        }

    def _end_results(self, variables: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
        """Return what agents of this run have reported of the ends of sessions, by session id."""
        results: dict[str, list[Mapping[str, Any]]] = {}
        for name in self._task.args["agents"]:
            reaped = registered(name, variables["hostvars"]).get(REAPED) or {}
            for session_id, result in (reaped.get("ends") or {}).items():
                results.setdefault(session_id, []).append(result)
        return results

    def _save_others(self, queue: QueueStore, entries: Iterable[QueueEntry], others: Iterable[QueueEntry]) -> None:
        """Save the changes that do not fit in one batch, except of entries that other runs have changed since."""
        before = {entry.id: entry for entry in entries}
        for batch in queue.batches(others):
            queue.save(*(entry for entry in batch if self.entry(queue, entry.id) == before.get(entry.id)))

    def _routes(
        self,
        cluster: ClusterState,
        entries: Iterable[QueueEntry],
        actions: ReconcileActions,
        variables: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Return the update of gateways before agents end sessions: those, and with ``all_routes`` all others.

        ``reserving`` are agents with ports of sessions that ended while a gateway could not be reached.
        """
        args = self._task.args
        ending = {session_id for ids in actions.end.values() for session_id in ids if not self._task.check_mode}
        if args.get("all_routes"):
            vacated = [session for sessions in find_vacated(cluster).values() for session in sessions]
            return build_gateway_update(reachable_plans(cluster), entries, 0.0, ending=ending, vacated=vacated)
        previous = sent_ids(variables["hostvars"]["localhost"].get(name) for name in args.get("previous") or ())
        return build_gateway_update([], entries, float(args.get("started_at") or 0), previous, ending=ending)
