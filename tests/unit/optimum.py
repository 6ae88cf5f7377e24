"""The fewest agents for a decision, or domains of agents, by an independent solver: CP-SAT."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ortools.sat.python import cp_model

from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.place import Group, Topology


@dataclasses.dataclass(frozen=True)
class Optimum:
    """The fewest agents that were found to hold everything, None if there are none; ``proven`` if no fewer do."""

    agents: int | None
    proven: bool


def fewest_agents(agents: Sequence[AgentFacts], groups: Sequence[Group], seconds: float) -> Optimum:
    """Return the fewest agents that hold these containers; the solver stops after so many deterministic seconds."""
    model, used, _held = _model(agents, groups)
    model.minimize(sum(used))
    solver, status = _solve(model, seconds)
    if status == cp_model.INFEASIBLE:
        return Optimum(None, True)
    found = round(solver.objective_value) if status in (cp_model.OPTIMAL, cp_model.FEASIBLE) else None
    return Optimum(found, status == cp_model.OPTIMAL)


@dataclasses.dataclass(frozen=True)
class Domains:
    """How many domains of each level, and then agents, were found to hold everything, the better the less.

    They are negative if there shall be many. None if there are none; ``proven`` if no others are better.
    """

    cost: list[int] | None
    proven: bool


def fewest_domains(
    agents: Sequence[AgentFacts], groups: Sequence[Group], topology: Topology, seconds: float
) -> Domains:
    """Return the fewest domains that hold these containers, or the most, from the outside in, and then agents."""
    model, used, held = _model(agents, groups)
    for is_used, counts in zip(used, held, strict=True):
        model.add(sum(counts) >= is_used)
    numbers = []
    for level in range(1, topology.levels + 1):
        members: dict[tuple[str, ...], list[cp_model.IntVar]] = {}
        for agent, is_used in zip(agents, used, strict=True):
            members.setdefault(agent.topology[:level], []).append(is_used)
        domains = []
        for some in members.values():
            domains.append(model.new_bool_var(""))
            model.add_max_equality(domains[-1], some)
        numbers.append(-sum(domains) if topology.spread else sum(domains))
    numbers.append(sum(used))
    # Each number outweighs those after it.
    model.minimize(sum(number * (2 * len(agents)) ** at for at, number in enumerate(reversed(numbers))))
    solver, status = _solve(model, seconds)
    if status == cp_model.INFEASIBLE:
        return Domains(None, True)
    return Domains([solver.value(number) for number in numbers] if status == cp_model.OPTIMAL else None,
                   status == cp_model.OPTIMAL)  # fmt: skip


def _model(
    agents: Sequence[AgentFacts], groups: Sequence[Group]
) -> tuple[cp_model.CpModel, list[cp_model.IntVar], list[list[cp_model.IntVar]]]:
    """Return a model of all placements, whether each agent may be used, and what it holds of each shape."""
    model = cp_model.CpModel()
    shapes: Counter[tuple[tuple[str, int], ...]] = Counter()
    for group in groups:
        shapes[tuple(sorted((slot, amount) for slot, amount in group.request.items() if amount))] += group.count
    used = [model.new_bool_var("") for _agent in agents]
    held = []
    for agent, is_used in zip(agents, used, strict=True):
        counts = []
        for shape, count in shapes.items():
            request = dict(shape)
            fits = min(agent.free.get(slot, 0) // amount for slot, amount in shape)
            most = fits if request.get("cpu", 0) <= agent.online_cpu_count else 0
            counts.append(model.new_int_var(0, max(0, min(most, count)), ""))
            model.add(counts[-1] <= count * is_used)
        for slot in {slot for shape in shapes for slot, _amount in shape}:
            amounts = [dict(shape).get(slot, 0) for shape in shapes]
            model.add(cp_model.LinearExpr.weighted_sum(counts, amounts) <= max(0, agent.free.get(slot, 0)) * is_used)
        held.append(counts)
    for number, count in enumerate(shapes.values()):
        model.add(sum(counts[number] for counts in held) == count)
    _break_symmetry(model, agents, used)
    return model, used, held


def _solve(model: cp_model.CpModel, seconds: float) -> tuple[cp_model.CpSolver, Any]:
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = seconds
    return solver, solver.solve(model)


def _break_symmetry(model: cp_model.CpModel, agents: Sequence[AgentFacts], used: Sequence[cp_model.IntVar]) -> None:
    """Of agents that are alike, use the first ones."""
    last: dict[object, cp_model.IntVar] = {}
    for agent, is_used in zip(agents, used, strict=True):
        kind = (tuple(sorted(agent.free.items())), agent.online_cpu_count, agent.topology)
        if kind in last:
            model.add_implication(is_used, last[kind])
        last[kind] = is_used
