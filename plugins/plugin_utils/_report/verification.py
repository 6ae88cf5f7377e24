# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Verifies that a session matches its plan: combines the results of its agents into one report."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...module_utils._model.errors import ClusterError
from ...module_utils._model.held_session import HeldSession
from ...module_utils._model.plain_data import from_plain
from ...module_utils._model.plan import SessionPlan
from ...module_utils._model.session import Mount
from .._planner.agreement import format_value, plan_difference
from .._planner.cluster_state import plan_of, status_of
from .._queue.entry import CREATING, PENDING, QueueEntry, recorded_plans

# The checks of each pair of containers.
CHECKS = ("name", "tcp", "frame", "ssh")

# The listing of a folder that a container cannot read.
UNKNOWN = "-"


class SessionNotFoundError(ClusterError, ValueError):
    """No session, or more than one, was selected. The message is one sentence."""


@dataclasses.dataclass(frozen=True)
class AgentReports:
    """The results of agents for a session, by inventory name.

    ``parts`` are the sessions of that name or id on each agent, ``errors`` are those of the other agents. ``marked``
    are the targets of mounts in which main1 created a marker file, ``leftover`` those where it could not be removed,
    and ``observed`` is what each container saw of each mount, by hostname and target.
    """

    parts: Mapping[str, Sequence[Mapping[str, Any]]]
    errors: Mapping[str, str] = dataclasses.field(default_factory=dict)
    marked: Sequence[str] = ()
    leftover: Sequence[str] = ()
    observed: Mapping[str, Mapping[str, Mapping[str, Any]]] = dataclasses.field(default_factory=dict)


def select_session(
    name: str, session_id: str, answers: AgentReports, entries: Iterable[QueueEntry]
) -> dict[str, Mapping[str, Any]]:
    """Return the parts of the selected session by agent. Raises :class:`SessionNotFoundError`.

    If several have the name, it is the one of which there is a record.
    """
    listed = list(entries)
    by_id: dict[str, dict[str, Mapping[str, Any]]] = {}
    for agent, parts in answers.parts.items():
        for part in parts:
            by_id.setdefault(part["plan"]["id"], {})[agent] = part
    if len(by_id) > 1:
        recorded = recorded_plans(listed)
        by_id = {known: parts for known, parts in by_id.items() if known in recorded} or by_id
    if len(by_id) > 1:
        raise SessionNotFoundError(
            f"session_name: {len(by_id)} sessions are called {name!r}: give session_id ({', '.join(sorted(by_id))})"
        )
    for parts_of_one in by_id.values():
        actual_name = next(iter(parts_of_one.values()))["plan"]["name"]
        if name and name != actual_name:
            raise SessionNotFoundError(f"session_id: {session_id!r} is the id of {actual_name!r}, not of {name!r}")
        return parts_of_one
    waiting = (entry for entry in listed if entry.state in (PENDING, CREATING))
    queued = next((entry for entry in waiting if (entry.id == session_id if session_id else entry.name == name)), None)
    if queued:
        raise SessionNotFoundError(
            f"the session {queued.name or queued.id!r} is {queued.record['status']}: no agent holds it"
        )
    unreachable = "; ".join(f"{agent}: {reason}" for agent, reason in answers.errors.items())
    suffix = f", and not all agents are available: {unreachable}" if unreachable else ""
    raise SessionNotFoundError(f"no session {session_id or name!r} was found{suffix}")


def build_verification_report(
    parts: Mapping[str, Mapping[str, Any]], answers: AgentReports, records: Mapping[str, SessionPlan] | None = None
) -> dict[str, Any]:
    """Return the report of a session as plain data; ``error`` is one sentence, ``None`` for a healthy session.

    The plan is that of ``records``, by session id, if it is there; an agent with another plan differs from it.
    """
    held = {agent: _parse_part(agent, part) for agent, part in parts.items()}
    plan = (records or {}).get(plan_of(held).id, plan_of(held))
    planned = frozenset(plan.agents)
    parsed = {agent: dataclasses.replace(part, plan=plan) for agent, part in held.items() if agent in planned}
    report: dict[str, Any] = {
        "session": {"id": plan.id, "name": plan.name, "status": status_of(parsed)},
        "healthy": False,
        "error": None,
        "agents": {agent: answers.errors[agent] for agent in plan.agents if agent in answers.errors},
        "drift": [
            {"agent": agent, **change}
            for agent in plan.agents
            for change in (parts[agent]["drift"] if agent in parts else _missing_part(plan, agent, answers))
        ]
        + [change for agent, part in held.items() for change in _plan_drift(plan, agent, part.plan)],
        "pairs": _list_pairs(plan, [parts[agent] for agent in parsed]),
        "mounts": [_compare_mount(plan, mount, answers) for mount in plan.mounts],
    }
    failures = _summarize_failures(report)
    return {**report, "healthy": not failures, "error": _error_message(plan.name, failures) if failures else None}


