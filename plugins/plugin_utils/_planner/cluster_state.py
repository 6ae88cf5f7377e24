# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The state of the cluster: the facts of all agents, and the sessions that they hold."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ...module_utils._model.devices import Device, GpuRequest
from ...module_utils._model.facts import AgentFacts
from ...module_utils._model.held_session import ContainerState, HeldSession, PublicKeys
from ...module_utils._model.plan import SessionPlan
from ...module_utils._model.session import STOPPED

Parts = Mapping[str, HeldSession]
"""The parts of one session, by the inventory names of the agents that hold them."""


@dataclasses.dataclass(frozen=True)
class ClusterState:
    """The agents of the inventory: ``facts`` of those that can be used, and why the others are ``unavailable``.

    ``records`` are the plans of sessions, by id, that this control node has made itself. ``addresses`` are those that
    the inventory gives agents, by name; an agent with a host name there has none. ``digest_key`` is that of the queue,
    for the digests of secrets in the requests of their sessions.
    """

    facts: Mapping[str, AgentFacts]
    unavailable: Mapping[str, str]
    records: Mapping[str, SessionPlan] = dataclasses.field(default_factory=dict)
    addresses: Mapping[str, Collection[str]] = dataclasses.field(default_factory=dict)
    digest_key: bytes = dataclasses.field(default=b"", repr=False)

    @functools.cached_property
    def agents(self) -> list[AgentFacts]:
        """The agents that can be used, sorted by name."""
        return [self.facts[name] for name in sorted(self.facts)]

    @functools.cached_property
    def sessions(self) -> Mapping[str, Parts]:
        """The sessions on agents, by id; the parts of a session are sorted by the names of their agents.

        A session of which there is a record has the plan of that, whatever its agents say, and no parts elsewhere.
        """
        sessions: dict[str, dict[str, HeldSession]] = {}
        recorded_agents = {session_id: frozenset(plan.agents) for session_id, plan in self.records.items()}
        for facts in self.agents:
            for session in facts.sessions:
                record = self.records.get(session.plan.id)
                if record is None:
                    sessions.setdefault(session.plan.id, {})[facts.name] = session
                elif facts.name in recorded_agents[record.id]:
                    sessions.setdefault(record.id, {})[facts.name] = dataclasses.replace(session, plan=record)
        return sessions

    @functools.cached_property
    def names(self) -> Mapping[str, Mapping[str, Parts]]:
        """The sessions on agents by name, and then by id."""
        names: dict[str, dict[str, Parts]] = {}
        for session_id, parts in self.sessions.items():
            names.setdefault(plan_of(parts).name, {})[session_id] = parts
        return names

    def holders(self, session_id: str) -> list[str]:
        """Return the agents that say that they hold a part of a session, readable or not, sorted by name."""
        return [
            facts.name
            for facts in self.agents
            if session_id in facts.damaged_sessions or any(part.plan.id == session_id for part in facts.sessions)
        ]

    def was_read(self, agent: str) -> bool:
        """Return whether an agent returned facts or an error."""
        return agent in self.facts or agent in self.unavailable

    @property
    def in_flight(self) -> bool:
        """Whether any claim has not been committed yet: its capacity may become free again."""
        sessions = (session for facts in self.facts.values() for session in facts.sessions)
        return any(not session.committed and not session.expired for session in sessions)

    def without_sessions(self, ended: Collection[str]) -> ClusterState:
        """Return this state without the sessions of those ids; their allocated capacity is not freed."""
        return dataclasses.replace(
            self, facts={name: _drop_sessions(facts, ended) for name, facts in self.facts.items()}
        )

    def with_plan(self, plan: SessionPlan) -> ClusterState:
        """Return this state as if the agents held ``plan`` already, to plan the next session."""
        changed = {name: _add_plan(self.facts[name], plan) for name in plan.agents if name in self.facts}
        return dataclasses.replace(self, facts={**self.facts, **changed})

    @functools.cached_property
    def emptied(self) -> ClusterState:
        """This state as if there were no sessions, and no address, identifier or port were taken."""
        nothing: dict[str, Any] = {"allocated": {}, "containers": 0, "sessions": (), "networks": (), "vnis": ()}
        nothing |= {"tcp_ports": frozenset(), "reserved_ports": {}}
        facts = {name: dataclasses.replace(agent, **nothing) for name, agent in self.facts.items()}
        return dataclasses.replace(self, facts=facts)

    def explain_unavailable(self, names: Iterable[str]) -> str:
        """Return why agents cannot be used, grouped by reason."""
        by_reason: dict[str, list[str]] = {}
        for name in sorted(names):
            by_reason.setdefault(self.unavailable.get(name, "not in the inventory, or hidden by --limit"), []).append(
                name
            )
        return "; ".join(f"{', '.join(agents)}: {reason}" for reason, agents in by_reason.items())


