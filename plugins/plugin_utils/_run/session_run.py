# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stages of runs that change sessions: create or repair one, end one, or start those that wait.

Their stages: survey, reconcile, plan, start, record, routes. A run that is interrupted undoes what is not complete, and
writes down what has become of it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from ...module_utils._model.errors import as_phrase
from .._lifecycle.routes import build_gateway_update
from .._lifecycle.start import Starting
from .._lifecycle.start_result import summarize_record
from .._queue.entry import QueueEntry
from .._report.record import to_json
from .._request.spec import SessionSpec
from ..survey import problems_of
from .crew import AgentCrew
from .hosts import Hosts
from .new_session import Planned, plan_session
from .outcome import Outcome
from .reconciling import Ends, Reconciled, reconcile_queue
from .requests import Requests
from .settling import Settled, release, settle, waits
from .site import Site
from .waiting_sessions import plan_waiting


class Edge(Protocol):
    """What a run needs of the task that it runs in."""

    forks: int

    def requests(self, specs: Mapping[str, SessionSpec], *, several: bool) -> Requests:
        """Return what builds the requests to agents about these sessions, by id."""

    def show(self, lines: Iterable[str]) -> None:
        """Show lines to the user."""

    def write(self, path: str, content: str) -> None:
        """Write a file that the user has asked for, unless the path is empty."""


