# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Creates a session, or repairs it, and reports what has become of it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...module_utils._model.errors import as_phrase, cause
from ...module_utils._model.session import MAIN1
from .._lifecycle.start_result import summarize_record
from .._queue.entry import PENDING
from .._report.access import render_access, session_links
from .._report.logs import logs_report, render_logs
from .._report.record import to_json, unplanned_record, with_command_end, with_next_end
from .._report.verification import AgentReports
from .new_session import NotPlannedError
from .reconciling import Reconciled
from .session_run import SessionRun
from .settling import Settled


@dataclasses.dataclass(frozen=True)
class Created:
    """The session of a run: its record, the links to it, and why it has failed, if it has.

    ``refused``: the session cannot be as it was asked for, and nothing was changed of it.
    """

    record: Mapping[str, Any]
    links: Sequence[Mapping[str, Any]] = ()
    error: str | None = None
    refused: bool = False


@dataclasses.dataclass(frozen=True)
class Ended:
    """A command that was waited for: its exit code, if that is known, and the ``log`` of one that has failed."""

    exit_code: int | None
    log: Sequence[str] = ()


def create(run: SessionRun) -> Created:
    """Create or repair the session of the request, and then start those that wait if there may be room for them.

    Whatever is raised, the session is complete, or undone on all agents that can be reached, and its record is written.
    """
    reconciled: Reconciled | None = None
    try:
        reconciled = run.reconcile(abandoned=False)
        settled, released = run.start_requested()
        run.hosts.update_gateways(run.routes_to([settled]))
        ended = _wait(run, settled) if _waits(run, settled) else None
        released = released or reconciled.releases_capacity
        later = run.start_waiting() if ended or (released and run.anything_waits()) else []
    except NotPlannedError as error:
        for text in error.warnings:
            run.outcome.warn(text)
        refused = _refused(run, str(error))
        if reconciled and reconciled.releases_capacity and run.anything_waits():
            run.start_waiting()
        return refused
    except BaseException as error:
        _let_go(run, error)
        raise
    return report(run, settled, later, ended)


def _refused(run: SessionRun, error: str) -> Created:
    spec = run.site.request.spec
    record = unplanned_record(spec, spec.name if spec else None, "ERROR", error=error)
    # An earlier attempt of this run may have planned it.
    run.release(as_phrase(error))
    run.write_record(record)
    # Without the agents that are away, it might have been another answer.
    return Created(record, error=error, refused=not run.outcome.unreachable)


def _let_go(run: SessionRun, error: BaseException) -> None:
    """Release what is not on agents, and record what has become of the session of the request."""
    reason, spec = cause(error), run.site.request.spec
    released: dict[str, Mapping[str, Any]] = {}
    try:
        released = {entry.name: entry.record for entry in run.release(reason)}
    finally:
        if spec and not run.recorded:
            text = _describe_end(run, spec.name, reason)
            run.write_record(released.get(spec.name) or unplanned_record(spec, spec.name, "ERROR", error=text))


def _describe_end(run: SessionRun, name: str, reason: str) -> str:
    if run.held:
        later = "the next run of backendai.cluster.schedule_sessions finds out what has become of it"
        return f"the session {name!r}: its state could not be saved: {reason}; {later}."
    return f"the session {name!r} was {'not repaired' if run.site.request.repair else 'not created'}: {reason}."


def _waits(run: SessionRun, settled: Settled) -> bool:
    """Return whether the run waits for the end of the session's command."""
    return settled.runs and run.site.request.run.wait and not run.site.check_mode


def _wait(run: SessionRun, settled: Settled) -> Ended:
    """Wait for the end of the command, and read the end of its log if it has failed."""
    session_id, agents = str(settled.record["id"]), settled.start.agents if settled.start else []
    exit_code = run.hosts.wait_for_end(session_id, agents[0])
    part = run.hosts.read_end_of_log(session_id, agents[0]) if exit_code != 0 else None
    if part is None:
        return Ended(exit_code)
    answers = AgentReports({agents[0]: [dict(part)]}, {})
    report = logs_report("", None, [(MAIN1, agents[0])], {agents[0]: part}, answers, MAIN1)
    return Ended(exit_code, list(render_logs(report)))


def report(run: SessionRun, settled: Settled, passed: Iterable[Settled], ended: Ended | None) -> Created:
    """Report the status of the session of this run, with its error if it has failed."""
    record, options = settled.record, run.site.request.run
    # A pending session may have been started since, and one that was waited for has ended.
    later = [other.record for other in passed if other.record["id"] == record["id"]]
    entry = run.site.queue.entry(str(record["id"])) if ended or record["status"] == PENDING else None
    if entry and entry.state == PENDING and not later:
        # The run's pass over the queue may have found another reason since.
        end = (record["pending"] or {}).get("next_end_at")
        later = [with_next_end({**record, "pending": entry.record.get("pending")}, end)]
    later += [entry.record] if entry and entry.has_ended and ended else []
    if entry is None and ended and ended.exit_code is not None:
        # Nothing is kept of sessions that have ended.
        later = [with_command_end(record, ended.exit_code, time.time())]
    if later:
        record = later[-1]
        run.write_record(record)
    links = session_links(str(record["id"]), run.hosts.links) if record["status"] == "RUNNING" else []
    run.edge.write(options.access_path, to_json(links))
    lines = summarize_record(record, check_mode=run.site.check_mode)
    known = [settled, *(other for other in passed if other.record["id"] == record["id"])]
    host_key = next((session.host_key for session in reversed(known) if session.host_key), "")
    run.edge.show([*lines, *render_access(str(record["name"]), links, host_key)])
    # The error of a failed start does not matter if a later one has succeeded.
    failed = settled.error if record["status"] != "RUNNING" else None
    error = failed or record["error"] or (_failure(record) if ended else None)
    if failed:
        run.edge.show(settled.printed_lines)
    if error and ended:
        run.edge.show(ended.log)
    return Created(record, links, error)


def _failure(record: Mapping[str, Any]) -> str | None:
    """Return the error of a session that was waited for; ``None`` if its command succeeded."""
    if record.get("ended_at") is None:
        return f"the session {record['name']!r} is still running: its agent became unreachable."
    return None if record["exit_code"] == 0 else f"the session {record['name']!r} has ended: {record['reason']}."
