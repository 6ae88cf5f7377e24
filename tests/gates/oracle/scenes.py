"""What two commits ask their engines for, and load as rules: ``python -m tests.gates.oracle.scenes OLD NEW``.

The scenes are those of the unit tests of each commit, whose fake engines and networks record what they are asked. What
both commits have and what one of them has is counted; of scenes that differ, the lines are printed.
"""

from __future__ import annotations

import argparse
import difflib
import json
from pathlib import Path

from tests.gates.oracle.trees import FOLDER, RESULT, checkout, full_name, run_in


def scenes(commit: str) -> dict[str, list[str]]:
    """Return the scenes of a commit by the names of their tests; they are kept in a file."""
    path = FOLDER / f"{full_name(commit)[:12]}.scenes.json"
    if not path.exists():
        tree = checkout(commit, "scenes")
        run_in(tree, "-P", str(Path(__file__).with_name("recorded.py")), RESULT)
        (tree / RESULT).rename(path)
    result: dict[str, list[str]] = json.loads(path.read_text())
    return result


def difference(old: list[str], new: list[str]) -> list[str]:
    """Return the lines that one of two scenes lacks."""
    lines = difflib.unified_diff(old, new, n=0, lineterm="")
    return [line for line in lines if line[:2] not in {"--", "++", "@@"}]


def main() -> None:
    """Compare two commits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old")
    parser.add_argument("new")
    options = parser.parse_args()
    old, new = scenes(options.old), scenes(options.new)
    differing = {name: lines for name in old if name in new and (lines := difference(old[name], new[name]))}
    print(f"{len(old)} and {len(new)} scenes: {len(old.keys() & new.keys())} in both, {len(differing)} of them differ")
    for title, names in (("only in the old", old.keys() - new.keys()), ("only in the new", new.keys() - old.keys())):
        print(f"{title} commit: {len(names)}", *sorted(names), sep="\n  ")
    for name, lines in differing.items():
        print(name, *lines, sep="\n  ")


if __name__ == "__main__":
    main()
