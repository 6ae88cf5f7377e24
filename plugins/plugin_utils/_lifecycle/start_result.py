# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Combines the results of all agents into one status, one error message and one queue entry."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ...module_utils._model.errors import as_phrase
from ...module_utils._model.held_session import ContainerState
from ...module_utils._model.plain_data import from_plain
from ...module_utils._model.plan import SessionPlan
from .._queue.entry import QueueEntry, mark_pending, mark_terminated, mark_terminating
from .._report.record import ended_record

# How many starts of a PENDING session may fail before it ends with ERROR.
MAX_STARTS = 3


@dataclasses.dataclass(frozen=True)
class StartResult:
    """The result of a start: its status, the containers' states by hostname, and why it failed or was refused.

    ``printed`` are the last lines of containers that failed, for the terminal only. ``holding`` are the agents from
    which a session that was not created could not be removed. ``broken`` is why the run itself could not go on.
    """

    status: str
    containers: dict[str, ContainerState]
    error: str | None = None
    refused: str = ""
    printed: tuple[str, ...] = ()
    holding: tuple[str, ...] = ()
    broken: str = ""

    @property
    def error_at_end(self) -> str | None:
        """The error for a session that is not started again, with what becomes of the parts that agents may hold."""
        if not self.error or not self.holding:
            return self.error
        return (
            f"{as_phrase(self.error)}; {', '.join(self.holding)} may still hold a part of it: the next run of"
            " backendai.cluster.schedule_sessions removes it once the agent can be used again."
        )


def combine_replies(
    plan: SessionPlan, replies: Mapping[str, Mapping[str, Any] | None], *, repairs: bool, broken: str = ""
) -> StartResult:
    """Return the result of a start from the reply of each agent, ``None`` for one that became unreachable.

    A reply has ``failed`` (why), ``refused`` (why), ``containers``, ``rollback_failed``, and what containers
    ``printed``. ``repairs``: an earlier run has started the session, and what that has committed stays. ``broken`` is
    why the run could not complete the start, if it is so, as a phrase.
    """
    results = {agent: reply or {"failed": "", "rollback_failed": True} for agent, reply in replies.items()}
    if broken:
        holding = () if repairs else tuple(agent for agent, result in results.items() if result.get("rollback_failed"))
        return StartResult("ERROR", {}, f"{_outcome(plan, repairs=repairs)}: {broken}.", holding=holding, broken=broken)
    if any("failed" in result for result in results.values()):
        failed_rollbacks = [agent for agent, result in results.items() if result.get("rollback_failed")]
        holding = () if repairs else tuple(failed_rollbacks)
        error = _describe_failure(plan, results, repairs=repairs)
        printed = [f"{agent}: {line}" for agent, result in results.items() for line in result.get("printed") or ()]
        return StartResult("ERROR", {}, error, printed=tuple(printed), holding=holding)
    refusals = [result["refused"] for result in results.values() if result.get("refused")]
    if refusals:
        return StartResult("PENDING", {}, refused="; ".join(refusals))
    states = {name: data for result in results.values() for name, data in result["containers"].items()}
    return StartResult("RUNNING", {name: _parse_state(name, data) for name, data in states.items()})


def requeue_or_end(entry: QueueEntry, record: dict[str, Any], outcome: StartResult, now: float) -> QueueEntry:
    """Return the entry of a session that was not started: PENDING again, or at its end after :data:`MAX_STARTS`.

    It is TERMINATING while agents may hold a part of it: the next run that reaches them removes it.
    """
    if outcome.broken and entry.waits_for_start:
        # Its own start has not failed.
        return mark_pending(entry, _pending_record(entry, f"it will be retried: {outcome.broken}"), now)
    if outcome.status == "PENDING":
        return mark_pending(entry, _pending_record(entry, f"it will be retried: {outcome.refused}"), now)
    if not entry.waits_for_start or entry.attempts + 1 >= MAX_STARTS:
        ended = ended_record(record, "ERROR", outcome.error_at_end or "", None, entry.enqueued_at, now)
        return (
            mark_terminating(entry, ended, outcome.holding, now)
            if outcome.holding
            else mark_terminated(entry, ended, now)
        )
    reason = f"start {entry.attempts + 1} of {MAX_STARTS} failed: {as_phrase(outcome.error or '')}"
    return mark_pending(entry, _pending_record(entry, reason), now, failed=True)


def summarize_record(record: Mapping[str, Any], *, check_mode: bool) -> list[str]:
    """Return a record as a few lines of text."""
    name = record["name"] or record["id"]
    if check_mode and record["status"] in ("RUNNING", "TERMINATED", "CANCELLED"):
        return [f"Session {name} was not touched: this is check mode."]
    lines = [f"Session {name} is {record['status']}."]
    if record["pending"]:
        lines += [f"  {record['pending'][name]}" for name in ("reason", "outlook") if name in record["pending"]]
    if record["status"] == "RUNNING":
        lines += [
            f"  {kernel['hostname']:<8} {kernel['agent']:<16} {kernel['address'] or '-'}"
            for kernel in record["kernels"]
        ]
    return lines


def _parse_state(hostname: str, data: object) -> ContainerState:
    return from_plain(ContainerState, data, f"the state of {hostname} is damaged")


def _pending_record(entry: QueueEntry, reason: str) -> dict[str, Any]:
    return {**entry.record, "status": "PENDING", "pending": {"reason": reason, "shortfall": {}}}


def _describe_failure(plan: SessionPlan, results: Mapping[str, Mapping[str, Any]], *, repairs: bool) -> str:
    """Return the errors of the agents."""
    failures = [f"{agent}: {as_phrase(result['failed'])}" for agent, result in results.items() if result.get("failed")]
    sentences = failures or ["an agent became unreachable during the start"]
    return f"{_outcome(plan, repairs=repairs)}: {'; '.join(sentences)}."


def _outcome(plan: SessionPlan, *, repairs: bool) -> str:
    outcome = "not repaired, and what ran before still runs" if repairs else "not created"
    return f"the session {plan.name!r} was {outcome}"
