# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decides on a request from the facts of all agents: a new plan, an existing session, or no capacity."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...module_utils._model.facts import AgentFacts
from ...module_utils._model.mounts import describe_unusable
from ...module_utils._model.network import SWARM
from ...module_utils._model.plain_data import to_plain
from ...module_utils._model.plan import SessionPlan
from ...module_utils._model.validation import ValidationError
from .._placement.place import Group, Placement, Unschedulable, place
from .._placement.unschedulable import join_names
from .._request.run_options import NetworkPools
from .._request.spec import TIMES, SessionSpec, check_same_request
from .agreement import find_extension
from .cluster_state import ClusterState, Parts, plan_of, public_keys_of, status_of
from .route_address import find_foreign_address
from .session_network import PlanningError, describe_missing_swarm, find_swarm_managers
from .session_plan import make_plan


@dataclasses.dataclass(frozen=True)
class Decision:
    """A plan to carry out: that of an earlier run if it is ``existing``. ``missing_images`` are to be pulled, by agent.

    ``public_keys`` are those of all containers, by hostname, if every agent has committed the session, which then needs
    no claim; otherwise it is empty. ``min_agents`` is a proven lower bound of the number of agents; it is not computed
    for existing plans. ``images`` are those present on the agents, as plain data by agent and name. ``recorded``: the
    plan was made by this control node, not only reported by agents. ``route_problem`` is why gateways must not get a
    route to it, empty if they may.
    """

    plan: SessionPlan
    existing: bool
    missing_images: dict[str, list[str]]
    public_keys: dict[str, dict[str, str]]
    min_agents: int | None = None
    images: dict[str, dict[str, dict[str, str]]] = dataclasses.field(default_factory=dict)
    recorded: bool = True
    route_problem: str = ""

    def with_uid(self, user_uid: int | None) -> Decision:
        """Return this with the uid of its user in a new plan; an existing one stays as it is."""
        return self if self.existing else replace(self, plan=replace(self.plan, user_uid=user_uid))


def decide(
    spec: SessionSpec,
    cluster: ClusterState,
    pools: NetworkPools,
    session_id: str,
    user: str,
    now: float,
    *,
    name_blockers: bool = True,
) -> Decision | Unschedulable:
    """Return the decision on a request; ``session_id``, ``user`` and ``now`` are used for a new plan.

    Without ``name_blockers``, a refusal does not name the sessions that would have to end: most of its time.

    The same request under the name of an existing session returns its plan, so that a second run repairs the session or
    changes nothing. The plan is that of the record, or else one on which all agents of the session agree. Raises
    :class:`ValidationError` or :class:`PlanningError` with one sentence if the request can never be met.
    """
    if not cluster.facts:
        raise PlanningError(
            f"no agent can be used: {cluster.explain_unavailable(cluster.unavailable) or 'the inventory has none'}"
        )
    existing, agents = _existing_plan(spec, cluster, session_id), cluster.agents
    if existing:
        return Decision(
            existing,
            True,
            _missing_images(existing, agents),
            _committed_keys(existing, cluster),
            images=_present_images(existing, agents),
            recorded=existing.id in cluster.records,
            route_problem=find_foreign_address(existing, cluster),
        )
    eligible = _eligible(spec, agents, cluster.unavailable)
    placement = _place(spec, eligible, _swarms(spec, agents), name_blockers=name_blockers)
    if isinstance(placement, Unschedulable):
        return dataclasses.replace(placement, reason=placement.reason + _cordoned_agents(spec, agents))
    plan = make_plan(spec, placement, agents, pools, session_id, user, now)
    problem = find_foreign_address(plan, cluster)
    if problem:
        raise PlanningError(problem)
    missing, present = _missing_images(plan, agents), _present_images(plan, agents)
    return Decision(plan, False, missing, {}, placement.lower_bound, present)


def check_time_limits(spec: SessionSpec, pools: NetworkPools) -> None:
    """Raise :class:`ValidationError` for a new request of more time than the operator gives.

    Earlier requests remain as they were accepted.
    """
    for option in TIMES:
        wanted, limit = getattr(spec, option), getattr(pools, option)
        if limit and wanted > limit:
            raise ValidationError(
                f"session_{option}: {wanted} exceeds session_{option}_limit, {limit}: request at most {limit} seconds."
            )


def is_feasible(spec: SessionSpec, cluster: ClusterState, session_id: str = "") -> bool:
    """Return whether a request could be met if all sessions of other names ended."""
    try:
        if _existing_plan(spec, cluster, session_id):
            return True
        agents = cluster.without_allocations.agents
        eligible = _eligible(spec, agents, cluster.unavailable)
        placement = _place(spec, eligible, _swarms(spec, agents), name_blockers=False)
        return isinstance(placement, Placement)
    except (ValidationError, PlanningError):
        return False


