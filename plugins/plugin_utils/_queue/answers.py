# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decides on sessions of a queue: equal requests share an answer, also with the pass before if no agent has changed."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from ...module_utils._model.errors import as_phrase
from ...module_utils._model.facts import AgentFacts
from ...module_utils._model.plain_data import to_plain
from ...module_utils._model.plan import SessionPlan
from ...module_utils._model.session import MAX_APPS
from ...module_utils._model.validation import ValidationError
from .._placement.place import Unschedulable
from .._planner.cluster_state import ClusterState
from .._planner.decision import Decision, decide, is_feasible
from .._planner.eligibility import away_as_data, excludes_all, what_excludes
from .._planner.published_ports import count_free
from .._planner.route_address import ForeignAddressError
from .._planner.session_network import PlanningError
from .._request.run_options import NetworkPools
from .._request.spec import SessionSpec, check_stored, spec_from_dict
from .entry import ON_HOST, PENDING, QueueEntry

# How many answers of a pass name the sessions that would have to end: their search costs more than all the rest.
NAMED_BLOCKERS = 100


@dataclasses.dataclass(frozen=True)
class Lack:
    """Why there is no room, as in a record: the phrase, and the amount of each slot that is short."""

    reason: str
    shortfall: dict[str, int]


@dataclasses.dataclass(frozen=True)
class LastPass:
    """What a pass over the queue leaves to the next one; it may be lost at any time.

    ``answers`` are the keys in ``lacks`` of requests without room or without an agent that may hold them, ``feasible``
    whether requests could ever be met, and ``waiting`` the keys in ``lacks`` of sessions by id, unless their entries
    have been updated since ``updated_at``. These are two mappings, because a long queue has no time for objects.
    """

    lacks: dict[str, Lack] = dataclasses.field(default_factory=dict)
    answers: dict[str, str] = dataclasses.field(default_factory=dict)
    feasible: dict[str, bool] = dataclasses.field(default_factory=dict)
    waiting: dict[str, str] = dataclasses.field(default_factory=dict)
    updated_at: dict[str, float] = dataclasses.field(default_factory=dict)

    def record(self, entry: QueueEntry) -> dict[str, Any]:
        """Return the record of an entry, with the reason that the pass has found if the entry still waits as it did."""
        if entry.state != PENDING or self.updated_at.get(entry.id) != entry.updated_at:
            return entry.record
        lack = self.lacks.get(self.waiting.get(entry.id, ""))
        return {**entry.record, "pending": {**vars(lack)}} if lack else entry.record


