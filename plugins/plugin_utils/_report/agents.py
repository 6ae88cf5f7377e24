# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The agents: which are in service, what is free on them, and the largest sessions that would start now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._model.capacity import Bundle
from ...module_utils._model.devices import HOST_SLOTS
from ...module_utils._model.facts import AgentFacts
from ...module_utils._model.plain_data import to_plain
from ...module_utils._model.quantity import describe_slot, format_slots
from ...module_utils._model.storage import OPENED_BY
from .._planner.cluster_state import ClusterState, InventoryAgent
from .._request.containers import DEFAULT_RESOURCES
from .._request.spec import MAX_CLUSTER_SIZE
from .record import render_table

_SHOWN = 3
"""How many agents that have mounted the same are named."""

READY, CORDONED, DRAINED, UNUSABLE, UNREACHABLE = "ready", "cordoned", "drained", "unusable", "unreachable"


def agents_report(cluster: ClusterState) -> dict[str, Any]:
    """Return the state of all agents, and of their resource groups.

    Amounts are in bytes for memory, counts for the rest. Of groups, nothing is free on agents that take no new
    sessions.
    """
    facts, known = cluster.facts, cluster.inventory
    absent = {
        name: _absent(name, reason, name in cluster.unreachable, known.get(name) or InventoryAgent())
        for name, reason in cluster.unavailable.items()
    }
    present = {name: _row(agent) for name, agent in facts.items()}
    groups: dict[str, list[AgentFacts]] = {}
    for name in sorted(facts):
        groups.setdefault(facts[name].resource_group, []).append(facts[name])
    rows = {**absent, **present}
    return {
        "agents": [rows[name] for name in sorted(rows)],
        "groups": [_group(name, groups[name]) for name in sorted(groups)],
    }


def _row(agent: AgentFacts) -> dict[str, Any]:
    status, problem = _service(agent)
    return {
        "name": agent.name,
        "resource_group": agent.resource_group,
        "status": status,
        "problem": problem,
        "total": dict(agent.capacity),
        "free": dict(agent.free),
        "containers": agent.containers,
        "labels": sorted(agent.labels),
        "gpus": _gpus(agent),
        "topology": [*agent.topology],
        "closed_storage": closed_storage(agent),
    }


def closed_storage(agent: AgentFacts) -> list[dict[str, Any]]:
    """Return the storage services that containers of an agent do not reach, with the mounts that they come from."""
    return [{**to_plain(service), "description": service.description} for service in agent.closed_storage]


def _gpus(agent: AgentFacts) -> list[dict[str, Any]]:
    """Return how many GPUs of each kind an agent has, as far as the driver names them."""
    kinds = Counter((device.slot, device.model, device.memory) for device in agent.devices if device.model)
    return [
        {"slot": slot, "model": model, "memory": memory, "count": count}
        for (slot, model, memory), count in sorted(kinds.items())
    ]


def _absent(name: str, reason: str, away: bool, known: InventoryAgent) -> dict[str, Any]:
    status = UNREACHABLE if away else UNUSABLE
    return {
        "name": name,
        "resource_group": known.resource_group,
        "status": status,
        "problem": reason,
        "total": {},
        "free": {},
        "containers": None,
        "labels": sorted(known.labels or ()),
        "gpus": [],
        "topology": [],
        "closed_storage": [],
    }


def _service(agent: AgentFacts) -> tuple[str, str]:
    """Return the status of an agent that has answered, and why it takes no new sessions, if so."""
    if agent.cordon:
        return (CORDONED if agent.cordon.sessions_end_at is None else DRAINED), agent.cordon.description
    if agent.schedulable:
        return READY, ""
    return UNUSABLE, " ".join(agent.obstacles) or "agent_schedulable is false"


def _group(name: str, agents: Sequence[AgentFacts]) -> dict[str, Any]:
    total: Counter[str] = Counter()
    free: Counter[str] = Counter()
    serving = [agent for agent in agents if agent.schedulable]
    for agent in agents:
        total.update(agent.capacity)
    for agent in serving:
        free.update(agent.free)
    accelerators = sorted(slot for slot in total if slot not in HOST_SLOTS and total[slot])
    return {
        "resource_group": name,
        "total": dict(total),
        "free": {slot: free[slot] for slot in total},
        "largest_sessions": [
            _largest_session(serving, dict(DEFAULT_RESOURCES)),
            *(_largest_session(serving, {**DEFAULT_RESOURCES, slot: 1}) for slot in accelerators),
        ],
    }


def _largest_session(agents: Sequence[AgentFacts], resources: dict[str, int]) -> dict[str, Any]:
    """Return how many containers with these resources would start now, in all and on one agent."""
    rooms = Bundle.of([(resources, 1)]).capacities(agents)
    return {
        "resources": resources,
        "containers": min(sum(rooms), MAX_CLUSTER_SIZE),
        "on_one_agent": min(max(rooms, default=0), MAX_CLUSTER_SIZE),
    }


def render_agents(report: Mapping[str, Any]) -> list[str]:
    """Return the report as lines: a table of agents, and a line for each group and kind of container."""
    # Where no agent has a topology there is no column for it.
    places = ["/".join(agent["topology"]) for agent in report["agents"]]
    located = any(places)
    rows = [("NAME", "GROUP", *(["TOPOLOGY"] if located else []), "STATUS", "CONTAINERS", "FREE", "")]
    for agent, place in zip(report["agents"], places, strict=True):
        free = ", ".join(
            f"{slot} {_share(slot, agent['free'][slot], total)}{_models(agent['gpus'], slot)}"
            for slot, total in agent["total"].items()
        )
        containers = "-" if agent["containers"] is None else str(agent["containers"])
        name, group = agent["name"], agent["resource_group"] or "-"
        where = [place or "-"] if located else []
        # Why an agent of which nothing is known cannot be used is not to be overlooked.
        shown = (free, agent["problem"]) if free else (agent["problem"] or "-", "")
        rows.append((name, group, *where, agent["status"], containers, *shown))
    return [
        *render_table(rows),
        *(line for group in report["groups"] for line in _group_lines(group)),
        *_storage_lines(report["agents"]),
    ]


def _storage_lines(agents: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each storage service that is closed to containers, with the agents that have mounted it."""
    names: dict[str, list[str]] = {}
    for agent in agents:
        for service in agent["closed_storage"]:
            names.setdefault(service["description"], []).append(agent["name"])
    return [
        f"Containers on {_first_names(listed)} do not reach {description}; {OPENED_BY} opens it."
        for description, listed in names.items()
    ]


def _first_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"


def _share(slot: str, free: int, total: int) -> str:
    """Return what is free of an amount, in the unit of that, such as ``48/64 GiB``."""
    whole = describe_slot(slot, total)
    some = f"{round(free / (1 << 30), 2):.10g}" if whole.endswith(" GiB") else describe_slot(slot, free)
    return f"{some}/{whole}"


def _models(gpus: Sequence[Mapping[str, Any]], slot: str) -> str:
    models = dict.fromkeys(kind["model"] for kind in gpus if kind["slot"] == slot)
    return f" ({', '.join(models)})" if models else ""


def _group_lines(group: Mapping[str, Any]) -> list[str]:
    return [
        f"Group {group['resource_group']}: {session['containers']} containers with"
        f" {format_slots(session['resources'])} would start now, {session['on_one_agent']} of them on one agent."
        for session in group["largest_sessions"]
    ]
