# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Verifies that a session matches its plan: combines the results of its agents into one report."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...module_utils._model.errors import ClusterError, as_phrase
from ...module_utils._model.held_session import ContainerState, HeldSession, by_state
from ...module_utils._model.plain_data import from_plain
from ...module_utils._model.plan import SessionPlan
from ...module_utils._model.session import Mount
from ...module_utils._model.validation import ValidationError
from .._planner.agreement import format_value, plan_difference
from .._planner.cluster_state import Session
from .._queue.entry import QueueEntry
from .._queue.selection import find_entry

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


def find_plan(name: str, session_id: str, entries: Iterable[QueueEntry]) -> SessionPlan:
    """Return the plan of the live session of that name or id. Raises :class:`SessionNotFoundError`."""
    try:
        entry = find_entry(name, session_id, entries)
    except ValidationError as error:
        raise SessionNotFoundError(as_phrase(error)) from None
    if entry is None:
        raise SessionNotFoundError(f"this control node has no record of the session {session_id or name!r}")
    if entry.plan is None or entry.has_ended:
        where = "" if entry.has_ended else ": no agent holds it"
        raise SessionNotFoundError(f"the session {entry.name or entry.id!r} is {entry.record['status']}{where}")
    return entry.plan


def select_parts(
    answers: AgentReports, session_id: str, plan: SessionPlan | None = None
) -> dict[str, Mapping[str, Any]]:
    """Return the parts of a session by agent; of one with a ``plan``, those of its agents."""
    parts = {agent: part for agent, listed in answers.parts.items() for part in listed if part_id(part) == session_id}
    return {agent: part for agent, part in parts.items() if plan is None or agent in plan.agents}


def part_id(part: Mapping[str, Any]) -> str:
    """Return the id of the session of a part that an agent has verified, or of which it has read the logs."""
    return str(part["plan"]["id"] if "plan" in part else part["id"])


def build_verification_report(plan: SessionPlan, answers: AgentReports) -> dict[str, Any]:
    """Return the report of a session as plain data; ``error`` is one sentence, ``None`` for a healthy session.

    The plan is that of the record; an agent with another plan differs from it.
    """
    held = select_parts(answers, plan.id)
    parts = select_parts(answers, plan.id, plan)
    if not parts and not any(agent in answers.errors for agent in plan.agents):
        raise SessionNotFoundError(f"the session {plan.name!r} is on no agent")
    session = Session(plan, {agent: _parse_part(part) for agent, part in parts.items()})
    report: dict[str, Any] = {
        "session": {"id": plan.id, "name": plan.name, "status": session.status},
        "healthy": False,
        "error": None,
        "agents": {agent: answers.errors[agent] for agent in plan.agents if agent in answers.errors},
        "drift": [
            {"agent": agent, **change}
            for agent in plan.agents
            for change in (parts[agent]["drift"] if agent in parts else _missing_part(plan, agent, answers))
        ]
        + [change for agent, part in held.items() for change in _plan_drift(plan, agent, part)],
        "pairs": _list_pairs(plan, parts),
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


def _parse_part(part: Mapping[str, Any]) -> HeldSession:
    plan = SessionPlan.from_dict(part["plan"])
    containers = {
        hostname: from_plain(ContainerState, state, f"the state of {hostname} is damaged")
        for hostname, state in part["containers"].items()
    }
    known = (plan.id, plan.name, plan.created_at, "", plan.digest, bool(plan.command))
    return HeldSession(*known, part["committed"], part["expired"], by_state(containers))


def _plan_drift(plan: SessionPlan, agent: str, part: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the drift of an agent that holds another plan of a session, or a part that the plan does not have."""
    difference = plan_difference(plan, SessionPlan.from_dict(part["plan"]))
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


def _list_pairs(plan: SessionPlan, parts: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return all pairs in rank order; in those that were not checked, all results are ``None``.

    What an agent says of the containers of another one is not looked at.
    """
    agents = {kernel.hostname: kernel.agent for kernel in plan.kernels}
    checked = {
        (pair["from"], pair["to"]): dict(pair)
        for agent, part in parts.items()
        for pair in part["pairs"]
        if agents.get(pair["from"]) == agent
    }
    names = [kernel.hostname for kernel in plan.kernels]
    nothing = dict.fromkeys((*CHECKS, "ssh_error"))
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
