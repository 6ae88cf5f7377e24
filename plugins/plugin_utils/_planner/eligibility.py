# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which agents may hold a session, wherever there is room; or which of its options excludes all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...module_utils._model.devices import ANY_GPU, CUDA_PREFIX
from ...module_utils._model.errors import as_phrase
from ...module_utils._model.facts import AgentFacts
from ...module_utils._model.mounts import Source, describe_unusable
from ...module_utils._model.network import HOST_NETWORK
from ...module_utils._model.validation import ValidationError
from .._placement.topology import Topology
from .._placement.unschedulable import join_names
from .._request.spec import PACK, SPREAD, SessionSpec
from .cluster_state import AwayAgent
from .session_network import PlanningError


def eligible_agents(
    spec: SessionSpec,
    agents: Sequence[AgentFacts],
    unavailable: Mapping[str, str],
    away: Sequence[AwayAgent] = (),
    *,
    in_service: bool = True,
) -> list[AgentFacts]:
    """Return the agents that may hold the session; raise an error with the option that excludes all.

    What only facts tell excludes no agent that is ``away``: while one of these may hold the session, and is expected
    back, there are none instead of an error. Unless ``in_service``, agents that take no new sessions are among them.
    """
    group = [agent for agent in agents if agent.resource_group == spec.resource_group]
    missing = [agent for agent in away if agent.may_belong(spec.resource_group)]
    if not group and not missing:
        groups = {agent.resource_group for agent in agents} | {agent.known.resource_group for agent in away}
        names = ", ".join(sorted(filter(None, groups)))
        raise ValidationError(
            f"session_resource_group: no agent belongs to {spec.resource_group!r}; known are {names}."
        )
    if _has_strict_designation(spec):
        _check_designated(spec, agents, unavailable, away)
        group = [agent for agent in group if agent.name in spec.designated_agents]
    missing = may_hold(spec, away)
    labelled = _with_labels(spec, group, away)
    try:
        if not labelled:
            raise PlanningError("no agent that may hold the session can be used")
        return [agent for agent in _allowed(spec, labelled) if agent.schedulable or not in_service]
    except (ValidationError, PlanningError) as error:
        if any(agent.silent for agent in missing):
            return []
        if missing:
            raise type(error)(f"{as_phrase(error)}{describe_away(missing)}.") from None
        raise


def may_hold(spec: SessionSpec, away: Sequence[AwayAgent]) -> list[AwayAgent]:
    """Return the agents that may hold the session by all that the inventory says."""
    return [
        agent
        for agent in away
        if agent.may_belong(spec.resource_group) and agent.may_have(spec.agent_labels)
        if not _has_strict_designation(spec) or agent.name in spec.designated_agents
    ]


def describe_away(away: Sequence[AwayAgent]) -> str:
    """Return the agents that are away and may hold the session, and why, as the end of a phrase; or nothing."""
    return f"; {join_names([agent.description for agent in away])}" if away else ""


def _allowed(spec: SessionSpec, labelled: Sequence[AgentFacts]) -> list[AgentFacts]:
    """Return the agents that what they have, and not the inventory, lets hold the session."""
    allowed = _with_architecture(spec, labelled)
    allowed = _with_host_network(spec, _with_infiniband(spec, allowed))
    _check_slots(spec, allowed)
    return _with_images(spec, _with_mounts(spec, _with_gpus(spec, allowed)))


def describe_out_of_service(spec: SessionSpec, agents: Sequence[AgentFacts]) -> str:
    """Return which agents could hold the session but take no new ones, and why, as the end of a phrase; or nothing."""
    names = [
        f"{agent.name} is {agent.cordon.description}"
        if agent.cordon
        else f"{agent.name}: {as_phrase(agent.obstacles[0])}"
        for agent in agents
        if (agent.cordon or agent.obstacles) and agent.resource_group == spec.resource_group
        if not _has_strict_designation(spec) or agent.name in spec.designated_agents
    ]
    return f"; {join_names(names)}" if names else ""


def _has_strict_designation(spec: SessionSpec) -> bool:
    """Return whether the session may run on designated agents only."""
    return bool(spec.designated_agents) and spec.designated_agents_mode == "strict"


