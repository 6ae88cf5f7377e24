# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writes the results of session starts to the queue, and makes their records."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Collection, Iterable
from typing import Any

from ...module_utils._model.images import images_from_dict
from ...module_utils._model.plan import SessionPlan
from ...module_utils._model.printable import printable_line
from ...module_utils._model.session import MAIN1
from .._lifecycle.start_result import StartResult, combine_replies, requeue_or_end
from .._lifecycle.start_steps import Start
from .._queue.entry import CREATING, PENDING, QueueEntry, mark_running
from .._queue.owner import current_owner
from .._report.record import session_record
from .site import Site


@dataclasses.dataclass(frozen=True)
class Settled:
    """A session whose start is over: its record, the error if it failed, and what its containers printed before.

    ``start`` is that of one that was started, ``None`` for one that waits.
    """

    record: dict[str, Any]
    error: str | None = None
    printed: tuple[str, ...] = ()
    start: Start | None = None

    @property
    def runs(self) -> bool:
        """Whether the session has started."""
        return bool(self.record["status"] == "RUNNING")

    @property
    def printed_lines(self) -> list[str]:
        """What containers of a failed start printed last, to be shown; it is in no record."""
        return [f"  {printable_line(line)}" for line in self.printed]

    @property
    def host_key(self) -> str:
        """The public host key of main1; empty if this run does not have it."""
        keys = self.start.public_keys if self.start else {}
        return str(keys.get(MAIN1, {}).get("host") or "")

    @property
    def routed_plan(self) -> SessionPlan | None:
        """The plan of a session that has started, if gateways may get a route to it."""
        routed = self.start and self.runs and not self.start.decided["route_problem"]
        return SessionPlan.from_dict(self.start.decided["plan"]) if self.start and routed else None


def settle(site: Site, start: Start) -> Settled:
    """Update the queue after a start, and return the record and the error of the session."""
    plan = SessionPlan.from_dict(start.decided["plan"])
    replies = {agent: start.outcome_on(agent) for agent in plan.agents}
    broken = "" if start.complete else start.broken
    outcome = combine_replies(plan, replies, repairs=start.repairs, broken=broken)
    keys = start.host_keys(plan.kernels)
    record = session_record(plan, outcome.status, outcome.containers, outcome.error, keys)
    record = _update_queue(site, start, record, outcome)
    return Settled(record, record["error"] or outcome.error, outcome.printed, start)


def _update_queue(site: Site, start: Start, record: dict[str, Any], outcome: StartResult) -> dict[str, Any]:
    """Update the queue, unless a later run has taken the session over, and return the current record.

    A session that is requeued, or has been settled before, has the record of its queue entry.
    """
    if site.check_mode:
        return record
    with site.queue.lock():
        entry = site.queue.entry(start.id)
        if entry is None:
            return record
        if entry.state == PENDING or entry.has_ended:
            # It was settled before, and the run was interrupted since: the record says what the queue does.
            return entry.record
        if entry.state != CREATING or entry.owner != current_owner():
            return {**record, "created_at": entry.enqueued_at}
        if outcome.status == "RUNNING":
            # All agents have the same images.
            images = images_from_dict(start.images).values()
            by_name = {name: image for held in images for name, image in held.items()}
            running = mark_running(entry, time.time(), record, by_name)
            site.queue.save(running)
            return running.record
        failed = {**record, "error": outcome.error_at_end}
        kept = requeue_or_end(entry, failed, outcome, time.time())
        site.queue.save(kept)
        return kept.record if kept.state == PENDING else failed


def release(site: Site, reason: str, held: Collection[str]) -> list[QueueEntry]:
    """Let go of the sessions that this process still owns, because it ends for a ``reason``; return their entries.

    Those of which agents may have something (``held``) are left to the next pass over the queue, which finds out what
    they have become. Of the others, one that waits for a start waits on, and the rest ends.
    """
    if site.check_mode:
        return []
    released = []
    with site.queue.lock():
        for entry in site.queue.entries():
            if entry.state == CREATING and entry.owner == current_owner() and entry.id not in held:
                outcome = StartResult("ERROR", {}, f"the session {entry.name!r} was not created: {reason}.")
                outcome = dataclasses.replace(outcome, broken=reason)
                record = {**entry.record, "status": "ERROR", "error": outcome.error}
                released.append(requeue_or_end(entry, record, outcome, time.time()))
        site.queue.save(*released)
    return released


def waits(entries: Iterable[QueueEntry]) -> bool:
    """Return whether something is left to do in the queue."""
    return any(entry.unfinished for entry in entries)