class SessionRun:
    """A run that changes sessions on ``hosts``; what it does goes to ``outcome``."""

    def __init__(self, site: Site, hosts: Hosts, edge: Edge, outcome: Outcome) -> None:
        self.site, self.hosts, self.edge, self.outcome = site, hosts, edge, outcome
        self.recorded = False
        """Whether the record of the session of the request has been written."""
        self._begun: list[Starting] = []
        self._told: set[str] = set()

    def reconcile(self, *, abandoned: bool, all_routes: bool = False) -> Reconciled:
        """Survey the agents, and terminate or restart the sessions that need it."""
        self.hosts.survey()
        found = self._reconcile({}, abandoned=abandoned, all_routes=all_routes)
        # Before agents remove the sessions: the ports of one become free when all gateways have removed its route.
        self.hosts.update_gateways(found.routes)
        ends = self.hosts.reap(found)
        return self._reconcile(ends, abandoned=abandoned, all_routes=all_routes) if found.agents else found

    def _reconcile(self, ends: Ends, *, abandoned: bool, all_routes: bool) -> Reconciled:
        found = reconcile_queue(
            self.site,
            self.hosts.answers,
            ends,
            abandoned=abandoned,
            all_routes=all_routes,
            sent=self.hosts.sent,
        )
        # In check mode, the same is found again each time.
        self.edge.show([line for line in found.lines if line not in self._told])
        self._told.update(found.lines)
        for text in found.warnings:
            self.outcome.warn(text)
        return found

    def start_requested(self) -> tuple[Settled, bool]:
        """Plan and start the session of the request; return what has become of it, and whether room may be free.

        If other runs were faster to claim the resources, it is planned again. Raises :class:`NotPlannedError`.
        """
        refused: list[str] = []
        attempt = 1
        while True:
            planned = plan_session(self.site, self.hosts.answers, attempt, refused)
            self._note_plan(planned)
            if planned.start is None:
                settled = Settled(planned.record or {})
                self.write_record(settled.record)
                break
            settled = self._start_own(self._starting([planned.start], {planned.id: planned.spec}))
            if settled.record:
                break
            refused, attempt = settled.start.refusals if settled.start else [], attempt + 1
            # Other runs wait for another time.
            time.sleep(random.randint(1, attempt))
            self.hosts.survey()
        return settled, planned.capacity_released or attempt > 1 or bool(settled.error)

    def _start_own(self, starting: Starting) -> Settled:
        """Start the session of the request; without a record, other runs were faster: it has to be planned again."""
        try:
            with starting.undone_unless_complete():
                starting.start()
                (start,) = starting.starts
                again = start.refusals and not self._has_been_ended(start.id)
                settled = Settled({}, start=start) if again else settle(self.site, start)
            if settled.record:
                self.write_record(settled.record)
        except BaseException:
            # Again, if it has been settled already: nobody can say at which moment the run was interrupted.
            for start in starting.starts:
                self.write_record(settle(self.site, start).record)
            raise
        return settled

    def _has_been_ended(self, session_id: str) -> bool:
        """Return whether another run has ended a session meanwhile."""
        entry = self.site.queue.entry(session_id)
        return entry is not None and entry.has_ended

    def start_waiting(self, *, all_routes: bool = False) -> list[Settled]:
        """Start the pending sessions for which there is capacity; return what has become of them.

        Those with slow bootstrap scripts come last: the others need not wait for them.
        """
        self.reconcile(abandoned=True, all_routes=all_routes)
        planned = plan_waiting(self.site, self.hosts.answers) if not self.site.rules.starts_none else None
        if not planned or not planned.starts:
            return []
        for text in planned.warnings:
            self.outcome.warn(text)
        starting = self._starting(planned.starts, planned.specs)
        settled: dict[str, Settled] = {}
        try:
            with starting.undone_unless_complete():
                starting.start()
                self.hosts.update_gateways(self.routes_to(self._settle(starting, settled)))
                starting.complete_slow()
                slow = self._settle(starting, settled)
        except BaseException:
            self._settle(starting, settled)
            raise
        if slow:
            self.hosts.update_gateways(self.routes_to(slow))
        return list(settled.values())

    def routes_to(self, sessions: Iterable[Settled]) -> dict[str, Any]:
        """Return the update of gateways with these sessions, and with all that have ended since the run began."""
        plans = [plan for session in sessions if (plan := session.routed_plan)]
        return build_gateway_update(plans, self.site.entries(), self.site.request.started_at, self.hosts.sent)

    def anything_waits(self) -> bool:
        """Return whether something is left to do in the queue."""
        return waits(self.site.entries())

    def release(self, reason: str) -> list[QueueEntry]:
        """Let go of sessions that are not on agents, because this process ends for a reason; return their entries."""
        return release(self.site, reason, self.held)

    @property
    def held(self) -> set[str]:
        """The ids of the sessions that this run has begun to start, and of which agents may have something."""
        return {start.id for starting in self._begun for start in starting.starts if start.may_be_held}

    @property
    def unavailable(self) -> dict[str, dict[str, str]]:
        """The agents without facts, by name, with the problem and the reason."""
        reasons = {
            name: as_phrase(answer.get("error") or answer.get("msg") or "it returned no facts")
            for name, answer in self.hosts.answers.items()
            if not answer.get("agent")
        }
        return problems_of(self.site.agents, self.hosts.answers, reasons)

    def _settle(self, starting: Starting, settled: dict[str, Settled]) -> list[Settled]:
        """Record and show the results of those sessions that wait for nothing any more, and return them."""
        new = [
            settle(self.site, start)
            for start in starting.starts
            if start.id not in settled and (start.broken or not start.starting)
        ]
        for session in new:
            settled[str(session.record["id"])] = session
            lines = summarize_record(session.record, check_mode=self.site.check_mode)
            self.edge.show([*lines, *session.printed_lines])
        return new

    def _starting(self, decided: list[dict[str, Any]], specs: Mapping[str, SessionSpec]) -> Starting:
        requests = self.edge.requests(specs, several=len(decided) > 1)
        crew = AgentCrew(self.hosts.agents, requests, self.outcome, self.site.request.run.claim_ttl)
        starting = Starting(decided, crew, self.edge.forks, undo=not self.site.check_mode)
        self._begun.append(starting)
        return starting

    def _note_plan(self, planned: Planned) -> None:
        for text in planned.warnings:
            self.outcome.warn(text)
        self.outcome.notes += planned.notes
        self.edge.show(planned.notes)
        if planned.description:
            self.outcome.plan(str(planned.start and planned.start["plan"]["name"]), planned.description)
            # A plan changes nothing. In check mode, the session that would be created counts, so that --diff shows it.
            self.outcome.changed |= self.site.check_mode

    def write_record(self, record: Mapping[str, Any]) -> None:
        """Write the record of the session of the request, if the user has asked for a file."""
        self.edge.write(self.site.request.run.record_path, to_json(record))
        self.recorded = True
