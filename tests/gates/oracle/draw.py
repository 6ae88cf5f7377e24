"""Mutants that follow from a seed: statements of the functions in ``kept.txt``, found again in another commit."""

from __future__ import annotations

import hashlib
import subprocess
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.gates.oracle.mutation import Found, Statement, choose, find_statements
from tests.gates.oracle.trees import git


class Mutant(NamedTuple):
    """A statement in a file of the old commit; its change follows from the seed."""

    path: str
    statement: Statement

    def __str__(self) -> str:
        return f"{self.path}: {self.statement.function}: {self.statement.text} (#{self.statement.number})"


@cache
def source(commit: str, path: str) -> str:
    """Return the text of a file of a commit, nothing if there is none."""
    try:
        return git("show", f"{commit}:{path}")
    except subprocess.CalledProcessError:
        return ""


@cache
def statements(commit: str, path: str) -> dict[Statement, Found]:
    """Return the statements of a file of a commit."""
    return {found.name: found for found in find_statements(source(commit, path))}


def locate(commit: str, mutant: Mutant) -> str | None:
    """Return the file of a commit that has the statement: that of the old one, or the only one with the function."""
    if mutant.statement in statements(commit, mutant.path):
        return mutant.path
    names = git("ls-tree", "-r", "--name-only", commit, "plugins", "roles/manager/files").splitlines()
    others = [path for path in names if path.endswith(".py") and mutant.statement in statements(commit, path)]
    return others[0] if len(others) == 1 else None


def draw(old: str, new: str, seed: str, count: int) -> list[Mutant]:
    """Return mutants of kept functions that both commits have; a larger count adds some to those of a smaller one."""
    candidates = []
    for line in Path(__file__).with_name("kept.txt").read_text().splitlines():
        path, names = line.split(": ")
        functions = set(names.split())
        candidates += [Mutant(path, each) for each in statements(old, path) if each.function in functions]
    candidates.sort(key=lambda mutant: hashlib.sha256(f"{seed} {mutant}".encode()).digest())
    drawn: list[Mutant] = []
    for mutant in candidates:
        if len(drawn) == count:
            break
        if choose(source(old, mutant.path), statements(old, mutant.path)[mutant.statement], seed) and locate(
            new, mutant
        ):
            drawn.append(mutant)
    return drawn
