"""What two commits ask their engines for, and load as rules: ``python -m tests.gates.oracle.scenes OLD NEW``.

The scenes are seeded sessions that are applied, damaged, applied again and removed with the fake engine and network of
each commit's unit tests (``applied.py``). Printed is how many differ, and each kind of difference with its scenes.
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
from collections import defaultdict
from pathlib import Path

from tests.gates.oracle.trees import FOLDER, SEED, checkout, full_name, run_in

# Names, numbers and digests that follow from other lines, so that one difference is told once.
VARIABLE = re.compile(r"\b[0-9a-f]{12,}\b|\b(?:main|sub)\d+\b|\b\d+(?:\.\d+){3}(?:/\d+)?")


def scenes(commit: str, seed: str) -> dict[str, str]:
    """Return the texts of a commit's scenes by number; they are kept in a file."""
    path = FOLDER / f"{full_name(commit)[:12]}.scenes.json"
    if not path.exists():
        tree = checkout(commit, "scenes")
        folder = tree / ".cache/oracle/scenes"
        folder.mkdir(exist_ok=True)
        program = str(Path(__file__).with_name("applied.py"))
        run_in(
            tree,
            *(
                "-m",
                "pytest",
                "-q",
                "-c",
                "pyproject.toml",
                "--rootdir=.",
                "-p",
                "no:cacheprovider",
                "--basetemp=/tmp/scenes",
                program,
            ),
            ORACLE_SCENES=str(folder),
            ORACLE_SEED=seed,
        )
        path.write_text(json.dumps({file.stem: file.read_text() for file in sorted(folder.glob("*.txt"))}))
    result: dict[str, str] = json.loads(path.read_text())
    return result


def differences(old: str, new: str) -> list[str]:
    """Return the lines that one of two scenes lacks."""
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), n=0, lineterm="")
    return sorted({VARIABLE.sub("…", line) for line in lines if line[:2] not in {"--", "++", "@@"}})


def main() -> None:
    """Compare two commits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--seed", default=SEED, help="what the scenes follow from")
    options = parser.parse_args()
    old, new = (scenes(commit, options.seed) for commit in (options.old, options.new))
    kinds: dict[str, list[str]] = defaultdict(list)
    for number, text in old.items():
        for line in differences(text, new[number]):
            kinds[line].append(number)
    differing = {number for numbers in kinds.values() for number in numbers}
    print(
        f"{len(old)} scenes, {sum(map(len, map(str.splitlines, old.values())))} lines: {len(differing)} scenes differ"
    )
    for line, numbers in sorted(kinds.items(), key=lambda each: -len(each[1])):
        print(f"{len(numbers)} scenes ({', '.join(numbers[:3])}): {line}")


if __name__ == "__main__":
    main()