def _place(
    spec: SessionSpec, eligible: Sequence[AgentFacts], swarms: Mapping[str, str], *, name_blockers: bool
) -> Placement | Unschedulable:
    """Return the first placement found: preferred agents come first; architectures and swarms are not mixed.

    An image that is present on some agents is assumed to be of their architecture; one that is present on none is
    assumed to fit any.
    """
    images = spec.images
    with_image = [agent for agent in eligible if any(map(agent.images.get, images))]
    kinds = {agent.name: (agent.architecture, swarms.get(agent.name, "")) for agent in eligible}
    wanted_kinds = sorted({kinds[agent.name] for agent in with_image or eligible})
    pools = [[agent for agent in eligible if kinds[agent.name] == kind] for kind in wanted_kinds] or [[]]
    if spec.designated_agents and spec.designated_agents_mode == "preferred":
        preferred = [[agent for agent in pool if agent.name in spec.designated_agents] for pool in pools]
        pools = [pool for pool in preferred if pool] + pools
    groups = [Group(role.name, role.resources, role.replicas) for role in spec.effective_roles]
    single_node = spec.cluster_mode == "single-node"
    results: list[Placement | Unschedulable] = []
    for pool in pools:
        results.append(
            place(
                pool,
                groups,
                single_node=single_node,
                selection=spec.agent_selection,
                name_blockers=name_blockers,
            )
        )
        if isinstance(results[-1], Placement):
            break
    return results[-1]


def _committed_keys(plan: SessionPlan, cluster: ClusterState) -> dict[str, dict[str, str]]:
    committed = {agent: part for agent, part in cluster.sessions[plan.id].items() if part.committed}
    keys = public_keys_of(plan, committed)
    complete = committed.keys() >= set(plan.agents) and keys.keys() == {kernel.hostname for kernel in plan.kernels}
    return to_plain(keys) if complete else {}


def _existing_plan(spec: SessionSpec, cluster: ClusterState, session_id: str) -> SessionPlan | None:
    """Return the plan of the session of that name, if its request is the same; ``None`` if there is no such session.

    If several have the name, it is that of ``session_id``, of which there is a record.
    """
    same_name = cluster.names.get(spec.name, {})
    # A session with an expired claim on every agent no longer counts.
    live = {known: parts for known, parts in same_name.items() if not all(part.expired for part in parts.values())}
    if not live:
        return None
    if session_id in live and session_id in cluster.records:
        plan = cluster.records[session_id]
    elif len(live) > 1:
        raise ValidationError(
            f"session_name: {len(live)} sessions are called {spec.name!r} already ({', '.join(sorted(live))});"
            " end them first."
        )
    else:
        plan = _reported_plan(spec, cluster, next(iter(live.values())))
    unreachable = [name for name in plan.agents if name not in cluster.facts]
    if unreachable:
        raise PlanningError(
            f"the session {spec.name!r} has containers on agents that cannot be used:"
            f" {cluster.explain_unavailable(unreachable)}"
        )
    return plan


def _reported_plan(spec: SessionSpec, cluster: ClusterState, parts: Parts) -> SessionPlan:
    """Return the plan that the agents of a session hold, if all hold the same, and its request is the same.

    The request of a session of which there is a record has been compared with that already.
    """
    plan = plan_of(parts)
    if plan.id in cluster.records:
        return plan
    for part in parts.values():
        check_same_request(spec, part.request, plan.id, status_of(parts), cluster.digest_key)
    extension = find_extension(parts, cluster)
    if extension:
        raise PlanningError(
            f"the session {spec.name!r} is not repaired, because this control node did not start it and its agents"
            f" disagree: {extension}; end it, or repair it where it was started"
        )
    return plan


def _eligible(spec: SessionSpec, agents: Sequence[AgentFacts], unavailable: Mapping[str, str]) -> list[AgentFacts]:
    """Return the agents that may hold the session; raise an error with the option that excludes all."""
    group = [agent for agent in agents if agent.resource_group == spec.resource_group]
    if not group:
        names = ", ".join(sorted({agent.resource_group for agent in agents}))
        raise ValidationError(
            f"session_resource_group: no agent belongs to {spec.resource_group!r}; known are {names}."
        )
    if _has_strict_designation(spec):
        _check_designated(spec, agents, unavailable)
        group = [agent for agent in group if agent.name in spec.designated_agents]
    group = _with_labels(spec, group)
    if spec.architecture and not any(agent.architecture == spec.architecture for agent in group):
        names = ", ".join(sorted({agent.architecture for agent in group}))
        raise ValidationError(f"session_architecture: no agent is {spec.architecture!r}; known are {names}.")
    allowed = [agent for agent in group if spec.architecture in ("", agent.architecture)]
    allowed = _in_swarm(spec, _with_host_network(spec, _with_infiniband(spec, allowed)), agents)
    _check_slots(spec, allowed)
    return [agent for agent in _with_mounts(spec, allowed) if agent.schedulable]


