# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Finds the sessions that would have to end so that a demand fits."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from ...module_utils._model.facts import AgentFacts
from ...module_utils._model.plan import SessionPlan
from .demand import Demand

# How many sessions are considered, the oldest.
MAX_SESSIONS = 50

# How often unlike containers are placed on trial, and of how many shapes at most: a placement of these takes long.
MAX_TRIALS, MAX_SHAPES = 12, 16


@dataclasses.dataclass(frozen=True)
class SessionUsage:
    """The resources that a session uses on one agent. ``slots`` are bytes for memory, counts for the rest."""

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
        return cls(freed, len(requests))


def blocking_sessions(
    agents: Sequence[AgentFacts],
    demand: Demand,
    plans: Mapping[str, SessionPlan],
    *,
    single_node: bool,
    fits: Callable[[Sequence[AgentFacts]], bool],
) -> tuple[str, ...]:
    """Return the names of sessions so that the demand ``fits`` when all of them end, oldest first; empty if none do.

    They are sessions of ``plans``, by id: what others use is not freed. Expired claims use nothing. That is the oldest
    session that is sufficient alone. If there is none, it is the smallest number of oldest sessions that is sufficient,
    without those that are not needed; for containers of several shapes as far as the trials go. The demand must not fit
    now.
    """
    if len(demand.counts) > MAX_SHAPES:
        return ()
    trial = _Trial(agents, demand, plans, single_node, fits)
    sessions = trial.oldest
    too_few, many = 0, min(1, len(sessions))
    while not trial.fits_without(sessions[:many]):
        if many == len(sessions):
            return ()
        too_few, many = many, min(2 * many, len(sessions))
    while many - too_few > 1:
        middle = (too_few + many) // 2
        too_few, many = (too_few, middle) if trial.fits_without(sessions[:middle]) else (middle, many)
    # Any older session is among those that are not sufficient together.
    alone = next((one for one in sessions[many - 1 :] if trial.fits_without([one])), None)
    ended = sessions[:many] if alone is None else [alone]
    for session in reversed(ended[:-1]):
        others = [one for one in ended if one is not session]
        ended = others if trial.fits_without(others) else ended
    return tuple(session.name for session in ended)


class _Trial:
    """Agents without some of their sessions, of which the ``oldest`` are considered."""

    def __init__(
        self,
        agents: Sequence[AgentFacts],
        demand: Demand,
        plans: Mapping[str, SessionPlan],
        single_node: bool,
        fits: Callable[[Sequence[AgentFacts]], bool],
    ) -> None:
        self._agents, self._fits = agents, fits
        shapes = [(demand.total, 1)] if single_node else [*zip(demand.per_shape, demand.counts, strict=True)]
        self._exact, self._trials = len(shapes) == 1, MAX_TRIALS
        self._bundles = [bundle for bundle, _needed in shapes]
        self._rooms = [bundle.capacities(agents) for bundle in self._bundles]
        self._missing = [needed - sum(rooms) for (_bundle, needed), rooms in zip(shapes, self._rooms, strict=True)]
        self._agents_of: dict[str, list[int]] = {}
        for at, agent in enumerate(agents):
            for held in agent.sessions:
                if held.id in plans and not held.expired:
                    self._agents_of.setdefault(held.id, []).append(at)
        self.oldest = sorted((plans[session_id] for session_id in self._agents_of), key=_age)[:MAX_SESSIONS]

    def fits_without(self, ended: Sequence[SessionPlan]) -> bool:
        """Return whether the demand fits without these sessions: it is tried only if each shape alone has room."""
        without: dict[int, AgentFacts] = {}
        for plan in ended:
            for at in self._agents_of[plan.id]:
                without[at] = _without(without.get(at, self._agents[at]), SessionUsage.of(self._agents[at], plan))
        for bundle, rooms, missing in zip(self._bundles, self._rooms, self._missing, strict=True):
            if sum(bundle.capacity(agent) - rooms[at] for at, agent in without.items()) < missing:
                return False
        if self._exact:
            return True
        self._trials -= 1
        return self._trials >= 0 and self._fits([without.get(at, agent) for at, agent in enumerate(self._agents)])


def _without(agent: AgentFacts, ended: SessionUsage) -> AgentFacts:
    """Return an agent as it is after the end of a session."""
    taken = {slot: amount - ended.slots.get(slot, 0) for slot, amount in agent.allocated.items()}
    return dataclasses.replace(agent, allocated=taken, containers=agent.containers - ended.containers)


def _age(plan: SessionPlan) -> tuple[float, str, str]:
    return plan.created_at, plan.name, plan.id
