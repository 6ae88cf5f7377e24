# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which agent holds how many of a session's containers: pure, exact for containers that are alike, deterministic.

All containers of a session ask the same, so an agent is fully described by how many of them it can still hold. The
fewest agents that hold N are then the k roomiest: if those k-1 that are roomiest hold fewer than N, no other k-1 do
(exchange argument; bin covering with identical items).
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Callable, Iterable, Sequence

from ansible_collections.backendai.cluster.plugins.module_utils._core.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.module_utils._core.quantity import format_slots

UNLIMITED = 1 << 30


@dataclasses.dataclass(frozen=True)
class Placement:
    """How many containers each agent gets, in rank order: the first agent holds ``main1``."""

    counts: tuple[tuple[str, int], ...]


@dataclasses.dataclass(frozen=True)
class NoRoom:
    """Why a session cannot start now; ``shortfall`` is what the containers without a place ask of each scarce slot."""

    reason: str
    shortfall: dict[str, int]


@dataclasses.dataclass(frozen=True)
class _Candidate:
    agent: AgentFacts
    room: int
    """How many containers it can hold."""
    leftover: tuple[int, int, int]
    """What stays free of accelerators, cpu and memory today: the less, the better the fit."""


def place(
    agents: Iterable[AgentFacts], request: dict[str, int], size: int, *, single_node: bool, selection: str
) -> Placement | NoRoom:
    """Return where ``size`` containers of ``request`` each go, all of them or none.

    ``agents`` are those that may be used at all. ``selection`` is ``concentrated`` (one agent where one holds all,
    else the fewest), ``dispersed`` (a multi-node session on as many agents as possible, a single-node one on the
    emptiest) or ``roundrobin`` (as few agents as ``concentrated``, those whose latest session is oldest).
    """
    candidates = [_Candidate(agent, room_for(agent, request), _leftover(agent)) for agent in agents]
    most = max((candidate.room for candidate in candidates), default=0)
    held = most if single_node else sum(candidate.room for candidate in candidates)
    if held < size:
        return _no_room(candidates, request, size, held, single_node)
    usable = [candidate for candidate in candidates if candidate.room]
    if selection == "dispersed" and not single_node:
        return _spread(usable, size)
    if selection == "dispersed":
        return _one_agent(usable, size, _emptiest)
    order = _oldest if selection == "roundrobin" else _tightest
    return _one_agent(usable, size, order) if most >= size else _fewest(usable, size, order)


def room_for(agent: AgentFacts, request: dict[str, int]) -> int:
    """Return how many containers that ask ``request`` each the agent can still hold."""
    if request.get("cpu", 0) > agent.online_cpus:
        return 0
    free = agent.free
    by_slots = [free.get(slot, 0) // amount for slot, amount in _countable(request).items()]
    by_limit = agent.max_containers - agent.containers if agent.max_containers else UNLIMITED
    return max(0, min([*by_slots, by_limit]))


def _countable(request: dict[str, int]) -> dict[str, int]:
    """Shared memory is a part of memory and is counted there; a slot of amount zero never stands in the way."""
    return {slot: amount for slot, amount in request.items() if amount and slot != "shmem"}


def _leftover(agent: AgentFacts) -> tuple[int, int, int]:
    free = agent.free
    accelerators = sum(amount for slot, amount in free.items() if slot not in ("cpu", "mem"))
    return accelerators, free.get("cpu", 0), free.get("mem", 0)


Order = Callable[[_Candidate], tuple[object, ...]]


def _tightest(candidate: _Candidate) -> tuple[object, ...]:
    return (*candidate.leftover, candidate.agent.name)


def _emptiest(candidate: _Candidate) -> tuple[object, ...]:
    return (*(-amount for amount in candidate.leftover), candidate.agent.name)


def _oldest(candidate: _Candidate) -> tuple[object, ...]:
    return (candidate.agent.latest_session, *_tightest(candidate))


def _one_agent(usable: Sequence[_Candidate], size: int, order: Order) -> Placement:
    chosen = min((candidate for candidate in usable if candidate.room >= size), key=order)
    return Placement(((chosen.agent.name, size),))


def _fewest(usable: Sequence[_Candidate], size: int, order: Order) -> Placement:
    """Choose the fewest agents that hold ``size``, and of all such choices the one that comes first in ``order``.

    Walking in that order, an agent is taken when those still to be taken can complete the session with the roomiest
    of what comes after it; one that is passed over once would never complete it later.
    """
    fewest, held = 0, 0
    for room in sorted((candidate.room for candidate in usable), reverse=True):
        if held >= size:
            break
        fewest, held = fewest + 1, held + room
    chosen: list[_Candidate] = []
    held = 0
    ordered = sorted(usable, key=order)
    for position, candidate in enumerate(ordered):
        wanted = fewest - len(chosen) - 1
        others = heapq.nlargest(wanted, (other.room for other in ordered[position + 1 :]))
        if len(chosen) < fewest and held + candidate.room + sum(others) >= size:
            chosen.append(candidate)
            held += candidate.room
    return _filled(chosen, size)


def _filled(chosen: Sequence[_Candidate], size: int) -> Placement:
    """Fill the agents one after the other, the roomiest first; none stays empty, or fewer would have done."""
    counts, missing = [], size
    for candidate in sorted(chosen, key=lambda one: (-one.room, one.agent.name)):
        counts.append((candidate.agent.name, min(candidate.room, missing)))
        missing -= counts[-1][1]
    return Placement(tuple(counts))


def _spread(usable: Sequence[_Candidate], size: int) -> Placement:
    """Use as many agents as there are containers for, evenly: always the one with the fewest, then the emptiest."""
    chosen = sorted(usable, key=_emptiest)[:size]
    counts = {candidate.agent.name: 0 for candidate in chosen}
    for _container in range(size):
        open_ones = [candidate for candidate in chosen if counts[candidate.agent.name] < candidate.room]
        target = min(open_ones, key=lambda candidate: (counts[candidate.agent.name], *_emptiest(candidate)))
        counts[target.agent.name] += 1
    return Placement(tuple(counts.items()))


def _no_room(
    candidates: Sequence[_Candidate], request: dict[str, int], size: int, held: int, single_node: bool
) -> NoRoom:
    if not candidates:
        return NoRoom(f"no room for {size} of {size} containers: no agent that may hold them is schedulable", {})
    best = [one for one in candidates if one.room == held] if single_node else candidates
    short = _scarce(best, request)
    shortfall = {slot: (size - held) * amount for slot, amount in _countable(request).items() if slot in short}
    where = "on one agent" if len(candidates) == 1 or (single_node and size > 1) else f"on {len(candidates)} agents"
    reason = f"no room for {size - held} of {size} containers {where}"
    if shortfall:
        reason += f": short of {format_slots(shortfall)}"
    else:
        reason += ": the limit of containers per agent is reached"
    if all(request.get("cpu", 0) > candidate.agent.online_cpus for candidate in candidates):
        most = max(candidate.agent.online_cpus for candidate in candidates)
        reason += f"; one container asks for {request['cpu']} cores and no agent has more than {most} online"
    return NoRoom(reason, shortfall)


def _scarce(candidates: Sequence[_Candidate], request: dict[str, int]) -> set[str]:
    """Return the slots that keep some agent, filled with all that it can hold, from holding one container more."""
    scarce = set()
    for candidate in candidates:
        free = candidate.agent.free
        for slot, amount in _countable(request).items():
            too_wide = slot == "cpu" and amount > candidate.agent.online_cpus
            if too_wide or free.get(slot, 0) - candidate.room * amount < amount:
                scarce.add(slot)
    return scarce
