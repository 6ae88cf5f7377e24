"""The tools of the checkout, set up while the lab's hosts are built."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab import tools
from tests.lab.command import LabError
from tests.lab.identity import Lab
from tests.lab.tools import explained, set_up_meanwhile
from tests.unit.builders import REPOSITORY

UNREACHED = "WARNING: Retrying after connection broken by 'NewConnectionError(…)': /simple/ruff/\nERROR: No matching"
HELP = "  -i, --index-url <url>   Base URL of the index (default\n              https://packages.example/simple). This"
KILLED = """
import sys
from pathlib import Path
from tests.lab.identity import Lab
from tests.lab.tools import set_up_meanwhile
with set_up_meanwhile(Lab(Path(sys.argv[1]))):
    print("begun", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(name="lab_with")
def lab_with_setup(tmp_path: Path) -> Callable[[str], Lab]:
    """Make a checkout whose `make setup` is a shell line."""

    def make(line: str) -> Lab:
        (tmp_path / "Makefile").write_text(f"setup:\n\t@{line}\n")
        return Lab(tmp_path)

    return make


def test_tools_are_there_at_the_end_of_the_block(lab_with: Callable[[str], Lab]) -> None:
    lab = lab_with("sleep 0.3; echo $(PYTHON) > tools")
    with set_up_meanwhile(lab):
        assert not (lab.checkout / "tools").exists()
    assert (lab.checkout / "tools").read_text() == f"{sys.executable}\n"


def test_a_failed_setup_says_why(lab_with: Callable[[str], Lab]) -> None:
    with (
        pytest.raises(LabError, match=r"^`make setup` failed: there is no pip\n"),
        set_up_meanwhile(lab_with("echo there is no pip; false")),
    ):
        pass


def test_a_failure_of_the_block_is_raised_at_once(lab_with: Callable[[str], Lab]) -> None:
    started_at = time.monotonic()
    with pytest.raises(LabError, match=r"^no mirror$"), set_up_meanwhile(lab_with("sleep 60")):
        raise LabError("no mirror")
    assert time.monotonic() - started_at < 30


def test_setup_ends_with_a_command_that_is_killed(lab_with: Callable[[str], Lab]) -> None:
    lab = lab_with("mkfifo begun; exec sleep 60 > begun")
    command = [sys.executable, "-c", KILLED, str(lab.checkout)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"begun\n"
        while not (lab.checkout / "begun").exists():
            time.sleep(0.01)
        with (lab.checkout / "begun").open() as pipe:
            process.kill()
            assert pipe.read() == ""  # until the last process that writes there has ended
        assert process.wait() == -9


def test_an_index_that_is_not_reached_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "output", lambda *_argv: HELP)
    error = explained("`make setup` failed", UNREACHED)
    assert str(error) == "`make setup` failed: this machine does not reach https://packages.example/simple"
