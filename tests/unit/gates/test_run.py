"""Gates of a checkout: what a failed one stops, what the last lines say, and that all of them end with the run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host.processes import runs
from tests.gates import run as gates_run
from tests.gates.processes import Outcome, Targets
from tests.gates.run import DISK, LOGS, Level, RefusedError, check_machine, only_run, run_level, summary
from tests.integration.waiting import wait_until

ROOT = Path(__file__).parents[3]
MAKEFILE = """
setup unit docs lab acceptance lab-down: ; @echo right
wrong: ; @echo wrong; false
busy: ; @python3 -c 'while __import__("time").process_time() < 0.3: pass'
long: ; @sh -c 'echo $$$$ > begun; sleep 60'; echo after
"""


#: A run of the long target that is slow to say which process that is.
SLOW_RUN = """
import time
from pathlib import Path
from tests.gates.processes import Targets

class SlowTargets(Targets):
    def _tell(self, sign, pid):
        time.sleep(0.5)
        super()._tell(sign, pid)

SlowTargets(Path()).run("long")
"""


@pytest.fixture(name="targets")
def make_targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Targets:
    """The targets of a checkout of their own."""
    monkeypatch.chdir(tmp_path)
    LOGS.mkdir(parents=True)
    Path("Makefile").write_text(MAKEFILE)
    return Targets(LOGS)


@pytest.fixture(name="begun")
def file_of_the_long_target(targets: Targets) -> Iterator[Path]:
    """The file in which the long target has written its PID; that process has ended afterwards."""
    assert targets
    yield Path("begun")
    wait_until(lambda: not runs(int(Path("begun").read_text())), 20)


def has_begun(begun: Path) -> bool:
    return begun.exists() and begun.read_text().strip() != ""


def verdicts(outcomes: list[Outcome]) -> list[tuple[str, str]]:
    return [(outcome.target, outcome.verdict) for outcome in outcomes]


def test_the_output_of_a_target_is_printed_with_its_result(
    targets: Targets, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verdicts(targets.lane(["unit", "wrong"])) == [("unit", "ok"), ("wrong", "failed")]
    printed = capsys.readouterr().out
    assert "=== unit ===\nright\n=== unit: ok, " in printed
    assert "=== wrong ===\nwrong\n" in printed


def test_cpu_seconds_are_those_of_all_processes_and_of_the_lab(targets: Targets) -> None:
    assert 0.3 < targets.run("busy").cpu < 30
    lab = iter([7.0, 107.0])
    assert 100 < Targets(LOGS, other_cpu=lambda: next(lab)).run("unit", counts_others=True).cpu < 130


@pytest.mark.parametrize(
    ("makefile", "expected"),
    [
        (MAKEFILE, "ok ok ok ok ok"),
        (MAKEFILE.replace("unit", "").replace("wrong:", "unit:"), "ok failed ok ok ok"),
        (MAKEFILE.replace("lab ", " ").replace("wrong:", "lab:"), "ok ok ok failed not-run"),
        (MAKEFILE.replace("setup", "").replace("wrong:", "setup:"), "failed not-run not-run ok ok"),
    ],
)
def test_a_failed_gate_stops_only_what_needs_it(targets: Targets, makefile: str, expected: str) -> None:
    Path("Makefile").write_text(makefile)
    level = Level(("setup", "unit", "docs"), ("lab", "acceptance"))
    outcomes = list(run_level(level, targets))
    assert [outcome.target for outcome in outcomes] == [*level.alone, *level.on_lab]
    assert [outcome.verdict.replace(" ", "-") for outcome in outcomes] == expected.split()


def test_targets_that_run_end_with_all_their_processes_and_no_other_begins(targets: Targets, begun: Path) -> None:
    with ThreadPoolExecutor() as pool:
        running = pool.submit(targets.lane, ["long", "unit"])
        wait_until(lambda: has_begun(begun), 20)
        targets.end()
        assert verdicts(running.result(20)) == [("long", "stopped"), ("unit", "not run")]


@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGTERM])
def test_targets_end_with_a_run_that_is_killed(begun: Path, kill: signal.Signals) -> None:
    run = subprocess.Popen([sys.executable, "-c", SLOW_RUN], env={**os.environ, "PYTHONPATH": str(ROOT)})
    wait_until(lambda: has_begun(begun), 20)
    run.send_signal(kill)
    run.wait(20)


def test_a_second_run_in_the_checkout_is_refused_and_names_the_first(targets: Targets) -> None:
    assert targets
    with only_run("test-all"):
        began = time.monotonic()
        sentence = (
            rf"^make test-all \(process {os.getpid()}, since ..:..:..\) has not ended in this checkout: wait for it"
        )
        with pytest.raises(RefusedError, match=sentence), only_run("test"):
            raise AssertionError("two runs at once")
        assert time.monotonic() - began < 2
    with only_run("test"):  # the lock is free
        assert (LOGS / "running").read_text().startswith("make test (process ")


@pytest.mark.parametrize(
    ("replaced", "value", "sentence"),
    [
        ("geteuid", lambda: 1000, "run it as root: "),
        (
            "disk_usage",
            lambda _path: SimpleNamespace(free=DISK - 1),
            "has 11 GiB of free disk: it needs 12 GiB",
        ),
    ],
)
def test_a_machine_that_cannot_run_them_is_named_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, replaced: str, value: Callable[..., object], sentence: str
) -> None:
    check_machine()
    monkeypatch.setattr(os if replaced == "geteuid" else shutil, replaced, value)
    with pytest.raises(RefusedError, match=sentence):
        check_machine()


def test_the_last_lines_are_commit_times_and_a_line_for_each_gate(targets: Targets) -> None:
    assert targets
    subprocess.run(
        "git init -q && git -c user.name=a -c user.email=b commit -q --allow-empty -m x", shell=True, check=True
    )
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    lines = summary(
        "test", time.time() - 61, [Outcome("unit", "ok", 60, 100.5), Outcome("lab", "not run")]
    ).splitlines()
    assert lines[0] == f"make test of {commit} with changes"
    assert lines[1].startswith("begin 20")
    assert lines[1].endswith(", 61 s")
    assert lines[2].split() == ["unit", "ok", "60.0", "s", "100.5", "s", "of", "CPU"]
    assert lines[-1] == "make test: not passed: lab"


def test_after_its_minutes_a_run_stops_what_runs_and_names_what_did_not(
    targets: Targets, begun: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert targets
    monkeypatch.setitem(gates_run.LEVELS, "test", Level(("long", "unit"), ("lab", "acceptance")))
    assert gates_run.run("test", 2 / 60) == 1
    assert has_begun(begun)
    assert "make test: not passed: long, unit" in capsys.readouterr().out
