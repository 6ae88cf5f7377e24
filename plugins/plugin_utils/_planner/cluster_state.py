# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The state of the cluster: the facts of all agents, and the sessions of the record as far as agents hold them."""

from __future__ import annotations

import dataclasses
import functools
import ipaddress
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from ...module_utils._model.devices import Device, GpuRequest
from ...module_utils._model.facts import AgentFacts
from ...module_utils._model.held_session import ContainerState, HeldSession, PublicKeys
from ...module_utils._model.plan import SessionPlan
from ...module_utils._model.session import ALL, MAIN1, STOPPED


class InventoryAgent(NamedTuple):
    """What the inventory says of an agent by itself; ``None`` where that depends on facts of the host."""

    resource_group: str | None = None
    labels: frozenset[str] | None = None


@dataclasses.dataclass(frozen=True)
class AwayAgent:
    """An agent of the inventory that was asked and has no facts; the ``problem`` follows its name in a sentence.

    One that is ``silent`` is expected back; others have answered with an error that somebody has to look at.
    """

    name: str
    known: InventoryAgent
    problem: str
    silent: bool

    @property
    def description(self) -> str:
        """The name and the problem."""
        return f"{self.name} {self.problem}"

    def may_belong(self, resource_group: str) -> bool:
        """Return whether it is of a resource group, as far as that is known."""
        return self.known.resource_group in (None, resource_group)

    def may_have(self, labels: Collection[str]) -> bool:
        """Return whether it has all these labels, as far as they are known."""
        return self.known.labels is None or self.known.labels.issuperset(labels)


Parts = Mapping[str, HeldSession]
"""The parts of one session, by the inventory names of the agents that hold them."""


@dataclasses.dataclass(frozen=True)
class Session:
    """A session of the record: its ``plan``, and the ``parts`` that agents of the plan say they hold."""

    plan: SessionPlan
    parts: Parts

    @functools.cached_property
    def containers(self) -> dict[str, ContainerState]:
        """The existing containers by hostname: an agent has no say about those of others."""
        found = {kernel.hostname: self._part_of(kernel.agent).get(kernel.hostname) for kernel in self.plan.kernels}
        return {hostname: state for hostname, state in found.items() if state}

    def _part_of(self, agent: str) -> Mapping[str, ContainerState]:
        return self.parts[agent].containers if agent in self.parts else {}

    @functools.cached_property
    def status(self) -> str:
        """The status: ``CREATING`` while a claim is pending, ``ERROR`` if one has expired.

        ``RUNNING`` if every agent of the plan has committed and every container runs, or has completed the command;
        ``DEGRADED`` otherwise.
        """
        pending = [part for part in self.parts.values() if not part.committed]
        if pending:
            return "ERROR" if any(part.expired for part in pending) else "CREATING"
        healthy = {name for name, state in self.containers.items() if state.status == "running" or self.completed(name)}
        return "RUNNING" if len(healthy) == len(self.plan.kernels) else "DEGRADED"

    @property
    def expired(self) -> bool:
        """Whether only expired claims are left of it: it no longer counts."""
        return all(part.expired for part in self.parts.values())

    @property
    def committed(self) -> bool:
        """Whether all agents of the plan have committed their parts."""
        return all(agent in self.parts and self.parts[agent].committed for agent in self.plan.agents)

    @property
    def stopped(self) -> dict[str, ContainerState]:
        """The containers that have ended, by hostname."""
        return {hostname: state for hostname, state in self.containers.items() if state.status in STOPPED}

    @property
    def waiting(self) -> set[str]:
        """The hostnames of the containers of agents that start them when a folder is there."""
        return {
            each.hostname for each in self.plan.kernels if each.agent in self.parts and self.parts[each.agent].waits
        }

    @property
    def command_is_over(self) -> bool:
        """Whether main1 of a batch session has ended, or was removed, as far as its agent answers."""
        read = bool(self.plan.command) and self.plan.agents[0] in self.parts
        return read and (MAIN1 not in self.containers or MAIN1 in self.stopped)

    @property
    def command_has_begun(self) -> bool:
        """Whether all agents that run the command have begun it; of one that is over, whether main1's agent had."""
        running = (
            self.plan.agents if self.plan.command_scope == ALL and not self.command_is_over else self.plan.agents[:1]
        )
        return bool(self.plan.command) and all(agent in self.parts and self.parts[agent].begun for agent in running)

    def completed(self, hostname: str) -> bool:
        """Return whether a container has exited with code 0 because the session's command in it has completed."""
        state = self.containers[hostname]
        return state.status in STOPPED and state.exit_code == 0 and self.plan.runs_command(hostname)

    @property
    def public_keys(self) -> dict[str, PublicKeys]:
        """The public keys of its containers by hostname, each as its own agent has them, as far as they were asked."""
        return {
            kernel.hostname: self.parts[kernel.agent].public_keys[kernel.hostname]
            for kernel in self.plan.kernels
            if kernel.agent in self.parts and kernel.hostname in self.parts[kernel.agent].public_keys
        }


