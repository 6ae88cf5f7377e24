# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From a request and the facts of all agents to a decision: a plan, a session that is there already, or no room."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.backendai.cluster.plugins.module_utils._core.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.module_utils._core.placement import NoRoom, place
from ansible_collections.backendai.cluster.plugins.module_utils._core.plan import PlanError, SessionPlan, make_plan
from ansible_collections.backendai.cluster.plugins.module_utils._core.record import found_sessions, status_of
from ansible_collections.backendai.cluster.plugins.module_utils._core.spec import (
    Pools,
    SessionSpec,
    SpecError,
    comparable,
    differences,
)


@dataclasses.dataclass(frozen=True)
class Readings:
    """The agents of the inventory: ``facts`` of those that can be used, and why the others (``left_out``) cannot."""

    facts: Mapping[str, Mapping[str, Any]]
    left_out: Mapping[str, str]

    def why(self, names: Iterable[str]) -> str:
        """Return why agents cannot be used, those with the same reason together."""
        by_reason: dict[str, list[str]] = {}
        for name in sorted(names):
            by_reason.setdefault(self.left_out.get(name, "not in the inventory, or hidden by --limit"), []).append(name)
        return "; ".join(f"{', '.join(named)}: {reason}" for reason, named in by_reason.items())


@dataclasses.dataclass(frozen=True)
class Decision:
    """A plan to carry out: an earlier run's where it is ``known``. ``pull_on`` are its agents without the image.

    ``public_keys`` are those of all containers, by hostname, of a session that every agent has committed: such a one
    needs no claim. Otherwise there are none.
    """

    plan: SessionPlan
    known: bool
    pull_on: tuple[str, ...]
    public_keys: dict[str, dict[str, str]]


def decide(spec: SessionSpec, readings: Readings, pools: Pools, session_id: str, now: float) -> Decision | NoRoom:
    """Return what to do about a request; ``session_id`` and ``now`` are used where a new plan is made.

    The same request under a name that is there already gives the plan that is there, so that a second run repairs or
    changes nothing. Raises :class:`SpecError` or :class:`PlanError` with one sentence when it can never be met.
    """
    if not readings.facts:
        raise PlanError(f"no agent can be used: {readings.why(readings.left_out) or 'the inventory has none'}")
    known = _known_plan(spec, readings)
    agents = [AgentFacts.from_dict(name, data) for name, data in sorted(readings.facts.items())]
    if known:
        return Decision(known, True, _without_image(known, agents), _committed_keys(known, readings))
    eligible = _eligible(spec, agents, readings.left_out)
    placement = place(
        eligible,
        spec.resources,
        spec.cluster_size,
        single_node=spec.cluster_mode == "single-node",
        selection=spec.agent_selection,
    )
    if isinstance(placement, NoRoom):
        return placement
    plan = make_plan(spec, placement, eligible, pools, session_id, now)
    _refuse_missing_mounts(plan, eligible)
    return Decision(plan, False, _without_image(plan, agents), {})


def _committed_keys(plan: SessionPlan, readings: Readings) -> dict[str, dict[str, str]]:
    parts = found_sessions(readings.facts)[plan.id]
    keys = {hostname: both for part in parts if part.committed for hostname, both in part.public_keys.items()}
    return keys if {kernel.hostname for kernel in plan.kernels} == set(keys) else {}


def _known_plan(spec: SessionSpec, readings: Readings) -> SessionPlan | None:
    """Return the plan of the session of that name, if it was asked for in the same way."""
    by_id = found_sessions(readings.facts)
    named = [parts for parts in by_id.values() if parts[0].plan.name == spec.name]
    if not named:
        return None
    if len(named) > 1:
        ids = ", ".join(sorted(parts[0].plan.id for parts in named))
        raise SpecError(
            f"session_name: {len(named)} sessions are called {spec.name!r} already ({ids}); end them first."
        )
    parts = named[0]
    plan = parts[0].plan
    differs = differences(parts[0].request, comparable(spec, plan.id))
    if differs:
        status = status_of(parts)
        raise SpecError(
            f"session_name: {spec.name!r} is taken by a session ({status}) that differs in {', '.join(differs)};"
            " choose another name, or end that one with backendai.cluster.terminate_session."
        )
    away = [name for name in plan.agents if name not in readings.facts]
    if away:
        raise PlanError(f"the session {spec.name!r} has containers on agents that cannot be used: {readings.why(away)}")
    return plan


def _eligible(spec: SessionSpec, agents: Sequence[AgentFacts], left_out: Mapping[str, str]) -> list[AgentFacts]:
    """Return the agents that may hold the session at all, or raise a sentence that says which option rules out all."""
    group = [agent for agent in agents if agent.resource_group == spec.resource_group]
    if not group:
        known = ", ".join(sorted({agent.resource_group for agent in agents}))
        raise SpecError(f"session_resource_group: no agent belongs to {spec.resource_group!r}; known are {known}.")
    _refuse_designated(spec, agents, left_out)
    allowed = [agent for agent in group if not spec.designated_agents or agent.name in spec.designated_agents]
    _refuse_slots(spec, allowed)
    return [agent for agent in allowed if agent.schedulable]


def _refuse_designated(spec: SessionSpec, agents: Sequence[AgentFacts], left_out: Mapping[str, str]) -> None:
    groups = {agent.name: agent.resource_group for agent in agents}
    for name in spec.designated_agents:
        option = f"session_designated_agents: {name!r}"
        if name in left_out:
            raise PlanError(f"{option} cannot be used: {left_out[name]}")
        if name not in groups:
            known = ", ".join(sorted({*groups, *left_out}))
            raise SpecError(f"{option} is not an agent of the inventory; known are {known}.")
        if groups[name] != spec.resource_group:
            raise SpecError(f"{option} belongs to resource group {groups[name]!r}, not to {spec.resource_group!r}.")


def _refuse_slots(spec: SessionSpec, allowed: Sequence[AgentFacts]) -> None:
    """Refuse what no agent has at all: waiting would never help."""
    for slot in spec.resources:
        if slot != "shmem" and not any(agent.offers(slot) for agent in allowed):
            whose = "designated agent" if spec.designated_agents else f"agent of resource group {spec.resource_group!r}"
            offered = ", ".join(sorted({name for agent in allowed for name in agent.capacity if agent.offers(name)}))
            raise SpecError(f"session_resources.{slot}: no {whose} offers it; offered are {offered}.")
        if slot not in ("cpu", "mem", "shmem"):
            raise SpecError(f"session_resources.{slot}: this version gives no devices to containers; leave it out.")


def _refuse_missing_mounts(plan: SessionPlan, agents: Sequence[AgentFacts]) -> None:
    for agent in agents:
        if agent.name in plan.agents and agent.missing_paths:
            missing = ", ".join(agent.missing_paths)
            raise PlanError(
                f"session_mounts: {missing} is not a folder on {agent.name}, and the source must exist there"
            )


def _without_image(plan: SessionPlan, agents: Sequence[AgentFacts]) -> tuple[str, ...]:
    return tuple(one.name for one in agents if one.name in plan.agents and not one.images.get(plan.image))