def _check_designated(
    spec: SessionSpec, agents: Sequence[AgentFacts], unavailable: Mapping[str, str], away: Sequence[AwayAgent]
) -> None:
    groups = {agent.name: agent.resource_group for agent in agents}
    groups |= {agent.name: agent.known.resource_group or spec.resource_group for agent in away if agent.silent}
    for name in spec.designated_agents:
        option = f"session_designated_agents: {name!r}"
        if name in unavailable and name not in groups:
            raise PlanningError(f"{option} cannot be used: {unavailable[name]}")
        if name not in groups:
            names = ", ".join(sorted({*groups, *unavailable}))
            raise ValidationError(f"{option} is not an agent of the inventory; known are {names}.")
        if groups[name] != spec.resource_group:
            raise ValidationError(
                f"{option} belongs to resource group {groups[name]!r}, not to {spec.resource_group!r}."
            )


def _with_labels(spec: SessionSpec, agents: Sequence[AgentFacts], away: Sequence[AwayAgent]) -> list[AgentFacts]:
    """Return the agents that have all labels of the session.

    Raises an error if neither they nor any that are away and may hold the session have them: waiting is no use.
    """
    wanted = {*spec.agent_labels}
    labelled = [agent for agent in agents if wanted <= agent.labels]
    if not wanted or labelled or may_hold(spec, away):
        return labelled
    missing = [agent for agent in away if agent.may_belong(spec.resource_group)]
    known = {label for agent in agents for label in agent.labels}
    known |= {label for agent in missing for label in agent.known.labels or ()}
    unknown = [label for label in spec.agent_labels if label not in known]
    problem = f"no agent has {unknown[0]!r}" if unknown else f"no agent has all of {', '.join(spec.agent_labels)}"
    there = f"there are {', '.join(sorted(known))}" if known else "agents have none (agent_labels)"
    raise ValidationError(f"session_agent_labels: {problem}; {there}.")


def _with_architecture(spec: SessionSpec, agents: Sequence[AgentFacts]) -> list[AgentFacts]:
    """Return the agents of the architecture that the session asks for; raise an error if there are none."""
    if not spec.architecture:
        return list(agents)
    having = [agent for agent in agents if agent.architecture == spec.architecture]
    if not having:
        names = ", ".join(sorted({agent.architecture for agent in agents}))
        raise ValidationError(f"session_architecture: no agent is {spec.architecture!r}; known are {names}.")
    return having


def _check_slots(spec: SessionSpec, allowed: Sequence[AgentFacts]) -> None:
    """Raise an error for slots that no agent has at all: waiting would never help."""
    for role in spec.effective_roles:
        for slot in role.resources:
            if slot == "shmem" or any(agent.offers(slot) for agent in allowed):
                continue
            where = f"session_roles.{role.name}.resources.{slot}" if spec.roles else f"session_resources.{slot}"
            candidates = (
                "designated agent"
                if _has_strict_designation(spec)
                else f"agent of resource group {spec.resource_group!r}"
            )
            offered = ", ".join(sorted({name for agent in allowed for name in agent.capacity if agent.offers(name)}))
            raise ValidationError(f"{where}: no {candidates} offers it; offered are {offered}.")


def requested_topology(spec: SessionSpec, agents: Sequence[AgentFacts]) -> Topology | None:
    """Return what the session asks of the domains of agents; raise an error if these are not what it needs."""
    if not spec.topology or not agents:
        return None
    group = f"resource group {spec.resource_group!r}"
    first = agents[0]
    for agent in agents:
        if len(agent.topology) != len(first.topology) or agent.topology_levels != first.topology_levels:
            differ = f"{_describe_topology(first)}; {_describe_topology(agent)}"
            raise PlanningError(
                f"session_topology: all agents of {group} need agent_topology of the same levels: {differ}."
            )
    depth, names = len(first.topology), first.topology_levels
    if not depth:
        raise ValidationError(f"session_topology: no agent of {group} has agent_topology.")
    if spec.topology in (PACK, SPREAD):
        return Topology(depth, spread=spec.topology == SPREAD)
    level = spec.topology.split()[-1]
    known = {
        **{str(number): number for number in range(1, depth + 1)},
        **{name: at + 1 for at, name in enumerate(names)},
    }
    if level not in known:
        there = f"there are {', '.join(names)}" if names else f"agent_topology has 1 to {depth}, without names"
        raise ValidationError(f"session_topology: {level!r} is no level of {group}; {there}.")
    return Topology(known[level], within=True)


