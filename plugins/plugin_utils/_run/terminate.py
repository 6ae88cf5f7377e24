# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ends a session, or cancels one that waits."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._model.errors import as_sentence, cause
from ...module_utils._model.validation import ValidationError
from .._lifecycle.routes import build_gateway_update
from .._lifecycle.start_result import summarize_record
from .._lifecycle.termination import Termination, add_end_results, end_session
from .._planner.session_network import PlanningError
from .._queue.entry import TERMINATED, TERMINATING, mark_terminated, recorded_plans
from ..agent_results import HIDDEN
from ..cluster_view import read_answers, warnings_about
from .session_run import SessionRun


class NotEndedError(Exception):
    """The session cannot be ended, or not on all of its agents. The message is one sentence, or one for each agent."""


def terminate(run: SessionRun) -> Mapping[str, Any]:
    """End the session of the request, start those that wait, and return the record. Raises :class:`NotEndedError`."""
    try:
        run.reconcile(abandoned=False)
        end = _begin(run)
        # Before the agents remove it: they keep its ports reserved unless all gateways have removed its route.
        update = build_gateway_update([], run.site.entries(), run.site.request.started_at, run.hosts.sent)
        run.hosts.update_gateways(update)
        record = _remove(run, end, run.hosts.unrouted(update))
        if run.anything_waits():
            run.start_waiting()
    except NotEndedError:
        raise
    except BaseException as error:
        run.release(cause(error))
        raise
    return record


def _begin(run: SessionRun) -> Termination:
    """Find the session, and mark it as terminating in the queue before anything is changed."""
    site, options = run.site, run.site.request.run
    cluster = read_answers(run.hosts.answers)
    excluded = {name: HIDDEN for name in site.agents if not cluster.was_read(name)}
    cluster = dataclasses.replace(cluster, unavailable={**excluded, **cluster.unavailable})
    for text in warnings_about(cluster):
        run.outcome.warn(text)
    # Parsed before the lock is taken: under it, only what has changed since.
    site.entries()
    with site.transaction():
        entries = site.entries()
        cluster = dataclasses.replace(cluster, records=recorded_plans(entries))
        try:
            end = end_session(options.name, options.id, entries, cluster, force=options.force, now=time.time())
        except (ValidationError, PlanningError) as error:
            raise NotEndedError(as_sentence(str(error))) from None
        if end.note and not site.check_mode:
            site.queue.save(end.note)
    began = {entry.id for entry in entries if entry.state == TERMINATING}
    run.outcome.changed |= end.note is not None and end.note.id not in began
    return end


def _remove(run: SessionRun, end: Termination, unrouted: Sequence[str]) -> dict[str, Any]:
    """Have agents remove the session, and return its final record, which is written.

    Agents on which it could not be removed are kept in the queue, as is what the others have said of its end.
    """
    site, options = run.site, run.site.request.run
    ends, failures = run.hosts.remove(end.record["id"], end.agents, unrouted) if end.agents else ({}, {})
    record = add_end_results(end.record, ends)
    left = [*end.unreachable, *failures]
    with site.transaction():
        entry = site.queue.entry(record["id"]) if record["id"] else None
        if entry and entry.state == TERMINATED:
            # Another run has ended it meanwhile: what both were told is true.
            record = add_end_results(entry.record, ends)
        if entry and entry.state in (TERMINATING, TERMINATED) and not site.check_mode:
            remaining = dataclasses.replace(entry, agents=tuple(left), record=record)
            ended = entry.state == TERMINATED or not left
            site.queue.save(mark_terminated(entry, record, time.time()) if ended else remaining)
    # One that waits has nothing yet that people use.
    if failures and not options.force and end.record["status"] != "CANCELLED":
        raise NotEndedError(" ".join(f"{name}: {as_sentence(text)}" for name, text in failures.items()))
    for name, text in failures.items():
        run.outcome.warn(f"{name}: {as_sentence(text)}")
    run.write_record(record)
    run.edge.show(summarize_record(record, check_mode=site.check_mode))
    if left:
        run.edge.show([f"  {', '.join(left)}: the next run that reaches it removes the session there."])
    return record
