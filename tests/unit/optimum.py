"""The fewest agents for a decision, by an independent solver: CP-SAT."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

from ortools.sat.python import cp_model

from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.place import Group


@dataclasses.dataclass(frozen=True)
class Optimum:
    """The fewest agents that were found to hold everything, None if there are none; ``proven`` if no fewer do."""

    agents: int | None
    proven: bool


def fewest_agents(agents: Sequence[AgentFacts], groups: Sequence[Group], seconds: float) -> Optimum:
    """Return the fewest agents that hold these containers; the solver stops after so many deterministic seconds."""
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
    model.minimize(sum(used))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = seconds
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return Optimum(None, True)
    found = round(solver.objective_value) if status in (cp_model.OPTIMAL, cp_model.FEASIBLE) else None
    return Optimum(found, status == cp_model.OPTIMAL)


def _break_symmetry(model: cp_model.CpModel, agents: Sequence[AgentFacts], used: Sequence[cp_model.IntVar]) -> None:
    """Of agents that are alike, use the first ones."""
    last: dict[object, cp_model.IntVar] = {}
    for agent, is_used in zip(agents, used, strict=True):
        kind = (tuple(sorted(agent.free.items())), agent.online_cpu_count)
        if kind in last:
            model.add_implication(is_used, last[kind])
        last[kind] = is_used