def find_sessions(held: Mapping[str, Parts], records: Mapping[str, SessionPlan]) -> dict[str, Session]:
    """Return the sessions of the record of which agents hold a part, by id; parts that were not planned are ignored."""
    sessions = {}
    for session_id, parts in held.items():
        plan = records.get(session_id)
        agents = frozenset(plan.agents) if plan else frozenset()
        planned = {agent: part for agent, part in parts.items() if agent in agents}
        if plan and planned:
            sessions[session_id] = Session(plan, planned)
    return sessions


@dataclasses.dataclass(frozen=True)
class ClusterState:
    """The agents of the inventory: ``facts`` of those that can be used, and why the others are ``unavailable``.

    ``records`` are the plans of sessions, by id, that this control node has made itself. ``addresses`` are those that
    the inventory gives agents, by name; an agent with a host name there has none. ``inventory`` is what it says of all
    agents, and ``unreachable`` are those that did not answer. ``clearing`` are the agents that still hold a session
    which has ended: how much of what they have allocated is that session's, no record says any more.
    """

    facts: Mapping[str, AgentFacts]
    unavailable: Mapping[str, str]
    records: Mapping[str, SessionPlan] = dataclasses.field(default_factory=dict)
    addresses: Mapping[str, Collection[str]] = dataclasses.field(default_factory=dict)
    inventory: Mapping[str, InventoryAgent] = dataclasses.field(default_factory=dict)
    unreachable: Collection[str] = frozenset()
    clearing: Collection[str] = frozenset()

    @functools.cached_property
    def away(self) -> Sequence[AwayAgent]:
        """The agents of the inventory that were asked and have no facts, sorted by name."""
        return [self._away(name) for name in sorted(self.unavailable) if name in self.inventory]

    def _away(self, name: str) -> AwayAgent:
        silent = name in self.unreachable
        problem = f"{'does not answer' if silent else 'cannot be used'} ({self.unavailable[name]})"
        return AwayAgent(name, self.inventory[name], problem, silent)

    @functools.cached_property
    def agents(self) -> list[AgentFacts]:
        """The agents that can be used, sorted by name."""
        return [self.facts[name] for name in sorted(self.facts)]

    @functools.cached_property
    def held(self) -> Mapping[str, Parts]:
        """All that agents say they hold, by session id; the parts are sorted by the names of their agents."""
        held: dict[str, dict[str, HeldSession]] = {}
        for facts in self.agents:
            for part in facts.sessions:
                held.setdefault(part.id, {})[facts.name] = part
        return held

    @functools.cached_property
    def sessions(self) -> Mapping[str, Session]:
        """The sessions of the record of which agents hold a part, by id."""
        return find_sessions(self.held, self.records)

    @functools.cached_property
    def strangers(self) -> Mapping[str, Parts]:
        """What agents say they hold of sessions without a record, by session id: it gives nobody any right."""
        return {session_id: parts for session_id, parts in self.held.items() if session_id not in self.records}

    @functools.cached_property
    def names(self) -> Mapping[str, Sequence[str]]:
        """The ids of the sessions of the record that live on agents, by name."""
        names: dict[str, list[str]] = {}
        for session_id, session in self.sessions.items():
            if not session.expired:
                names.setdefault(session.plan.name, []).append(session_id)
        return names

    @functools.cached_property
    def agents_of_strangers(self) -> Mapping[str, Collection[str]]:
        """The agents that hold sessions without a record, by the name of the session: they refuse another one of it."""
        agents: dict[str, set[str]] = {}
        for parts in self.strangers.values():
            for agent, part in parts.items():
                if not part.expired:
                    agents.setdefault(part.name, set()).add(agent)
        return agents

    def is_taken(self, name: str) -> bool:
        """Return whether a session of that name is on any agent, so that a decision depends on the name."""
        return name in self.names or name in self.agents_of_strangers

    def holders(self, session_id: str) -> list[str]:
        """Return the agents that say that they hold a part of a session, readable or not, sorted by name."""
        parts = self.held.get(session_id, {})
        return [facts.name for facts in self.agents if facts.name in parts or session_id in facts.damaged_sessions]

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

    def with_ended(self, ended: Collection[str]) -> ClusterState:
        """Return this state with the agents as ``clearing`` that still hold sessions of those ids, which have ended."""
        clearing = {name for name, facts in self.facts.items() if not _held_ids(facts).isdisjoint(ended)}
        return dataclasses.replace(self, clearing=clearing)

    def with_plan(self, plan: SessionPlan) -> ClusterState:
        """Return this state as if the agents held ``plan`` already, to plan the next session."""
        changed = {name: _add_plan(self.facts[name], plan) for name in plan.agents if name in self.facts}
        return dataclasses.replace(self, facts={**self.facts, **changed}, records={**self.records, plan.id: plan})

    @functools.cached_property
    def emptied(self) -> ClusterState:
        """This state as if all sessions of the record had ended, and gateways had confirmed that.

        What other software and sessions without a record have taken stays taken: nothing says that it will be free.
        """
        facts = {name: self._without_ours(agent) for name, agent in self.facts.items()}
        return dataclasses.replace(self, facts=facts)

    def _without_ours(self, agent: AgentFacts) -> AgentFacts:
        if agent.name in self.clearing or not self.records.keys().isdisjoint(agent.damaged_sessions):
            return _emptied(agent)
        held = [(part, self.records[part.id]) for part in agent.sessions if part.id in self.records]
        # An agent counts no claims that have expired, but may not have cleared their ports and networks yet.
        counted = [kernel for part, plan in held if not part.expired for kernel in plan.kernels_on(agent.name)]
        ours: Counter[str] = Counter()
        for kernel in counted:
            ours.update(kernel.resources)
        networks = [plan.network for _part, plan in held if plan.network]
        vnis = {network.vni for network in networks}
        subnets = {ipaddress.ip_network(network.subnet) for network in networks if network.subnet}
        ports = {port for _part, plan in held for port in plan.tcp_ports(agent.name)}
        reserved = {port for listed in agent.reserved_ports.values() for port in listed}
        return dataclasses.replace(
            agent,
            allocated={slot: max(0, amount - ours[slot]) for slot, amount in agent.allocated.items()},
            # Which of them are a session's, only the agent knows; how many are free, the amounts say.
            devices=tuple(
                dataclasses.replace(device, free=device.free or ours[device.slot] > 0) for device in agent.devices
            ),
            containers=max(0, agent.containers - len(counted)),
            networks=tuple(text for text in agent.networks if ipaddress.ip_network(text, strict=False) not in subnets),
            vnis=tuple(vni for vni in agent.vnis if vni not in vnis),
            tcp_ports=agent.tcp_ports - ports - reserved,
            reserved_ports={},
            sessions=tuple(part for part in agent.sessions if part.id not in self.records),
        )

    def explain_unavailable(self, names: Iterable[str]) -> str:
        """Return why agents cannot be used, grouped by reason."""
        by_reason: dict[str, list[str]] = {}
        for name in sorted(names):
            by_reason.setdefault(self.unavailable.get(name, "not in the inventory, or hidden by --limit"), []).append(
                name
            )
        return "; ".join(f"{', '.join(agents)}: {reason}" for reason, agents in by_reason.items())


