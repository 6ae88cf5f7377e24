"""Compare what two commits decide about seeded cases: ``python -m tests.gates.oracle.compare_plans OLD NEW``."""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from tests.gates.oracle import cases
from tests.gates.oracle.plans import DECISIONS
from tests.gates.oracle.trees import SEED

# Differences that need no name.
ALIKE = ("equal", "other reason", "other containers on the same agents", "other agents, as many")


def hosts(decision: Any) -> list[str] | None:
    """Return the agents of a placement, None for a refusal."""
    return None if isinstance(decision[0], str) else sorted({host for host, _many in decision[0]})


def compare(kind: str, old: list[Any], new: list[Any]) -> None:
    """Print how many decisions are equal, and of the others what is better or worse."""
    pairs = list(zip(old, new, strict=True))
    different = [number for number, (before, after) in enumerate(pairs) if before[0] != after[0]]
    lost = [number for number, (before, after) in enumerate(pairs) if hosts(before) and not hosts(after)]
    won = [number for number, (before, after) in enumerate(pairs) if hosts(after) and not hosts(before)]
    placed = sum(1 for before in old if hosts(before))
    print(f"{kind}: {len(pairs)} decisions, {len(different)} differ, {placed} placed before; lost {lost}, won {won}")
    more: Counter[int] = Counter()
    beyond, domains = [], Counter[str]()
    for number, (before, after) in enumerate(pairs):
        once, now = hosts(before), hosts(after)
        if not once or not now:
            continue
        case = DECISIONS[kind][0](SEED, number)
        surplus = len(now) - len(once)
        if case.selection == "dispersed" and not case.single_node:
            surplus = -surplus
        more[surplus] += 1
        beyond += [number] if surplus > 1 else []
        if case.topology:
            costs = [_domains(case, names) for names in (once, now)]
            wanted = "spread" if case.topology.spread else "within" if case.topology.within else "pack"
            shapes = "one shape" if len({str(group.request) for group in case.groups}) == 1 else "unlike"
            word = "equal" if costs[0] == costs[1] else "better" if costs[1] < costs[0] else "worse"
            agents = ", other agents" if word == "equal" and once != now else ""
            domains[f"{wanted}, {shapes}: {word}{agents}"] += 1
    print(f"  agents more than before (fewer if many are wanted): {dict(sorted(more.items()))}; beyond one: {beyond}")
    if domains:
        print(f"  numbers of domains: {dict(sorted(domains.items()))}")
    times = sorted(after[1] for after in new)
    ranks = {"p50": len(times) // 2, "p99": len(times) * 99 // 100, "worst": len(times) - 1}
    print(f"  CPU time: {', '.join(f'{name} {times[rank]} ms' for name, rank in ranks.items())}")


def _domains(case: cases.Case, names: list[str]) -> list[int]:
    """Return of how many domains of each level some agents are, the better the less."""
    topology = case.topology
    assert topology
    paths = [agent.topology for agent in case.agents if agent.name in names]
    counted = [len({path[:level] for path in paths}) for level in range(1, topology.levels + 1)]
    return [-many for many in counted] if topology.spread else counted


def compare_plans(old: list[list[Any]], new: list[list[Any]]) -> None:
    """Print how many plans are equal and what of the others differs, by topology and whether the roles are alike."""
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    named = []
    for cluster, (before, after) in enumerate(zip(old, new, strict=True)):
        for options, one, other in zip(cases.requests(SEED, len(before)), before, after, strict=True):
            kind = f"{'unlike roles' if 'roles' in options else 'one shape'}, {options['topology'] or 'no topology'}"
            word = "equal" if one == other else _difference(one, other)
            kinds[kind][word] += 1
            if word not in ALIKE:
                named.append(f"cluster {cluster}, {options['name']} ({kind}): {word}")
    for kind, words in sorted(kinds.items()):
        print(f"plans of {kind}: {words.total()}, {dict(sorted(words.items()))}")
    print(*named, sep="\n")


def _difference(before: Any, after: Any) -> str:
    """Return what of a plan differs from another one."""
    if isinstance(before, str) or isinstance(after, str):
        return (
            "other reason"
            if isinstance(before, str) == isinstance(after, str)
            else "lost"
            if isinstance(after, str)
            else "won"
        )
    once, now = ({agent for _hostname, agent, _address in plan[1]} for plan in (before, after))
    if len(once) != len(now):
        return f"{len(now) - len(once):+d} agents"
    return "other containers on the same agents" if once == now else "other agents, as many"


def main() -> None:
    """Compare the files."""
    old, new = (json.loads(Path(name).read_text()) for name in sys.argv[1:3])
    for kind in new:
        if kind == "plans":
            compare_plans(old[kind], new[kind])
        else:
            compare(kind, old[kind], new[kind])


if __name__ == "__main__":
    main()