class Answers:
    """Decides on one session after the other, each with the capacity that the earlier ones leave.

    ``cluster`` includes what has started in this pass.
    """

    def __init__(self, cluster: ClusterState, pools: NetworkPools, now: float, last: LastPass | None = None) -> None:
        self.cluster, self._pools, self._now, self._last = cluster, pools, now, last or LastPass()
        # One object for all with the same answer.
        self._kept = {key: Unschedulable(lack.reason, lack.shortfall) for key, lack in self._last.lacks.items()}
        self._states: dict[tuple[str, bool], str] = {}
        # More starts leave no more room: "no room" holds for the rest of the pass, and what excludes all agents as
        # well; other refusals hold until the next start.
        self._no_room: dict[str, Unschedulable] = {}
        self._refused: dict[str, Unschedulable] = {}
        self._feasible: dict[str, bool] = {}
        # What only the inventory keeps from being feasible: that may change before the next pass.
        self._foreign: set[str] = set()
        self._unchanged: dict[str, Unschedulable] = {}
        self._grown: set[str] = set()
        self.computed = 0

    def on(self, cluster: ClusterState) -> Answers:
        """Return this for another state of the same agents; what was found feasible is kept."""
        last = dataclasses.replace(self._last, feasible={**self._last.feasible, **self._feasible})
        return Answers(cluster, self._pools, self._now, last)

    def decide(self, entry: QueueEntry) -> Decision | Unschedulable:
        """Return the decision on an entry; what can never be met stays PENDING as well, with the problem as reason."""
        key = entry.request_key
        shared = wait_for_agents(entry, self.cluster) or self._known(entry, key)
        if shared is not None:
            return shared
        self.computed += 1
        try:
            spec = _checked_spec(entry)
        except ValidationError as error:
            return Unschedulable(as_phrase(error), {})
        namesake = self.cluster.is_taken(entry.name)
        try:
            blockers = self.computed <= NAMED_BLOCKERS
            decision = decide(spec, self.cluster, self._pools, entry.id, entry.user, self._now, name_blockers=blockers)
        except (ValidationError, PlanningError) as error:
            refusal = Unschedulable(as_phrase(error), {})
            if not namesake and excludes_all(spec, self.cluster.agents, self.cluster.unavailable, self.cluster.away):
                self._no_room[key] = self._unchanged[f"{key} {self._exclusions}"] = refusal
            elif not namesake:
                self._refused[key] = refusal
            return refusal
        if isinstance(decision, Unschedulable) and not namesake:
            self._no_room[key] = decision
            if entry.resource_group not in self._grown:
                self._unchanged[self._stored_key(entry, key)] = decision
        return decision if isinstance(decision, Unschedulable) else decision.with_uid(entry.user_uid)

    def _known(self, entry: QueueEntry, key: str) -> Unschedulable | None:
        if self.cluster.is_taken(entry.name):
            return None
        known = self._no_room.get(key)
        if known is None:
            known = self._from_last_pass(f"{key} {self._exclusions}", key)
        if known is None and entry.resource_group not in self._grown:
            known = self._from_last_pass(self._stored_key(entry, key), key)
        if known is None and self._refused:
            known = self._refused.get(key)
        return known

    def _from_last_pass(self, stored: str, key: str) -> Unschedulable | None:
        known = self._kept.get(self._last.answers.get(stored, ""))
        if known is not None:
            self._no_room[key] = self._unchanged[stored] = known
        return known

    def start(self, plan: SessionPlan) -> None:
        """Take the room of a new plan."""
        self.cluster = self.cluster.with_plan(plan)
        self._grown.add(plan.resource_group)
        self._refused.clear()

    def blocks(self, entry: QueueEntry) -> bool:
        """Return whether others wait behind a due session: agents hold no claim of it, and it could start some time.

        A session that waits for an agent to return does not need the room that others would leave it.
        """
        if entry.id in self.cluster.sessions or wait_for_agents(entry, self.cluster):
            return False
        return entry.spec is None or self.is_feasible(entry)

    def is_feasible(self, entry: QueueEntry) -> bool:
        """Return whether a session could start if all others ended."""
        key = f"{entry.request_key} {self._state(entry.resource_group, empty=True)}"
        namesake = self.cluster.is_taken(entry.name)
        known = None if namesake else self._feasible.get(key, self._last.feasible.get(key))
        if known is None:
            try:
                known = is_feasible(_checked_spec(entry), self.cluster, self._pools, entry.id)
            except ValidationError:
                # Others with the same key may be valid.
                return False
            except ForeignAddressError:
                self._foreign.add(key)
                known = False
        if not namesake:
            self._feasible[key] = known
        return known

    def result(self, waiting: Mapping[str, tuple[QueueEntry, Unschedulable]]) -> LastPass:
        """Return what the next pass may use; ``waiting`` are the sessions that stay PENDING, by id."""
        answers = [*self._unchanged.values(), *(answer for _entry, answer in waiting.values())]
        # Mostly, few objects are the answers to many.
        different = {id(answer): answer for answer in answers}
        kept: dict[tuple[str, tuple[tuple[str, int], ...]], str] = {}
        keys = {
            known: kept.setdefault((answer.reason, tuple(answer.shortfall.items())), f"{len(kept)}")
            for known, answer in different.items()
        }
        return LastPass(
            {key: Lack(reason, dict(shortfall)) for (reason, shortfall), key in kept.items()},
            {key: keys[id(answer)] for key, answer in self._unchanged.items()},
            {key: known for key, known in self._feasible.items() if key not in self._foreign},
            {name: keys[id(answer)] for name, (_entry, answer) in waiting.items()},
            {name: entry.updated_at for name, (entry, _answer) in waiting.items()},
        )

    @functools.cached_property
    def _exclusions(self) -> str:
        """A digest of what decides whether a request excludes all agents."""
        return _digest(what_excludes(self.cluster.agents, self.cluster.unavailable, self.cluster.away))

    def _stored_key(self, entry: QueueEntry, key: str) -> str:
        ports = ""
        if key.startswith(ON_HOST):
            agents = [agent for agent in self.cluster.agents if agent.resource_group == entry.resource_group]
            ports = f" {_digest([sorted(agent.tcp_ports) for agent in agents])}"
        return f"{key} {self._state(entry.resource_group, empty=False)}{ports}"

    def _state(self, group: str, *, empty: bool) -> str:
        """Return a digest of what decides whether there is room on the agents of a resource group.

        ``empty``: as if they held no session. It is computed before anything starts there, or does not depend on that.
        """
        if (group, empty) not in self._states:
            in_group = [agent for agent in self.cluster.agents if agent.resource_group == group]
            agents = [_room(agent, self._pools, empty=empty) for agent in in_group]
            network = [dataclasses.astuple(self._pools), self._networks(group)] if empty else []
            away = away_as_data([agent for agent in self.cluster.away if agent.may_belong(group)])
            self._states[group, empty] = _digest([agents, network, away])
        return self._states[group, empty]

    def _networks(self, group: str) -> list[Any]:
        """Return what decides whether agents of a resource group can have the networks of sessions, as plain data."""
        port = self._pools.vxlan_port
        agents = [agent for agent in self.cluster.agents if agent.resource_group == group]
        return [(agent.name, to_plain(agent.underlay), agent.udp_ports.get(port)) for agent in agents]


