"""One command on a lab at a time."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.command import LabError
from tests.lab.exclusive import exclusive
from tests.lab.identity import Lab

HOLD = """
import fcntl, os, sys
fcntl.flock(os.open('.', os.O_RDONLY), fcntl.LOCK_EX)
print('held', flush=True)
sys.stdin.read()
"""


@pytest.fixture(name="holder")
def process_with_the_lock(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has locked the checkout; it ends when its input does."""
    line = [sys.executable, "-c", HOLD]
    with subprocess.Popen(line, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_who_waits_names_the_process_that_it_waits_for(
    tmp_path: Path, holder: subprocess.Popen[str], capsys: pytest.CaptureFixture[str]
) -> None:
    expected = rf"^another command on this lab, process {holder.pid} \({sys.executable} .*\), has not ended for 0 s$"
    with pytest.raises(LabError, match=expected), exclusive(Lab(tmp_path), patience=0.2):
        pass
    assert f"waiting for another command on this lab, process {holder.pid} (" in capsys.readouterr().out


def test_the_lab_is_free_again_when_that_process_is_killed(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.wait()
    with exclusive(Lab(tmp_path), patience=0):
        pass


def test_a_command_holds_the_lab_until_it_ends(tmp_path: Path) -> None:
    other = os.open(tmp_path, os.O_RDONLY)
    try:
        with exclusive(Lab(tmp_path)), pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(other)
