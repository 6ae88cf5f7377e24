# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Finds the sessions that would have to end so that a demand fits."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from ...module_utils._model.capacity import Bundle, HasCapacity
from ...module_utils._model.facts import AgentFacts
from ...module_utils._model.plan import SessionPlan
from .agent_classes import CapacityVector, Normalizer
from .demand import Demand
from .packing import Budget, BudgetExceededError, Frontier, Packing, ReachableCounts, reachable_totals

# How many trial packings of containers of several shapes are made.
MAX_PACKINGS = 64

# How many elementary steps these may take in total, about a tenth of a second.
STEPS = 1_000_000


@dataclasses.dataclass(frozen=True)
class SessionUsage:
    """The resources that a session uses on one agent. ``slots`` are bytes for memory, counts for the rest.

    ``created_at`` is in seconds since the epoch.
    """

    session_id: str
    name: str
    created_at: float
    slots: dict[str, int]
    containers: int

    @classmethod
    def of(cls, agent: AgentFacts, plan: SessionPlan) -> SessionUsage:
        """Return what the end of the session of that plan would free on an agent."""
        requests = [kernel.resources for kernel in plan.kernels_on(agent.name)]
        slots: Counter[str] = Counter()
        for request in requests:
            slots.update(request)
        freed = {slot: amount for slot, amount in slots.items() if slot not in agent.lasting_slots}
        return cls(plan.id, plan.name, plan.created_at, freed, len(requests))


def blocking_sessions(
    agents: Sequence[AgentFacts], demand: Demand, plans: Mapping[str, SessionPlan], *, single_node: bool
) -> tuple[str, ...]:
    """Return the names of sessions that free enough capacity when all of them end, oldest first; empty if none do.

    They are sessions of ``plans``, by id: what others use is not freed. Expired claims use nothing.

    That is the oldest session that is sufficient alone. If there is none, it is the smallest number of oldest sessions
    that is sufficient, without those that are not needed: more capacity never hurts, so none of the rest can be
    omitted. For containers of several shapes this holds as far as the trial packings go. The demand must not fit now.
    """
    try:
        room: _CapacityModel
        if single_node or len(demand.counts) == 1:
            room = (
                _UniformCapacity(demand.total, 1) if single_node else _UniformCapacity(demand.per_shape[0], demand.size)
            )
        else:
            room = _MixedCapacity(demand)
        stage = _Simulation(agents, plans, {slot for request in demand.requests for slot in request}, room)
        return tuple(session.name for session in _smallest_sufficient_set(stage, room))
    except BudgetExceededError:
        return ()


def _smallest_sufficient_set(stage: _Simulation, room: _CapacityModel) -> list[SessionUsage]:
    sessions = stage.sessions
    too_few, many = 0, min(1, len(sessions))
    stage.end_oldest(many)
    while not room.is_sufficient():
        if many == len(sessions):
            return []
        too_few, many = many, min(2 * many, len(sessions))
        stage.end_oldest(many)
    while many - too_few > 1:
        middle = (too_few + many) // 2
        stage.end_oldest(middle)
        too_few, many = (too_few, middle) if room.is_sufficient() else (middle, many)
    stage.end_oldest(0)
    # Any older session is among the oldest ``too_few``, which are not sufficient.
    for session in sessions[many - 1 :]:
        stage.end(session)
        if room.is_sufficient():
            return [session]
        stage.undo()
    stage.end_oldest(many)
    needed = [sessions[many - 1]]
    for session in reversed(sessions[: many - 1]):
        stage.end(session, -1)
        if not room.is_sufficient():
            stage.undo()
            needed.append(session)
    return needed[::-1]


class _CapacityModel(Protocol):
    """The joint capacity of agents, updated as they change."""

    def part(self, agent: HasCapacity) -> Any:
        """Return what an agent contributes."""

    def add(self, part: Any, agents: int) -> None:
        """Add (or, if negative, remove) so many agents that contribute ``part``."""

    def is_sufficient(self) -> bool:
        """Return whether the whole demand fits."""


class _UniformCapacity:
    """Capacity for ``needed`` times the same bundle of containers."""

    def __init__(self, bundle: Bundle, needed: int) -> None:
        self._bundle, self._missing = bundle, needed

    def part(self, agent: HasCapacity) -> int:
        return self._bundle.capacity(agent)

    def add(self, part: int, agents: int) -> None:
        self._missing -= part * agents

    def is_sufficient(self) -> bool:
        return self._missing <= 0


