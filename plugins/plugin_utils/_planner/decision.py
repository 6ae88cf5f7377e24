# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decides on a request from the facts of all agents: a new plan, an existing session, or no capacity."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ...module_utils._model.facts import AgentFacts
from ...module_utils._model.plain_data import to_plain
from ...module_utils._model.plan import SessionPlan
from ...module_utils._model.session import UserGroup
from ...module_utils._model.validation import ValidationError
from .._placement.place import Group, Placement, Unschedulable, place_in_first
from .._placement.unschedulable import join_names
from .._request.run_options import NetworkPools
from .._request.spec import TIMES, SessionSpec
from .cluster_state import ClusterState, Session
from .eligibility import (
    describe_away,
    describe_out_of_service,
    eligible_agents,
    may_hold,
    may_share_host_network,
    requested_topology,
)
from .published_ports import describe_lack, needed_ports
from .route_address import check_own_address, find_foreign_address
from .session_network import PlanningError, UnfitAgentsError
from .session_plan import make_plan

# How many agents are tried for a session on their own network: which ports it needs of one, its placement decides.
MAX_ATTEMPTS = 8


@dataclasses.dataclass(frozen=True)
class Decision:
    """A plan to carry out: that of an earlier run if it is ``existing``. ``missing_images`` are to be pulled, by agent.

    ``public_keys`` are those of all containers, by hostname, if every agent has committed the session, which then needs
    no claim; otherwise it is empty. ``committed``: at least one agent has. ``images`` are those present on the agents,
    as plain data by agent and name. ``route_problem`` is why gateways must not get a route to it, empty if they may.
    """

    plan: SessionPlan
    existing: bool
    missing_images: dict[str, list[str]]
    public_keys: dict[str, dict[str, str]]
    images: dict[str, dict[str, dict[str, str]]] = dataclasses.field(default_factory=dict)
    route_problem: str = ""
    committed: bool = False

    def with_uid(self, user_uid: int | None) -> Decision:
        """Return this with the uid of its user in a new plan; an existing one stays as it is."""
        return self if self.existing else replace(self, plan=replace(self.plan, user_uid=user_uid))

    def with_groups(self, groups: tuple[UserGroup, ...]) -> Decision:
        """Return this with the groups of its user, as they are now, in a new plan as in an existing one."""
        return self if groups == self.plan.groups else replace(self, plan=replace(self.plan, groups=groups))


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

    A session of the record that agents hold under ``session_id`` has its plan already, so that a second run repairs it
    or changes nothing. Raises :class:`ValidationError` or :class:`PlanningError` with one sentence if the request can
    never be met.
    """
    if not cluster.facts:
        raise PlanningError(
            f"no agent can be used: {cluster.explain_unavailable(cluster.unavailable) or 'the inventory has none'}"
        )
    session, agents = _existing_session(spec, cluster, session_id), cluster.agents
    if session:
        existing = session.plan
        return Decision(
            existing,
            True,
            _missing_images(existing, agents),
            _committed_keys(session),
            images=_present_images(existing, agents),
            route_problem=find_foreign_address(existing, cluster),
            committed=any(part.committed for part in session.parts.values()),
        )
    eligible = eligible_agents(spec, agents, cluster.unavailable, cluster.away)
    eligible = _without_namesakes(spec.name, eligible, cluster)
    eligible, lacks = _with_ports(spec, eligible, pools)

    def make(placement: Placement) -> SessionPlan:
        plan = make_plan(spec, placement, agents, pools, session_id, user, now)
        check_own_address(plan, cluster)
        return plan

    plan = _find_plan(spec, eligible, lacks, cluster.records if name_blockers else None, make)
    if isinstance(plan, Unschedulable):
        away = describe_away([agent for agent in may_hold(spec, cluster.away) if agent.silent])
        others = f"{_describe_passed_over(lacks)}{describe_out_of_service(spec, agents)}{away}"
        return replace(plan, reason=f"{plan.reason}{others}")
    return Decision(plan, False, _missing_images(plan, agents), {}, _present_images(plan, agents))


def _find_plan(
    spec: SessionSpec,
    eligible: Sequence[AgentFacts],
    lacks: dict[str, str],
    plans: Mapping[str, SessionPlan] | None,
    make: Callable[[Placement], SessionPlan],
) -> SessionPlan | Unschedulable:
    """Return the plan that ``make`` makes of a placement, or why there is none.

    An agent that lacks a port, or an address of its own, is passed over, and added to ``lacks`` with the reason.
    """
    left = list(eligible)
    for _attempt in range(MAX_ATTEMPTS):
        placement = place_request(spec, left, plans)
        if isinstance(placement, Unschedulable):
            return placement if left or not lacks else _NO_ROOM
        try:
            return make(placement)
        except UnfitAgentsError as error:
            lacks.update({agent.name: error.problems[agent.name] for agent in left if agent.name in error.problems})
            left = [agent for agent in left if agent.name not in lacks]
    return _NO_ROOM


_NO_ROOM = Unschedulable("no room", {})


def _with_ports(
    spec: SessionSpec, agents: Sequence[AgentFacts], pools: NetworkPools
) -> tuple[list[AgentFacts], dict[str, str]]:
    """Return the agents with enough free ports of the pool to publish what main1 offers, and what each other lacks."""
    if may_share_host_network(spec):
        # Then the ports of the apps themselves are needed, unless one agent holds all containers: a plan tells.
        return list(agents), {}
    needed = needed_ports(spec.apps, pools)
    pool = pools.last_published_port - pools.first_published_port + 1
    # On others, there are enough whichever of their ports are taken: ports are only counted where few can be left.
    scarce = [agent for agent in agents if pool - len(agent.tcp_ports) < needed]
    lacks = {agent.name: problem for agent in scarce if (problem := describe_lack(agent, pools, needed))}
    return [agent for agent in agents if agent.name not in lacks] if lacks else list(agents), lacks


def _describe_passed_over(lacks: Mapping[str, str]) -> str:
    """Return which agents were passed over as unfit for main1, as the end of a phrase; empty if none was."""
    if not lacks:
        return ""
    first, *others = lacks
    return f"; {lacks[first]}{f', as on {join_names(others)}' if others else ''}"


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


def is_feasible(spec: SessionSpec, cluster: ClusterState, pools: NetworkPools, session_id: str) -> bool:
    """Return whether a request could be met if all sessions of the record that have other names ended."""
    empty = cluster.emptied

    def make(placement: Placement) -> SessionPlan:
        # Without the addresses of all agents, which take long to collect and make no difference.
        involved = [empty.facts[name] for name in dict.fromkeys(placement.agents)]
        plan = make_plan(spec, placement, involved, pools, session_id, "", 0.0)
        check_own_address(plan, cluster)
        return plan

    try:
        if _existing_session(spec, cluster, session_id):
            return True
        eligible = eligible_agents(spec, empty.agents, cluster.unavailable, cluster.away)
        eligible = _without_namesakes(spec.name, eligible, empty)
        eligible, lacks = _with_ports(spec, eligible, pools)
        return not isinstance(_find_plan(spec, eligible, lacks, None, make), Unschedulable)
    except (ValidationError, PlanningError):
        return False


def place_request(
    spec: SessionSpec, eligible: Sequence[AgentFacts], plans: Mapping[str, SessionPlan] | None
) -> Placement | Unschedulable:
    """Return the first placement found: preferred agents come first; architectures are not mixed.

    An image that is present on some agents is assumed to be of their architecture; one that is present on none is
    assumed to fit any.
    """
    pools = [list(eligible)]
    if len({agent.architecture for agent in eligible}) > 1:
        with_image = [agent for agent in eligible if any(map(agent.images.get, spec.images))]
        wanted = sorted({agent.architecture for agent in with_image or eligible})
        pools = [[agent for agent in eligible if agent.architecture == each] for each in wanted]
    if spec.designated_agents and spec.designated_agents_mode == "preferred":
        preferred = [[agent for agent in pool if agent.name in spec.designated_agents] for pool in pools]
        pools = [pool for pool in preferred if pool] + pools
    groups = [Group(role.name, role.resources, role.replicas) for role in spec.effective_roles]
    return place_in_first(
        pools,
        groups,
        single_node=spec.cluster_mode == "single-node",
        selection=spec.agent_selection,
        plans=plans,
        topology=requested_topology(spec, eligible),
    )


def _committed_keys(session: Session) -> dict[str, dict[str, str]]:
    """Return the keys of all containers if all agents have committed, and have been asked for them; else nothing."""
    keys = session.public_keys
    complete = session.committed and keys.keys() == {kernel.hostname for kernel in session.plan.kernels}
    return to_plain(keys) if complete else {}


def _existing_session(spec: SessionSpec, cluster: ClusterState, session_id: str) -> Session | None:
    """Return the session of that id as far as agents hold it; ``None`` if there is no such session.

    Raises :class:`ValidationError` if another one of that name lives.
    """
    same_name = cluster.names.get(spec.name, ())
    if session_id not in same_name:
        if same_name:
            raise ValidationError(
                f"session_name: {spec.name!r} is the name of another session that lives; end that one, or choose"
                " another name."
            )
        return None
    session = cluster.sessions[session_id]
    unreachable = [name for name in session.plan.agents if name not in cluster.facts]
    if unreachable:
        raise PlanningError(
            f"the session {spec.name!r} has containers on agents that cannot be used:"
            f" {cluster.explain_unavailable(unreachable)}"
        )
    return session


def _without_namesakes(name: str, eligible: Sequence[AgentFacts], cluster: ClusterState) -> list[AgentFacts]:
    """Return the agents without a session of that name that has no record: they would refuse another one.

    Others may have it: nobody has a right to a name because an agent says so. Raises :class:`PlanningError` if there
    are none.
    """
    taken = cluster.agents_of_strangers.get(name)
    if not taken:
        return list(eligible)
    left = [agent for agent in eligible if agent.name not in taken]
    if eligible and not left:
        raise PlanningError(
            f"session_name: {name!r} is also the name of a session on {', '.join(sorted(taken))} that this control node"
            " has no record of; choose another name"
        )
    return left


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
