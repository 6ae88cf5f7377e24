# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The logs of a session's containers: combines the results of its agents into one report, and renders it as text."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...module_utils._model.plan import Kernel, SessionPlan
from ...module_utils._model.printable import printable
from ...module_utils._model.strict_json import parse_json
from .._queue.entry import CREATING, PENDING, QueueEntry
from .verification import AgentReports, SessionNotFoundError, select_session


def select_logs(
    name: str, session_id: str, answers: AgentReports, entries: Sequence[QueueEntry]
) -> dict[str, Mapping[str, Any]]:
    """Return the parts of the selected session by agent; if none of that name lives, of the last one that ended.

    Raises :class:`SessionNotFoundError`, also if agents have kept nothing of it.
    """
    live = {agent: [part for part in parts if part.get("ended_at") is None] for agent, parts in answers.parts.items()}
    waiting = [entry for entry in entries if entry.state in (PENDING, CREATING) and entry.name == name]
    if any(live.values()) or (waiting and not session_id):
        answers = dataclasses.replace(answers, parts=live)
    elif any(answers.parts.values()):
        plans = [part["plan"] for parts in answers.parts.values() for part in parts]
        last = max(plans, key=lambda plan: (plan["created_at"], plan["id"]))["id"]
        parts = {
            agent: [part for part in parts if part["plan"]["id"] == last] for agent, parts in answers.parts.items()
        }
        answers = dataclasses.replace(answers, parts=parts)
    matching = [entry for entry in entries if (entry.id == session_id if session_id else entry.name == name)]
    if any(answers.parts.values()) or not matching or any(not entry.has_ended for entry in matching):
        return select_session(name, session_id, answers, entries)
    last = max(matching, key=lambda entry: entry.updated_at)
    cause = f": {last.record['reason']}" if last.record.get("reason") else ""
    unreachable = "".join(f"; {agent} is unavailable: {reason}" for agent, reason in answers.errors.items())
    raise SessionNotFoundError(
        f"the session {last.name or last.id!r} is {last.record['status']}{cause}; no agent has kept"
        f" its output{unreachable}"
    )


def logs_report(parts: Mapping[str, Mapping[str, Any]], answers: AgentReports, hostname: str) -> dict[str, Any]:
    """Return the logs of all containers of a session in rank order, or of that ``hostname``, as plain data.

    ``agents`` are the errors of unreachable agents of these containers, and ``error`` is one sentence about them,
    ``None`` if there are none. Raises :class:`SessionNotFoundError` if the session has no such container.
    """
    plan = SessionPlan.from_dict(next(iter(parts.values()))["plan"])
    kernels = [kernel for kernel in plan.kernels if hostname in ("", kernel.hostname)]
    if not kernels:
        hostnames = ", ".join(kernel.hostname for kernel in plan.kernels)
        raise SessionNotFoundError(
            f"session_kernel: {hostname!r} is not a container of {plan.name!r}; it has {hostnames}"
        )
    agents = {kernel.agent: answers.errors[kernel.agent] for kernel in kernels if kernel.agent in answers.errors}
    return {
        "session": {"id": plan.id, "name": plan.name},
        "kernels": [_container_logs(kernel, parts.get(kernel.agent), answers) for kernel in kernels],
        "agents": agents,
        "error": _error_message(plan.name, agents) if agents else None,
    }


def empty_logs_report(name: str, session_id: str, error: str) -> dict[str, Any]:
    """Return the report of a session that was not found."""
    session = {"id": session_id or None, "name": name or None}
    return {"session": session, "kernels": [], "agents": {}, "error": error}


def render_logs(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the report as lines of text: a heading for each log, then its lines, with control characters escaped."""
    for kernel in report["kernels"]:
        code = "" if kernel["exit_code"] is None else f" with code {kernel['exit_code']}"
        yield f"== {kernel['hostname']} on {kernel['agent']}: {kernel['status']}{code} =="
        yield from map(_shown, kernel["log"])
        for app, log in kernel["apps"].items():
            yield f"== {kernel['hostname']}, app {app} =="
            yield from map(_shown, log)
        if kernel["error"]:
            yield f"== {kernel['hostname']}: {_shown(kernel['error'])} =="


def _container_logs(kernel: Kernel, part: Mapping[str, Any] | None, answers: AgentReports) -> dict[str, Any]:
    """Return the logs of one container; ``unknown``: its agent is unreachable, ``missing``: it does not exist."""
    fields: dict[str, Any] = {
        "hostname": kernel.hostname,
        "agent": kernel.agent,
        "status": "missing",
        "exit_code": None,
    }
    nothing: dict[str, Any] = {"log": [], "apps": {}, "error": None}
    if part is None and kernel.agent in answers.errors:
        error = f"{kernel.agent} is unavailable: {answers.errors[kernel.agent]}"
        return {**fields, "status": "unknown", **nothing, "error": error}
    if part is None or kernel.hostname not in part["logs"] or kernel.hostname not in part["containers"]:
        return {**fields, **nothing}
    state = part["containers"][kernel.hostname]
    logs = part["logs"][kernel.hostname]
    return {
        **fields,
        "status": state["status"],
        "exit_code": state.get("exit_code"),
        "log": parse_lines(logs["log"]),
        "apps": {app: parse_lines(log) for app, log in logs["apps"].items()},
        "error": logs["error"],
    }


def parse_lines(log: str) -> list[str]:
    """Return the lines of a log as the container wrote them, from the agent's JSON text."""
    try:
        lines = parse_json(log)
    except ValueError:
        lines = None
    return [str(line) for line in lines] if isinstance(lines, list) else ["(what its agent sent is damaged)"]


def _error_message(name: str, agents: Mapping[str, str]) -> str:
    unreachable = "; ".join(f"{agent} is unavailable: {reason}" for agent, reason in agents.items())
    return f"not all logs of the session {name!r} could be read: {unreachable}."


def _shown(line: str) -> str:
    """Return a line as it is shown, on one line and with control characters escaped."""
    return printable(line.rstrip("\r")).replace("\n", "\\n")
