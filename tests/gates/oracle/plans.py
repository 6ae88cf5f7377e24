"""Write what a commit decides about seeded cases, to compare another one with it.

``python -m tests.gates.oracle.plans FILE`` writes what this tree decides; with ``--commit`` it is that commit, which is
checked out in a git worktree, with this folder in it. The cases follow from ``--seed`` alone.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.place import Placement, place
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.decision import Decision, decide
from tests.gates.oracle import cases
from tests.gates.oracle.trees import RESULT, SEED, checkout, run_in
from tests.unit.builders import NOW, POOLS, SESSION_ID, USER, readings, spec

REQUESTS, CLUSTERS = 300, 20
# How many decisions there are of each kind.
DECISIONS: dict[str, tuple[Callable[[str, int], cases.Case], int]] = {
    "one_shape": (cases.one_shape, 100_000),
    "unlike": (cases.unlike, 3_000),
    "planted": (cases.planted, 1_000),
    "by_topology": (cases.by_topology, 1_000),
    "racks": (cases.racks, 1_000),
}


def decided(case: cases.Case) -> list[Any]:
    """Return the hosts of a decision in rank order as pairs of name and number, or why there are none, and its time."""
    started_at = time.process_time()
    placed = place(
        case.agents, case.groups, single_node=case.single_node, selection=case.selection, topology=case.topology
    )
    milliseconds = round((time.process_time() - started_at) * 1000, 1)
    if not isinstance(placed, Placement):
        return [placed.reason, milliseconds]
    runs: list[list[Any]] = []
    for host in placed.hosts:
        if runs and runs[-1][0] == host:
            runs[-1][1] += 1
        else:
            runs.append([host, 1])
    return [runs, milliseconds]


def planned(options: dict[str, Any], number: int, seed: str) -> Any:
    """Return the plan of a request on a cluster: hosts and addresses, or why it is refused."""
    cluster = readings(**cases.cluster(seed, number))
    try:
        decision = decide(spec(**options), cluster, POOLS, SESSION_ID, USER, NOW)
    except ValueError as error:
        return str(error)
    if not isinstance(decision, Decision):
        return decision.reason
    plan = decision.plan
    network = plan.network and [plan.network.driver, plan.network.subnet, plan.network.vni]
    return [network, [[kernel.hostname, kernel.agent, kernel.address] for kernel in plan.kernels]]


def decide_all(path: Path, kinds: list[str], seed: str) -> None:
    """Write the decisions of these kinds."""
    result: dict[str, Any] = {}
    for kind in kinds:
        print(f"oracle: {kind}", flush=True)
        if kind == "plans":
            made = cases.requests(seed, REQUESTS)
            result[kind] = [[planned(each, number, seed) for each in made] for number in range(CLUSTERS)]
        else:
            make, many = DECISIONS[kind]
            result[kind] = [decided(make(seed, number)) for number in range(many)]
    path.write_text(json.dumps(result))


def decide_elsewhere(commit: str, path: Path, arguments: list[str]) -> None:
    """Let a commit decide, in a worktree with this folder in it."""
    tree = checkout(commit, "plans")
    shutil.copytree(Path(__file__).parent, tree / "tests/gates/oracle", dirs_exist_ok=True)
    run_in(tree, "-m", "tests.gates.oracle.plans", str(tree / RESULT), *arguments, PYTHONPATH=".venv/collections")
    shutil.move(tree / RESULT, path)


def main() -> None:
    """Write the decisions of this tree or of a commit."""
    kinds = ["plans", *DECISIONS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="where the decisions are written, as JSON")
    parser.add_argument("--commit", help="whose decisions; without it, those of this tree")
    parser.add_argument("--seed", default=SEED, help="what the cases follow from")
    parser.add_argument("--kind", action="append", choices=kinds, help="only decisions of these kinds")
    options = parser.parse_args()
    chosen = options.kind or kinds
    if options.commit:
        only = [word for kind in chosen for word in ("--kind", kind)]
        decide_elsewhere(options.commit, options.file, ["--seed", options.seed, *only])
    else:
        decide_all(options.file, chosen, options.seed)


if __name__ == "__main__":
    main()
