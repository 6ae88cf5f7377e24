"""The forge's workflow and the commit hooks: which mistakes in them are found."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.gates.forge import HOOKS, WORKFLOW, WORKFLOWS, faults
from tests.unit.builders import REPOSITORY

PATH = f"{WORKFLOWS}/{WORKFLOW}"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files of this checkout that the gate reads."""
    (tmp_path / WORKFLOWS).mkdir(parents=True)
    for name in (PATH, HOOKS, "Makefile"):
        shutil.copyfile(REPOSITORY / name, tmp_path / name)
    return tmp_path


def test_workflow_and_hooks_of_this_checkout_are_right(checkout: Path) -> None:
    assert list(faults(checkout)) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("sudo make test\n", "sudo make tests\n", "jobs.test, step 2: the Makefile has no target tests"),
        ("sudo make test\n", "pytest tests\n", "jobs.test, step 2: pytest tests is not `make` with a target"),
        ("sudo make test\n", "sudo make\n", "jobs.test, step 2: sudo make is not `make` with a target"),
        ("run: sudo make test\n", "env: {}\n", "jobs.test, step 2: a step has either run or uses"),
        ("run: sudo make test\n", "runs: sudo make test\n", "jobs.test, step 2: runs is not expected here"),
        ("make test-all", "make test", "schedule does not start `make test-all`"),
        ("  push:\n", "", "push does not start `make test`"),
        ("github.event_name == 'push' || ", "", "push does not start `make test`"),
        ("  push:\n", "  pushed:\n", "on: pushed is not expected here"),
        ("\non:\n", "\nwhen:\n", "on is not a mapping of events"),
        ("17 2 * * *", "17 2 * *", "schedule: not five fields of cron"),
        ("contents: read", "contents: write", "permissions are not {contents: read}: tests write nothing"),
        ("timeout-minutes: 60\n", "timeout: 60\n", "jobs.test: timeout-minutes is not a number of minutes"),
        (
            "runs-on: ubuntu-24.04\n    timeout-minutes: 60",
            "timeout-minutes: 60",
            "jobs.test: runs-on names no machine",
        ),
        (
            "@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1",
            "@v7",
            "jobs.test, step 1: actions/checkout@v7 is not pinned to a commit of 40 digits",
        ),
        ("    steps:\n", "    step:\n", "jobs.test: steps is not a list of steps"),
        ("\njobs:\n", "\njob:\n", "jobs is not a mapping of jobs"),
    ],
)
def test_a_mistake_in_a_workflow_is_found(checkout: Path, old: str, new: str, problem: str) -> None:
    text = (checkout / PATH).read_text()
    assert old in text
    (checkout / PATH).write_text(text.replace(old, new))
    found = list(faults(checkout))
    assert any(fault.startswith(PATH) and fault.endswith(problem) for fault in found), found


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("entry: make lint", "entry: make lints", "hook 1: the Makefile has no target lints"),
        ("entry: make lint", "entry: ruff check", "hook 1: ruff check is not `make` with a target"),
        ("entry: make lint", "entries: make lint", "hook 1: no command"),
        ("id: lint", "name: lint", "hook 1: no id"),
        ("language: system", "language: python", "hook 1: language is not system: `make setup` installs the tools"),
        (
            "pass_filenames: false",
            "pass_filenames: true",
            "hook 1: pass_filenames is not false: make would take the files for targets",
        ),
        ("stages: [pre-push]", "stages: [push]", "hook 5: stages are not of pre-commit, pre-push"),
        ("repo: local", "repo: https://example.org/x", "a repository is not local: its hooks would be downloaded"),
        ("repos:", "repositories:", "repos is not a list"),
    ],
)
def test_a_mistake_in_the_hooks_is_found(checkout: Path, old: str, new: str, problem: str) -> None:
    text = (checkout / HOOKS).read_text()
    assert old in text
    (checkout / HOOKS).write_text(text.replace(old, new))
    assert f"{HOOKS}: {problem}" in list(faults(checkout))


def test_a_missing_file_is_found(checkout: Path) -> None:
    (checkout / PATH).unlink()
    (checkout / HOOKS).unlink()
    assert list(faults(checkout)) == [f"{PATH}: no such file", f"{HOOKS}: no such file"]


def test_each_workflow_is_checked(checkout: Path) -> None:
    (checkout / WORKFLOWS / "release.yaml").write_text("[]\n")
    assert list(faults(checkout)) == [f"{WORKFLOWS}/release.yaml: a workflow is a mapping"]