def wait_for_agents(entry: QueueEntry, cluster: ClusterState) -> Unschedulable | None:
    """Return why a session must not start elsewhere: agents of its last start cannot say whether its command runs.

    ``None`` if all of them can, if it has no command, which must not run twice, or if it was never started.
    """
    plan = entry.plan
    away = [agent for agent in plan.agents if agent not in cluster.facts] if plan and plan.command else []
    if not away:
        return None
    return Unschedulable(
        f"{', '.join(away)} may have begun its command, and cannot be used ({cluster.explain_unavailable(away)}): make"
        " it available again, or end the session with terminate_session and create it again",
        {},
    )


def _digest(data: object) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:32]


def _room(agent: AgentFacts, pools: NetworkPools, *, empty: bool) -> list[Any]:
    held = [] if empty else [
        agent.allocated,
        agent.containers,
        # No session needs more.
        min(count_free(agent, pools), MAX_APPS + 1),
        [session.id for session in agent.sessions if not session.expired],
    ]  # fmt: skip
    return [
        agent.name,
        agent.schedulable,
        agent.cordon and agent.cordon.description,
        agent.obstacles,
        agent.architecture,
        sorted(agent.labels),
        [agent.topology, agent.topology_levels],
        sorted((device.slot, device.model, device.memory) for device in agent.devices if device.model),
        agent.online_cpu_count,
        agent.capacity,
        agent.max_containers,
        agent.allow_host_network,
        agent.infiniband,
        sorted(image for image, identity in agent.images.items() if identity),
        sorted(agent.unusable_paths),
        sorted(agent.unusable_images),
        held,
    ]


def _checked_spec(entry: QueueEntry) -> SessionSpec:
    """Return the request of an entry, validated again: whoever writes to the queue is not the one that starts it.

    Raises :class:`ValidationError`.
    """
    spec = spec_from_dict(entry.spec or {})
    check_stored(spec)
    return spec