def _drop_sessions(facts: AgentFacts, ended: Collection[str]) -> AgentFacts:
    remaining = tuple(session for session in facts.sessions if session.plan.id not in ended)
    return facts if len(remaining) == len(facts.sessions) else dataclasses.replace(facts, sessions=remaining)


def _add_plan(facts: AgentFacts, plan: SessionPlan) -> AgentFacts:
    kernels, network = plan.kernels_on(facts.name), plan.network
    taken = dict(facts.allocated)
    for slot, amount in (item for kernel in kernels for item in kernel.resources.items()):
        taken[slot] = taken.get(slot, 0) + amount
    return dataclasses.replace(
        facts,
        allocated=taken,
        devices=_take(facts.devices, plan.gpu, (kernel.resources for kernel in kernels)),
        containers=facts.containers + len(kernels),
        networks=(*facts.networks, *([network.subnet] if network and network.subnet else [])),
        tcp_ports=facts.tcp_ports.union(plan.tcp_ports(facts.name)),
        vnis=(*facts.vnis, *([network.vni] if network and network.vni else [])),
        sessions=(*facts.sessions, HeldSession(plan, {}, False, False, {}, {})),
    )


def _take(devices: Sequence[Device], gpu: GpuRequest, requests: Iterable[Mapping[str, int]]) -> tuple[Device, ...]:
    """Return devices after containers have taken as many as they request; which ones is up to the agent."""
    missing: Counter[str] = Counter()
    for request in requests:
        missing.update(request)
    after = []
    for device in devices:
        takes = device.free and missing[device.slot] > 0 and gpu.accepts(device)
        missing[device.slot] -= takes
        after.append(dataclasses.replace(device, free=False) if takes else device)
    return tuple(after)


def plan_of(parts: Parts) -> SessionPlan:
    """Return the plan of a session that at least one agent holds: that of the record, if there is one.

    Otherwise it is that of the first agent: what follows from it for other agents needs :func:`find_disagreement`.
    """
    return next(iter(parts.values())).plan


def status_of(parts: Parts) -> str:
    """Return the status of a session from its parts.

    ``RUNNING`` if every agent of the plan has committed and every container runs, or has completed the command;
    ``CREATING`` while a claim is pending; ``ERROR`` if a claim has expired; ``DEGRADED`` otherwise.
    """
    pending = [part for part in parts.values() if not part.committed]
    if pending:
        return "ERROR" if any(part.expired for part in pending) else "CREATING"
    plan, containers = plan_of(parts), containers_of(parts)
    healthy = {
        name for name, state in containers.items() if state.status == "running" or completed(plan, name, containers)
    }
    return "RUNNING" if healthy == {kernel.hostname for kernel in plan.kernels} else "DEGRADED"


def completed(plan: SessionPlan, hostname: str, containers: Mapping[str, ContainerState]) -> bool:
    """Return whether a container has exited with code 0 because the session's command in it has completed."""
    state = containers[hostname]
    return state.status in STOPPED and state.exit_code == 0 and plan.runs_command(hostname)


def owned_by_others(cluster: ClusterState, name: str, user: str, user_uid: int | None) -> bool:
    """Return whether agents hold a session of that name that is not this user's. Who owns it has both name and uid."""
    plans = [plan_of(parts) for parts in cluster.names.get(name, {}).values() if not _has_expired(parts)]
    return any((plan.user, plan.user_uid) != (user, user_uid) for plan in plans)


def _has_expired(parts: Parts) -> bool:
    """Return whether only expired claims are left of a session: it no longer counts."""
    return all(part.expired for part in parts.values())


def public_keys_of(plan: SessionPlan, parts: Parts) -> dict[str, PublicKeys]:
    """Return the public keys of a session's containers by hostname, each as the container's own agent has them."""
    # An agent has no say about the containers of others.
    return {
        kernel.hostname: parts[kernel.agent].public_keys[kernel.hostname]
        for kernel in plan.kernels
        if kernel.agent in parts and kernel.hostname in parts[kernel.agent].public_keys
    }


def host_keys_of(parts: Parts) -> dict[str, str]:
    """Return the public host keys of a session's containers by hostname, as far as they are known."""
    return {hostname: keys.host for hostname, keys in public_keys_of(plan_of(parts), parts).items()}


def containers_of(parts: Parts) -> dict[str, ContainerState]:
    """Return the containers of a session by hostname, from all its agents."""
    return {hostname: state for part in parts.values() for hostname, state in part.containers.items()}
