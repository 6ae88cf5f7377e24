"""`make setup` where something is missing: one sentence that says what to do, and nothing half made."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.builders import REPOSITORY

STAMP = Path(".venv/ready")
FAKE = """#!/bin/sh
# Stands in for Python: makes an environment whose pip is that of $PIP, or says $SAYS and ends with $RESULT.
case "$2" in
    venv) mkdir -p .venv/bin; cp "$0" .venv/bin/python; cp "$0" .venv/bin/pip; echo >> made ;;
    *base_prefix*) echo 3.11 ;;
esac
[ "$1" != install ] || [ -z "$PIP" ] || exec "$PIP" -m pip "$@"
[ "$1" != install ] || { echo "$SAYS"; exit "${RESULT:-0}"; }
"""


@pytest.fixture(name="checkout")
def checkout_with_one_requirement(tmp_path: Path) -> Path:
    """A checkout with what setup reads; everybody may read it."""
    folder = tmp_path / "checkout"
    (folder / "tests/gates").mkdir(parents=True)
    shutil.copy2(REPOSITORY / "tests/gates/setup", folder / "tests/gates/setup")
    (folder / "requirements").mkdir()
    for name in ("runtime.txt", "dev.txt", "constraints.txt"):
        (folder / "requirements" / name).write_text("package-that-nobody-has==1.0\n" if name == "dev.txt" else "")
    (folder / "python").write_text(FAKE)
    (folder / "python").chmod(0o755)
    return folder


@pytest.fixture(name="small_disk")
def checkout_on_a_small_disk(checkout: Path, tmp_path: Path) -> Iterator[Path]:
    """The checkout on a file system of 1 MiB, which holds no virtual environment."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1M", "tmpfs", disk], check=True)
    try:
        shutil.copytree(checkout, disk / "checkout")
        yield disk / "checkout"
    finally:
        subprocess.run(["umount", disk], check=True)


def run_setup(checkout: Path, *prefix: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run setup with a package index at a port where nobody listens."""
    settings = {"PYTHON": sys.executable, "PIP_CONFIG_FILE": os.devnull, "PIP_RETRIES": "0",
                "PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_NO_CACHE_DIR": "1"}  # fmt: skip
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    return subprocess.run(
        [*prefix, "tests/gates/setup"],
        cwd=checkout, env=environment | settings | variables, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def run_as_nobody(checkout: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run setup as a user who may read the checkout, and no more."""
    for folder in (checkout, *checkout.parents):
        if f"pytest-of-{getpass.getuser()}" in str(folder):
            folder.chmod(0o755)
    return run_setup(checkout, "setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", **variables)


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    """Return what setup says when it fails: one sentence, and nothing beside it."""
    assert done.returncode == 1
    assert done.stdout == ""
    (sentence,) = done.stderr.splitlines()
    return sentence.removeprefix("make setup: ")


def test_without_a_package_index_it_says_so_and_leaves_nothing(checkout: Path) -> None:
    assert refusal(run_setup(checkout, PYTHON="./python", PIP=sys.executable)) == (
        "no package index answers: check the network, or name a mirror in PIP_INDEX_URL, then run it again"
    )
    assert not (checkout / ".venv").exists()


def test_on_a_full_disk_it_says_how_much_it_needs_and_leaves_nothing(small_disk: Path) -> None:
    assert refusal(run_setup(small_disk)).startswith(f"the disk is full: free 1 GB for {small_disk}/.venv and for ")
    assert not (small_disk / ".venv").exists()


def test_who_may_not_write_the_checkout_is_told_so(checkout: Path) -> None:
    assert refusal(run_as_nobody(checkout, PYTHON="/usr/bin/python3")) == (
        f"nobody may not write to {checkout}/.venv or /tmp: run it as the owner of the checkout"
    )


def test_who_is_not_root_is_told_which_package_is_missing(checkout: Path) -> None:
    (checkout / "python").write_text('#!/bin/sh\ncase "$2" in *ensurepip*) exit 1 ;; esac\n')
    done = run_as_nobody(checkout, PYTHON="./python")
    assert refusal(done) == "./python cannot make virtual environments: install python3-venv"


def test_an_old_python_is_refused(checkout: Path) -> None:
    (checkout / "python").write_text("#!/bin/sh\nexit 1\n")
    assert refusal(run_setup(checkout, PYTHON="./python")).startswith("./python is not Python 3.11 or later: name one")


@pytest.mark.parametrize("ready", [False, True], ids=["never finished", "finished"])
def test_an_environment_is_made_again_only_if_it_was_not_finished(checkout: Path, ready: bool) -> None:
    assert run_setup(checkout, PYTHON="./python").returncode == 0
    assert (checkout / STAMP).exists()
    if ready:
        os.utime(checkout / STAMP, (0, 0))
    else:
        (checkout / STAMP).unlink()
    assert run_setup(checkout, PYTHON="./python").returncode == 0
    assert len((checkout / "made").read_text().splitlines()) == (1 if ready else 2)


def test_nothing_is_done_if_another_run_has_made_it(checkout: Path) -> None:
    assert run_setup(checkout, PYTHON="./python").returncode == 0
    assert run_setup(checkout, PYTHON="./python", RESULT="1").returncode == 0


def test_tools_that_were_there_stay_without_a_package_index(checkout: Path) -> None:
    assert run_setup(checkout, PYTHON="./python").returncode == 0
    os.utime(checkout / STAMP, (0, 0))
    said = "ERROR: Could not find a version that satisfies the requirement six (from versions: none)"
    assert refusal(run_setup(checkout, PYTHON="./python", RESULT="1", SAYS=said)).startswith("no package index answers")
    assert (checkout / STAMP).stat().st_mtime == 0
    assert (checkout / ".venv/bin/pip").exists()


def test_a_failed_installation_is_shown_and_removed(checkout: Path) -> None:
    done = run_setup(checkout, PYTHON="./python", RESULT="1", SAYS="ERROR: surprise")
    shown, sentence = done.stderr.splitlines()
    assert shown == "ERROR: surprise"
    assert sentence.startswith("make setup: this failed, see its output above: .venv/bin/pip install ")
    assert not (checkout / ".venv").exists()