def _describe_topology(agent: AgentFacts) -> str:
    levels = f" (agent_topology_levels: {', '.join(agent.topology_levels)})" if agent.topology_levels else ""
    return f"{agent.name} has {', '.join(agent.topology) or 'none'}{levels}"


def _with_gpus(spec: SessionSpec, agents: Sequence[AgentFacts]) -> list[AgentFacts]:
    """Return the agents as if they had only GPUs that the session accepts; raise an error if there are none."""
    if spec.gpu == ANY_GPU:
        return list(agents)
    accepted = [agent.with_gpus(spec.gpu) for agent in agents]
    for slot in sorted({slot for role in spec.effective_roles for slot in role.resources}):
        if slot.startswith(CUDA_PREFIX) and not any(agent.offers(slot) for agent in accepted):
            models = {device.model for agent in agents for device in agent.devices if device.slot == slot}
            there = ", ".join(sorted(filter(None, models)))
            raise ValidationError(
                f"session_gpu: no agent has {slot} of {spec.gpu.description};"
                f" {f'there are {there}' if there else 'the models of those that there are are not known'}."
            )
    return accepted


def _with_infiniband(spec: SessionSpec, agents: Sequence[AgentFacts]) -> list[AgentFacts]:
    """Return the agents that have and allow InfiniBand if the session needs it; raise an error if there are none."""
    if not spec.infiniband:
        return list(agents)
    allowing = [agent for agent in agents if agent.infiniband]
    if not allowing:
        equipped = [agent for agent in agents if agent.has_infiniband]
        names = ", ".join(agent.name for agent in equipped or agents)
        if equipped:
            reason = f"none of the agents with InfiniBand ({names}) has it"
            raise ValidationError(f"session_infiniband: true needs agent_allow_infiniband: true, and {reason}.")
        raise ValidationError(f"session_infiniband: none of {names} has InfiniBand (/dev/infiniband/uverbs*).")
    return allowing


def may_share_host_network(spec: SessionSpec) -> bool:
    """Return whether containers of the session share their agents' network, unless one agent holds all of them."""
    return spec.network_driver == HOST_NETWORK and spec.cluster_mode == "multi-node" and spec.cluster_size > 1


def _with_host_network(spec: SessionSpec, agents: Sequence[AgentFacts]) -> list[AgentFacts]:
    """Return the agents that allow the host network if the session needs it; raise an error if there are none."""
    if not may_share_host_network(spec):
        return list(agents)
    sharing = [agent for agent in agents if agent.allow_host_network]
    if not sharing:
        names = ", ".join(agent.name for agent in agents)
        raise ValidationError(
            f"session_network_driver: 'host' needs agent_allow_host_network: true, and none of {names} has it."
        )
    return sharing


def _with_mounts(spec: SessionSpec, agents: Sequence[AgentFacts]) -> list[AgentFacts]:
    """Return the agents that have the folders of the session's mounts; raise an error if none has."""
    sources = [Source.of(mount).word for mount in spec.mounts]
    if not sources:
        return list(agents)
    lacking = {
        agent.name: {path: agent.unusable_paths[path] for path in sources if path in agent.unusable_paths}
        for agent in agents
    }
    having = [agent for agent in agents if not lacking[agent.name]]
    if agents and not having:
        name = min(lacking)
        others = f" and {len(agents) - 1} more" if len(agents) > 1 else ""
        raise PlanningError(describe_unusable(lacking[name], f"{name}{others}"))
    return having


def _with_images(spec: SessionSpec, agents: Sequence[AgentFacts]) -> list[AgentFacts]:
    """Return the agents that can read the images of the session, or lack them; raise an error if there are none."""
    images = spec.images
    # Most agents lack or can read all of them.
    reading = [
        agent for agent in agents if not agent.unusable_images or agent.unusable_images.keys().isdisjoint(images)
    ]
    if agents and not reading:
        first = min(agents, key=lambda agent: agent.name)
        reason = next(first.unusable_images[image] for image in images if image in first.unusable_images)
        others = f" and {len(agents) - 1} more" if len(agents) > 1 else ""
        raise PlanningError(f"{reason} (on {first.name}{others})")
    return reading
