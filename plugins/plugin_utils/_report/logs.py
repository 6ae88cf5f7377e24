# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The logs of a session's containers: combines the results of its agents into one report, and renders it as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...module_utils._model.errors import as_phrase
from ...module_utils._model.printable import printable_line
from ...module_utils._model.strict_json import parse_json
from ...module_utils._model.validation import ValidationError
from .._queue.entry import CREATING, PENDING, QueueEntry
from .._queue.selection import find_entry
from .verification import AgentReports, SessionNotFoundError, select_parts

Host = tuple[str, str]
"""The hostname of a container, and its agent."""


def read_logs(
    name: str, session_id: str, answers: AgentReports, entries: Sequence[QueueEntry], hostname: str
) -> dict[str, Any]:
    """Return the logs of a session that lives or has ended, or of its container ``hostname``, as plain data.

    Of a session without a record, agents are asked by its id, and each has the containers that it says.
    Raises :class:`SessionNotFoundError`, also if agents have kept nothing of it.
    """
    try:
        entry = find_entry(name, session_id, entries)
    except ValidationError as error:
        raise SessionNotFoundError(as_phrase(error)) from None
    parts = select_parts(answers, entry.id if entry else session_id)
    unreachable = "".join(f"; {agent} is unavailable: {reason}" for agent, reason in answers.errors.items())
    if entry is None and not parts:
        hint = "" if session_id else "; give session_id for one that was started elsewhere, which list_sessions shows"
        raise SessionNotFoundError(
            f"this control node has no record of the session {session_id or name!r}{hint}{unreachable}"
        )
    if entry is None:
        return logs_report(session_id, name or None, _hosts_of(parts), parts, answers, hostname)
    if not parts and (entry.has_ended or entry.state in (PENDING, CREATING)):
        cause = f": {entry.record['reason']}" if entry.record.get("reason") else ""
        outcome = f"{cause}; no agent has kept its output{unreachable}" if entry.has_ended else ": no agent holds it"
        raise SessionNotFoundError(f"the session {entry.name or entry.id!r} is {entry.record['status']}{outcome}")
    return logs_report(entry.id, entry.name, _planned_hosts(entry) or _hosts_of(parts), parts, answers, hostname)


def _planned_hosts(entry: QueueEntry) -> list[Host]:
    """Return the containers of a session of the record, in rank order."""
    kernels = [(kernel.hostname, kernel.agent) for kernel in entry.plan.kernels] if entry.plan else []
    return kernels or [(kernel["hostname"], kernel["agent"]) for kernel in entry.record["kernels"]]


def _hosts_of(parts: Mapping[str, Mapping[str, Any]]) -> list[Host]:
    """Return the containers that agents say they have, sorted."""
    return sorted((hostname, agent) for agent, part in parts.items() for hostname in part["logs"])


def logs_report(
    session_id: str,
    name: str | None,
    hosts: Sequence[Host],
    parts: Mapping[str, Mapping[str, Any]],
    answers: AgentReports,
    hostname: str,
) -> dict[str, Any]:
    """Return the logs of these containers of a session, or of that ``hostname``, as plain data.

    ``agents`` are the errors of unreachable agents of these containers, and ``error`` is one sentence about them,
    ``None`` if there are none. Raises :class:`SessionNotFoundError` if the session has no such container.
    """
    selected = [host for host in hosts if hostname in ("", host[0])]
    called = name or session_id
    if not selected:
        hostnames = ", ".join(known for known, _agent in hosts)
        raise SessionNotFoundError(f"session_kernel: {hostname!r} is not a container of {called!r}; it has {hostnames}")
    agents = {agent: answers.errors[agent] for _hostname, agent in selected if agent in answers.errors}
    return {
        "session": {"id": session_id, "name": name},
        "kernels": [_container_logs(known, agent, parts.get(agent), answers) for known, agent in selected],
        "agents": agents,
        "error": _error_message(called, agents) if agents else None,
    }


def empty_logs_report(name: str, session_id: str, error: str) -> dict[str, Any]:
    """Return the report of a session that was not found."""
    session = {"id": session_id or None, "name": name or None}
    return {"session": session, "kernels": [], "agents": {}, "error": error}


def render_logs(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the report as lines of text: a heading for each log, then its lines, with control characters escaped."""
    for kernel in report["kernels"]:
        code = "" if kernel["exit_code"] is None else f" with code {kernel['exit_code']}"
        yield printable_line(f"== {kernel['hostname']} on {kernel['agent']}: {kernel['status']}{code} ==")
        yield from map(printable_line, kernel["log"])
        for app, log in kernel["apps"].items():
            yield printable_line(f"== {kernel['hostname']}, app {app} ==")
            yield from map(printable_line, log)
        if kernel["error"]:
            yield printable_line(f"== {kernel['hostname']}: {kernel['error']} ==")


def _container_logs(hostname: str, agent: str, part: Mapping[str, Any] | None, answers: AgentReports) -> dict[str, Any]:
    """Return the logs of one container; ``unknown``: its agent is unreachable, ``missing``: it does not exist."""
    fields: dict[str, Any] = {
        "hostname": hostname,
        "agent": agent,
        "status": "missing",
        "exit_code": None,
    }
    nothing: dict[str, Any] = {"log": [], "apps": {}, "error": None}
    if part is None and agent in answers.errors:
        error = f"{agent} is unavailable: {answers.errors[agent]}"
        return {**fields, "status": "unknown", **nothing, "error": error}
    if part is None or hostname not in part["logs"] or hostname not in part["containers"]:
        return {**fields, **nothing}
    state = part["containers"][hostname]
    logs = part["logs"][hostname]
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
