# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the agents of the inventory say: their facts, and the sessions that they hold."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.module_utils._model.session import STOPPED


@dataclasses.dataclass(frozen=True)
class Readings:
    """The agents of the inventory: ``facts`` of those that can be used, and why the others (``left_out``) cannot."""

    facts: Mapping[str, Mapping[str, Any]]
    left_out: Mapping[str, str]

    def told(self, agent: str) -> bool:
        """Return whether an agent gave facts, or why it could not."""
        return agent in self.facts or agent in self.left_out

    @property
    def in_flight(self) -> bool:
        """Whether a run is at work somewhere: what it has claimed may become free again."""
        held = (one for data in self.facts.values() for one in data["sessions"])
        return any(not one["committed"] and not one["expired"] for one in held)

    def without(self, ended: Collection[str]) -> Readings:
        """Return these readings without the sessions of those ids, which take their room as long as they are there."""
        facts = {
            name: {**data, "sessions": [one for one in data["sessions"] if one["plan"]["id"] not in ended]}
            for name, data in self.facts.items()
        }
        return dataclasses.replace(self, facts=facts)

    def holding(self, plan: SessionPlan) -> Readings:
        """Return what the agents would say if they held ``plan`` already, so that the next session can be planned."""
        return dataclasses.replace(self, facts={name: _holding(name, data, plan) for name, data in self.facts.items()})

    def why(self, names: Iterable[str]) -> str:
        """Return why agents cannot be used, those with the same reason together."""
        by_reason: dict[str, list[str]] = {}
        for name in sorted(names):
            by_reason.setdefault(self.left_out.get(name, "not in the inventory, or hidden by --limit"), []).append(name)
        return "; ".join(f"{', '.join(named)}: {reason}" for reason, named in by_reason.items())


def _holding(agent: str, data: Mapping[str, Any], plan: SessionPlan) -> Mapping[str, Any]:
    kernels = plan.kernels_on(agent)
    if agent not in plan.agents:
        return data
    taken = dict(data["taken"])
    for slot, amount in (item for kernel in kernels for item in kernel.resources.items()):
        taken[slot] = taken.get(slot, 0) + amount
    empty: dict[str, Any] = {"request": {}, "containers": {}, "public_keys": {}}
    held = {"plan": plan.to_dict(), "committed": False, "expired": False, **empty}
    return {
        **data,
        "taken": taken,
        "containers": data["containers"] + len(kernels),
        "networks": [*data["networks"], *([plan.network.subnet] if plan.network and plan.network.subnet else [])],
        "tcp_ports": [*data["tcp_ports"], *plan.tcp_ports(agent)],
        "vnis": [*data["vnis"], *([plan.network.vni] if plan.network and plan.network.vni else [])],
        "sessions": [*data["sessions"], held],
    }


@dataclasses.dataclass(frozen=True)
class Found:
    """What one agent holds of a session: its plan and request, its state there, and its containers by hostname."""

    agent: str
    plan: SessionPlan
    request: dict[str, Any]
    committed: bool
    expired: bool
    containers: dict[str, dict[str, Any]]
    public_keys: dict[str, dict[str, str]]


def found_sessions(facts: Mapping[str, Mapping[str, Any]]) -> dict[str, list[Found]]:
    """Return what the agents hold, by session id; ``facts`` are the results of ``agent_info`` by inventory name."""
    sessions: dict[str, list[Found]] = {}
    for agent, data in sorted(facts.items()):
        for held in data["sessions"]:
            plan = SessionPlan.from_dict(held["plan"])
            kept = {key: held[key] for key in ("request", "committed", "expired", "containers", "public_keys")}
            part = Found(agent, plan, **kept)
            sessions.setdefault(plan.id, []).append(part)
    return sessions


def status_of(parts: Iterable[Found]) -> str:
    """Return the status of a session from what its agents hold.

    ``RUNNING`` when every agent of the plan has committed and every container runs, or has run the command to its end;
    ``CREATING`` while a creation is under way; ``ERROR`` when one was given up half way; ``DEGRADED`` otherwise.
    """
    listed = list(parts)
    if any(not part.committed for part in listed):
        return "ERROR" if any(part.expired for part in listed if not part.committed) else "CREATING"
    plan, containers = listed[0].plan, containers_of(listed)
    well = {name for name, one in containers.items() if one["status"] == "running" or finished(plan, name, containers)}
    return "RUNNING" if well == {kernel.hostname for kernel in plan.kernels} else "DEGRADED"


def finished(plan: SessionPlan, hostname: str, containers: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether a container has ended well, because the session's command in it has."""
    there = containers[hostname]
    return there["status"] in STOPPED and there.get("exit_code") == 0 and plan.runs_command(hostname)


def containers_of(parts: Iterable[Found]) -> dict[str, dict[str, Any]]:
    """Return the containers of a session by hostname, from all its agents."""
    return {hostname: state for part in parts for hostname, state in part.containers.items()}
