"""`make sanity`: each test runs once, all of them are seen through, and checkouts do not disturb each other."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.unit.builders import REPOSITORY

ANSIBLE_TEST = """#!/bin/sh
# Stands in for ansible-test: writes its arguments and its folder down; fails in a run with the test $FAILS.
echo "$(date +%s.%N) $* in $PWD" >>"$CALLS"
case " $* " in
    *" --prime-venvs "*) sleep "${PRIME:-0}"; echo "$(date +%s.%N) primed in $PWD" >>"$CALLS" ;;
    *" --test ${FAILS:-none} "*) echo "wrong in $FAILS"; exit 1 ;;
esac
"""


@pytest.fixture(name="checkout")
def checkout_with_the_gate(tmp_path: Path) -> Path:
    """A checkout with the gate and one file more, and a stand-in for ansible-test beside it."""
    folder = tmp_path / "checkout"
    (folder / "tests/gates").mkdir(parents=True)
    shutil.copy2(REPOSITORY / "tests/gates/sanity", folder / "tests/gates/sanity")
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/ansible-test").write_text(ANSIBLE_TEST)
    (tmp_path / "bin/ansible-test").chmod(0o755)
    (tmp_path / "tmp").mkdir()
    return folder


def start(checkout: Path, **variables: str) -> subprocess.Popen[str]:
    top = checkout.parent
    path = f"{top / 'bin'}:{REPOSITORY / '.venv/bin'}:/usr/bin:/bin"
    settings = {"PATH": path, "HOME": str(top), "TMPDIR": str(top / "tmp"), "CALLS": str(top / "calls")}
    return subprocess.Popen(
        ["tests/gates/sanity"], cwd=checkout, env=os.environ | settings | variables,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def calls(checkout: Path) -> list[str]:
    """Return what ansible-test was asked for, in the order of time."""
    lines = sorted((checkout.parent / "calls").read_text().splitlines())
    return [re.sub(r"^[\d.]+ (sanity --color no )?| in .*", "", line) for line in lines]


def test_each_test_runs_once_in_a_copy_of_its_own_after_the_environments_are_made(checkout: Path) -> None:
    output, errors = (process := start(checkout)).communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    assert calls(checkout)[:2] == ["--prime-venvs", "primed"]
    assert sorted(calls(checkout)[2:]) == ["--skip-test pylint --skip-test import", "--test import", "--test pylint"]
    folders = re.findall(r" in (\S+)/ansible_collections/backendai/cluster$", read(checkout), re.MULTILINE)
    assert len(set(folders)) == 4
    assert len(re.findall(r"^=== sanity, (pylint|import|others): ok, \d+ s$", output, re.MULTILINE)) == 3
    assert not list((checkout.parent / "tmp").iterdir())


def read(checkout: Path) -> str:
    return (checkout.parent / "calls").read_text()


def test_a_failed_test_stops_no_other_and_is_named(checkout: Path) -> None:
    output, errors = (process := start(checkout, FAILS="import")).communicate(timeout=60)
    assert process.returncode == 1
    assert errors == "make sanity: failed: import\n"
    assert re.search(r"^wrong in import\n=== sanity, import: failed, ", output, re.MULTILINE)
    assert "=== sanity, others: ok" in output
    assert "=== sanity, pylint: ok" in output


def test_a_second_checkout_waits_until_the_environments_are_made(checkout: Path) -> None:
    first = start(checkout, PRIME="1")
    while not (checkout.parent / "calls").exists():
        assert first.poll() is None
        time.sleep(0.05)
    second = start(checkout, PRIME="1")
    for process in (first, second):
        process.communicate(timeout=60)
        assert process.returncode == 0
    primes = [call for call in calls(checkout) if call in ("--prime-venvs", "primed")]
    assert primes == ["--prime-venvs", "primed"] * 2


def test_an_ignore_entry_is_refused(checkout: Path) -> None:
    (checkout / "tests/sanity").mkdir()
    (checkout / "tests/sanity/ignore-2.19.txt").write_text("README.md pylint\n")
    _output, errors = (process := start(checkout)).communicate(timeout=60)
    assert process.returncode == 1
    assert errors == "tests/sanity: ignore files are not allowed; fix the cause\n"