def not_found_report(name: str, session_id: str, error: str) -> dict[str, Any]:
    """Return the report of a session that was not found."""
    session = {"id": session_id or None, "name": name or None, "status": None}
    empty: dict[str, Any] = {"agents": {}, "drift": [], "pairs": [], "mounts": []}
    return {"session": session, "healthy": False, "error": error, **empty}


def failed_checks(pair: Mapping[str, Any]) -> list[str]:
    """Return the failed checks of a pair; empty if the pair was not checked."""
    return [check for check in CHECKS if pair[check] is False]


def is_unchecked(pair: Mapping[str, Any]) -> bool:
    """Return whether a pair was not checked: its source does not run, or its agent is unreachable."""
    return pair["name"] is None


def _parse_part(agent: str, part: Mapping[str, Any]) -> HeldSession:
    kept = {field: part[field] for field in ("plan", "committed", "expired", "containers")}
    location = f"the session on {agent} is corrupt"
    return from_plain(HeldSession, {**kept, "request": {}, "public_keys": {}}, location)


def _plan_drift(plan: SessionPlan, agent: str, other: SessionPlan) -> list[dict[str, Any]]:
    """Return the drift of an agent that holds another plan of a session, or a part that the plan does not have."""
    difference = plan_difference(plan, other)
    if difference:
        field, expected, actual = difference
        change = {"subject": f"plan: {field}", "actual": format_value(actual), "expected": format_value(expected)}
        return [{"agent": agent, **change}]
    stranger = {"agent": agent, "subject": f"session {plan.name}", "actual": "held", "expected": None}
    return [] if agent in plan.agents else [stranger]


def _missing_part(plan: SessionPlan, agent: str, answers: AgentReports) -> list[dict[str, Any]]:
    """Return the drift of an agent that lacks its part of a session."""
    difference = {"subject": f"session {plan.name}", "actual": None, "expected": "held"}
    return [] if agent in answers.errors else [difference]


def _list_pairs(plan: SessionPlan, parts: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return all pairs in rank order; in those that were not checked, all results are ``None``."""
    checked = {(pair["from"], pair["to"]): dict(pair) for part in parts for pair in part["pairs"]}
    names = [kernel.hostname for kernel in plan.kernels]
    nothing = dict.fromkeys((*CHECKS, "ssh_error", "latency_ms"))
    return [
        checked.get((source, target), {"from": source, "to": target, **nothing}) for source in names for target in names
    ]


def _compare_mount(plan: SessionPlan, mount: Mount, answers: AgentReports) -> dict[str, Any]:
    """Return whether all containers see the same data in a mount as main1.

    ``compared`` is the method: by a marker file of main1 (``marker``), or else by the ``names`` in the top folder,
    which is weaker. ``differing`` are the containers that see other data, ``unknown`` those without a result.
    """
    observed = {kernel.hostname: answers.observed.get(kernel.hostname, {}).get(mount.target) for kernel in plan.kernels}
    main, agents = plan.kernels[0], {kernel.hostname: kernel.agent for kernel in plan.kernels}
    main_view = observed[main.hostname]
    marked = mount.target in answers.marked
    readable = marked or (main_view is not None and main_view["names"] != UNKNOWN)

    def same(hostname: str, sight: Mapping[str, Any]) -> bool:
        if marked or main_view is None:
            return bool(sight["marker"])
        same_folder = agents[hostname] == main.agent and sight["folder"] == main_view["folder"]
        return same_folder or bool(sight["names"] == main_view["names"])

    differing = [name for name, sight in observed.items() if readable and sight is not None and not same(name, sight)]
    silent = [name for name, sight in observed.items() if sight is None or not readable]
    return {
        **dataclasses.asdict(mount),
        "compared": "marker" if marked else "names" if readable else None,
        "same": False if differing else None if silent else True,
        "differing": differing,
        "unknown": silent,
        "marker_left": mount.target in answers.leftover,
    }


def _summarize_failures(report: Mapping[str, Any]) -> list[str]:
    """Return a phrase for each kind of failure; none for a healthy session."""
    pairs = [pair for pair in report["pairs"] if failed_checks(pair)]
    silent = [pair for pair in report["pairs"] if is_unchecked(pair)]
    mounts = [mount for mount in report["mounts"] if not mount["same"] or mount["marker_left"]]
    counted = [
        (len(report["agents"]), "unavailable agent", "unavailable agents"),
        (len(report["drift"]), "difference from the plan", "differences from the plan"),
        (len(pairs), "pair with failed checks", "pairs with failed checks"),
        (len(silent), "unchecked pair", "unchecked pairs"),
        (len(mounts), "mount with differing contents", "mounts with differing contents"),
    ]
    return [f"{count} {singular if count == 1 else plural}" for count, singular, plural in counted if count]


def _error_message(name: str, failures: Sequence[str]) -> str:
    remedy = "repair_session, or create_session with the same variables, repairs what differs from the plan"
    return f"the session {name!r} is not healthy: {', '.join(failures)}; {remedy}."