class _MixedCapacity:
    """Capacity for containers of several shapes, which are only packed if there is enough for each shape alone."""

    def __init__(self, demand: Demand) -> None:
        self._scale, self._budget, self._trials = Normalizer(demand), Budget(STEPS), MAX_PACKINGS
        self._totals = ReachableCounts(demand.counts, self._budget, none_empty=False)
        # The number of each frontier, and by number the frontiers, the most of each shape alone, and the agents.
        self._numbers: dict[CapacityVector, int] = {}
        self._frontiers: list[Frontier] = []
        self._most: list[Packing] = []
        self._agents: Counter[int] = Counter()
        self._missing = list(demand.counts)

    def part(self, agent: HasCapacity) -> int:
        measure = self._scale.measure(agent)
        if measure not in self._numbers:
            self._numbers[measure] = len(self._frontiers)
            self._frontiers.append(self._scale.frontier(measure, self._totals.counts, self._budget))
            self._most.append(tuple(map(max, zip(*self._frontiers[-1], strict=True))))
        return self._numbers[measure]

    def add(self, part: int, agents: int) -> None:
        self._agents[part] += agents
        for shape, most in enumerate(self._most[part]):
            self._missing[shape] -= most * agents

    def is_sufficient(self) -> bool:
        if max(self._missing) > 0 or not self._trials:
            return False
        self._trials -= 1
        agents = ((self._frontiers[number], many) for number, many in self._agents.items())
        return bool(reachable_totals(self._totals, agents) & self._totals.everything)


class _RemainingCapacity:
    """The free capacity of an agent as sessions end, for the relevant slots: negative if a slot was overcommitted."""

    __slots__ = ("containers", "free", "max_containers", "online_cpu_count")

    def __init__(self, free: dict[str, int], online_cpu_count: int, containers: int, max_containers: int) -> None:
        self.free = free
        self.online_cpu_count = online_cpu_count
        self.containers = containers
        self.max_containers = max_containers

    @classmethod
    def of(cls, agent: AgentFacts, slots: Iterable[str]) -> _RemainingCapacity:
        """Return the free capacity of an agent now."""
        capacity, taken = agent.capacity, agent.allocated
        free = {slot: capacity.get(slot, 0) - taken.get(slot, 0) for slot in slots}
        return cls(free, agent.online_cpu_count, agent.containers, agent.max_containers)

    def after(self, holding: SessionUsage, sign: int) -> _RemainingCapacity:
        """Return the free capacity after a session ends (1), or is restored (-1)."""
        slots = holding.slots
        free = {slot: amount + sign * slots.get(slot, 0) for slot, amount in self.free.items()}
        return _RemainingCapacity(
            free, self.online_cpu_count, self.containers - sign * holding.containers, self.max_containers
        )


class _Simulation:
    """The agents while sessions end, one after the other, with an undo of the last step.

    ``sessions`` are all sessions, oldest first, each represented by its usage of one agent.
    """

    def __init__(
        self,
        agents: Sequence[AgentFacts],
        plans: Mapping[str, SessionPlan],
        slots: Iterable[str],
        room: _CapacityModel,
    ) -> None:
        self._agents, self._slots, self._room = agents, slots, room
        self._left: dict[int, _RemainingCapacity] = {}
        headrooms = [agent.headroom for agent in agents]
        parts = {headroom: room.part(headroom) for headroom in dict.fromkeys(headrooms)}
        self._parts = [parts[headroom] for headroom in headrooms]
        self._steps: list[list[tuple[int, _RemainingCapacity, Any]]] = []
        for part, agents_of_it in Counter(self._parts).items():
            room.add(part, agents_of_it)
        self._holdings: dict[str, dict[int, SessionUsage]] = {}
        for at, agent in enumerate(agents):
            for plan in (plans[held.id] for held in agent.sessions if held.id in plans and not held.expired):
                self._holdings.setdefault(plan.id, {})[at] = SessionUsage.of(agent, plan)
        self.sessions = sorted((next(iter(held.values())) for held in self._holdings.values()), key=_age)

    def end_oldest(self, count: int) -> None:
        """End exactly the ``count`` oldest sessions, given that only oldest sessions have ended until now."""
        while len(self._steps) > count:
            self.undo()
        while len(self._steps) < count:
            self.end(self.sessions[len(self._steps)])

    def end(self, session: SessionUsage, sign: int = 1) -> None:
        """End a session (1), or restore one that has ended (-1); ``session`` is its usage of any agent."""
        step = []
        for at, holding in self._holdings[session.session_id].items():
            remaining = self._left[at] if at in self._left else _RemainingCapacity.of(self._agents[at], self._slots)
            step.append((at, remaining, self._parts[at]))
            after = remaining.after(holding, sign)
            self._change(at, after, self._room.part(after))
        self._steps.append(step)

    def undo(self) -> None:
        """Undo the last step."""
        for at, remaining, part in self._steps.pop():
            self._change(at, remaining, part)

    def _change(self, at: int, remaining: _RemainingCapacity, part: Any) -> None:
        self._room.add(self._parts[at], -1)
        self._room.add(part, 1)
        self._left[at], self._parts[at] = remaining, part


def _age(session: SessionUsage) -> tuple[float, str, str]:
    return session.created_at, session.name, session.session_id
