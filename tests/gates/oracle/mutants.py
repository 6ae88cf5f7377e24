"""Which mutants the unit tests of two commits kill: ``python -m tests.gates.oracle.mutants OLD NEW``.

The mutants follow from ``--seed``: statements of the functions in ``kept.txt`` that both commits have. Each is run
against the test files that executed its statement, the nearest ones first; what was killed in the old commit is run in
the new one. Results are appended to ``.cache/oracle/mutants.jsonl``: a run goes on where an earlier one ended.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.gates.oracle.draw import Mutant, draw
from tests.gates.oracle.runs import Commit
from tests.gates.oracle.trees import FOLDER, SEED, full_name


class Results:
    """What is known of mutants, in a file to which each result is appended."""

    def __init__(self, path: Path, seed: str) -> None:
        self._path, self._seed = path, seed
        lines = path.read_text().splitlines() if path.exists() else []
        self._known = {(each["seed"], each["commit"], each["mutant"]): each for each in map(json.loads, lines)}

    def known(self, commit: str, mutant: Mutant) -> dict[str, Any] | None:
        """Return the result of a mutant, None if it has not run."""
        return self._known.get((self._seed, commit, str(mutant)))

    def run(self, commit: Commit, mutants: list[Mutant], first: dict[Mutant, str], workers: int) -> None:
        """Run the mutants that have no result yet; ``first`` are the test files that they begin with."""

        def run(mutant: Mutant) -> None:
            result = {"seed": self._seed, **commit.run(mutant, self._seed, first.get(mutant, ""))}
            self._known[self._seed, commit.name, str(mutant)] = result
            with self._path.open("a") as file:
                file.write(json.dumps(result) + "\n")

        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(run, (mutant for mutant in mutants if not self.known(commit.name, mutant))))

    def killed(self, commit: str, drawn: list[Mutant]) -> dict[Mutant, str]:
        """Return the mutants that a commit has killed, with the test file that did."""
        known = {mutant: self.known(commit, mutant) for mutant in drawn}
        return {
            mutant: each["by"].partition("::")[0]
            for mutant, each in known.items()
            if each and each["result"] == "killed"
        }

    def compare(self, drawn: list[Mutant], old: str, new: str) -> None:
        """Print how many mutants were killed in both commits, and name those that were in the old one only."""
        before = {mutant: result for mutant in drawn if (result := self.known(old, mutant))}
        after = {mutant: result for mutant in before if (result := self.known(new, mutant))}
        print(f"{len(before)} of {len(drawn)} mutants: {dict(Counter(each['result'] for each in before.values()))}")
        print(f"{len(after)} of those killed, now: {dict(Counter(each['result'] for each in after.values()))}")
        for mutant, result in after.items():
            if result["result"] != "killed":
                print(f"{result['result']}: {mutant}: {result['what']}; was killed by {before[mutant]['by']}")


def main() -> None:
    """Run mutants on both commits, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--seed", default=SEED, help="what the mutants follow from")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--workers", type=int, default=2, help="how many run at once")
    parser.add_argument("--only-compare", action="store_true", help="print what is known so far")
    options = parser.parse_args()
    old, new = full_name(options.old), full_name(options.new)
    drawn = draw(old, new, options.seed, options.count)
    results = Results(FOLDER / "mutants.jsonl", options.seed)
    if not options.only_compare:
        results.run(Commit(old, options.workers), drawn, {}, options.workers)
        killed = results.killed(old, drawn)
        results.run(Commit(new, options.workers), list(killed), killed, options.workers)
    results.compare(drawn, old, new)


if __name__ == "__main__":
    main()