def _held_ids(facts: AgentFacts) -> set[str]:
    return {*facts.damaged_sessions, *(part.id for part in facts.sessions)}


def _emptied(facts: AgentFacts) -> AgentFacts:
    """Return the facts as if nothing were taken."""
    return dataclasses.replace(
        facts,
        allocated={},
        containers=0,
        networks=(),
        vnis=(),
        tcp_ports=frozenset(),
        reserved_ports={},
        sessions=(),
    )


def _drop_sessions(facts: AgentFacts, ended: Collection[str]) -> AgentFacts:
    remaining = tuple(session for session in facts.sessions if session.id not in ended)
    return facts if len(remaining) == len(facts.sessions) else dataclasses.replace(facts, sessions=remaining)


def _add_plan(facts: AgentFacts, plan: SessionPlan) -> AgentFacts:
    kernels, network = plan.kernels_on(facts.name), plan.network
    taken = dict(facts.allocated)
    for slot, amount in (item for kernel in kernels for item in kernel.resources.items()):
        taken[slot] = taken.get(slot, 0) + amount
    planned = HeldSession(
        plan.id, plan.name, plan.created_at, "", "", batch=False, committed=False, expired=False, states=()
    )
    return dataclasses.replace(
        facts,
        allocated=taken,
        devices=_take(facts.devices, plan.gpu, (kernel.resources for kernel in kernels)),
        containers=facts.containers + len(kernels),
        networks=(*facts.networks, *([network.subnet] if network and network.subnet else [])),
        tcp_ports=facts.tcp_ports.union(plan.tcp_ports(facts.name)),
        vnis=(*facts.vnis, *([network.vni] if network and network.vni else [])),
        sessions=(*facts.sessions, planned),
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