def _cordoned_agents(spec: SessionSpec, agents: Sequence[AgentFacts]) -> str:
    """Return which agents that could hold the session are cordoned, as the end of a phrase; empty if none is."""
    names = [
        f"{agent.name} is {agent.cordon.description}"
        for agent in agents
        if agent.cordon and agent.resource_group == spec.resource_group
        if not _has_strict_designation(spec) or agent.name in spec.designated_agents
    ]
    return f"; {join_names(names)}" if names else ""


def _has_strict_designation(spec: SessionSpec) -> bool:
    """Return whether the session may run on designated agents only."""
    return bool(spec.designated_agents) and spec.designated_agents_mode == "strict"


def _check_designated(spec: SessionSpec, agents: Sequence[AgentFacts], unavailable: Mapping[str, str]) -> None:
    groups = {agent.name: agent.resource_group for agent in agents}
    for name in spec.designated_agents:
        option = f"session_designated_agents: {name!r}"
        if name in unavailable:
            raise PlanningError(f"{option} cannot be used: {unavailable[name]}")
        if name not in groups:
            names = ", ".join(sorted({*groups, *unavailable}))
            raise ValidationError(f"{option} is not an agent of the inventory; known are {names}.")
        if groups[name] != spec.resource_group:
            raise ValidationError(
                f"{option} belongs to resource group {groups[name]!r}, not to {spec.resource_group!r}."
            )


def _with_labels(spec: SessionSpec, agents: Sequence[AgentFacts]) -> list[AgentFacts]:
    """Return the agents that have all labels of the session; raise an error if there are none: waiting is no use."""
    wanted = {*spec.agent_labels}
    labelled = [agent for agent in agents if wanted <= agent.labels]
    if not labelled:
        known = {label for agent in agents for label in agent.labels}
        unknown = [label for label in spec.agent_labels if label not in known]
        problem = f"no agent has {unknown[0]!r}" if unknown else f"no agent has all of {', '.join(spec.agent_labels)}"
        there = f"there are {', '.join(sorted(known))}" if known else "agents have none (agent_labels)"
        raise ValidationError(f"session_agent_labels: {problem}; {there}.")
    return labelled


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


def _with_host_network(spec: SessionSpec, agents: Sequence[AgentFacts]) -> list[AgentFacts]:
    """Return the agents that allow the host network if the session needs it; raise an error if there are none."""
    if spec.network_driver != "host" or spec.cluster_mode != "multi-node" or spec.cluster_size == 1:
        return list(agents)
    sharing = [agent for agent in agents if agent.allow_host_network]
    if not sharing:
        names = ", ".join(agent.name for agent in agents)
        raise ValidationError(
            f"session_network_driver: 'host' needs agent_allow_host_network: true, and none of {names} has it."
        )
    return sharing


def _needs_swarm(spec: SessionSpec) -> bool:
    """Return whether the session needs a swarm if it spans several agents."""
    return spec.network_driver == SWARM and spec.cluster_mode == "multi-node" and spec.cluster_size > 1


def _swarms(spec: SessionSpec, agents: Sequence[AgentFacts]) -> dict[str, str]:
    """Return the swarm manager of each agent, by name; empty if the session needs no swarm."""
    return find_swarm_managers(agents) if _needs_swarm(spec) else {}


def _in_swarm(spec: SessionSpec, allowed: Sequence[AgentFacts], agents: Sequence[AgentFacts]) -> list[AgentFacts]:
    """Return the agents in a swarm if the session needs one; raise an error if there are none."""
    if not _needs_swarm(spec):
        return list(allowed)
    swarms = find_swarm_managers(agents)
    inside = [agent for agent in allowed if agent.name in swarms]
    if not inside:
        raise PlanningError(describe_missing_swarm(allowed))
    return inside


def _with_mounts(spec: SessionSpec, agents: Sequence[AgentFacts]) -> list[AgentFacts]:
    """Return the agents that have the folders of the session's mounts; raise an error if none has."""
    sources = [mount.source for mount in spec.mounts]
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


def _missing_images(plan: SessionPlan, agents: Sequence[AgentFacts]) -> dict[str, list[str]]:
    """Return the images that agents of the plan need and lack, by agent, without agents that lack none."""
    has = {agent.name: agent.images for agent in agents}
    needs = {name: dict.fromkeys(kernel.image for kernel in plan.kernels_on(name)) for name in plan.agents}
    lacks = {name: [image for image in needed if not has[name].get(image)] for name, needed in needs.items()}
    return {name: images for name, images in lacks.items() if images}


def _present_images(plan: SessionPlan, agents: Sequence[AgentFacts]) -> dict[str, dict[str, dict[str, str]]]:
    """Return the images that agents of the plan need and have, by agent and name."""
    has = {agent.name: agent.images for agent in agents}
    present: dict[str, dict[str, dict[str, str]]] = {name: {} for name in plan.agents}
    for kernel in plan.kernels:
        image = has[kernel.agent].get(kernel.image)
        if image:
            present[kernel.agent][kernel.image] = dataclasses.asdict(image)
    return present
