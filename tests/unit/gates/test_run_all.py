"""Gates in parallel: what a failed one stops, the copy of the checkout, and that all end with `make test`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host.processes import runs
from tests.gates.run_all import COPY, LOGS, Gate, Gates, Outcome, copy_checkout, remove_copy, run_all
from tests.integration.waiting import wait_until

MAKEFILE = """
setup docs lint types docs-site changelog build sanity lab integration molecule: ; @echo right $(PART) in $$(pwd)
lab-down: ; @rm -r .lab
wrong: ; @echo wrong; false
unit: ; @echo right
long: ; @sh -c 'echo $$$$ > begun; sleep 60'; echo after
"""


@pytest.fixture(name="gates")
def make_gates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gates:
    """Gates of a checkout of their own."""
    monkeypatch.chdir(tmp_path)
    LOGS.mkdir(parents=True)
    Path("Makefile").write_text(MAKEFILE)
    Path(".gitignore").write_text(".cache\n.venv\n")
    Path(".venv").mkdir()
    subprocess.run(["git", "init", "--quiet"], check=True)
    return Gates()


@pytest.fixture(name="begun")
def file_of_the_long_gate(gates: Gates) -> Iterator[Path]:
    """The file in which the long gate has written its PID, once it has begun."""
    assert gates
    yield Path("begun")
    wait_until(lambda: not runs(int(Path("begun").read_text())), 20)


def test_the_output_of_a_gate_is_printed_with_its_result(gates: Gates, capsys: pytest.CaptureFixture[str]) -> None:
    assert [outcome.verdict for outcome in gates.lane([Gate("unit"), Gate("wrong")])] == ["ok", "failed"]
    printed = capsys.readouterr().out
    assert "=== unit ===\nright\n=== unit: ok, " in printed
    assert "=== wrong ===\nwrong\n" in printed


def test_what_needs_the_lab_is_not_run_without_it(gates: Gates) -> None:
    Path("Makefile").write_text("lab: ; @false\nunit: ; @echo right\n")
    outcomes = gates.lane([Gate("lab"), Gate("unit")])
    assert [outcome.verdict for outcome in outcomes] == ["failed", "not run"]
    assert outcomes[1] == Outcome("unit", "not run", 0.0)


def test_each_lab_has_half_of_the_tests_and_a_checkout_of_its_own(
    gates: Gates, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes = list(run_all(gates))
    assert {outcome.verdict for outcome in outcomes} == {"ok"}
    printed, here = capsys.readouterr().out, Path.cwd()
    assert f"=== integration ===\nright 1/2 in {here}\n" in printed
    assert f"=== integration-second ===\nright 2/2 in {here / COPY}\n" in printed


def test_the_copy_has_the_files_with_their_times_and_the_same_tools_and_goes_with_its_lab(gates: Gates) -> None:
    assert gates
    os.utime("Makefile", (1, 1))
    copy_checkout()
    assert sorted(path.name for path in COPY.iterdir()) == [".gitignore", ".venv", "Makefile"]
    assert (COPY / "Makefile").stat().st_mtime == 1
    assert (COPY / ".venv").resolve() == Path(".venv").resolve()
    (COPY / ".lab").mkdir()
    assert [(outcome.gate, outcome.verdict) for outcome in remove_copy()] == [("lab-down-second", "ok")]
    assert not COPY.exists()
    assert not list(remove_copy())


def test_a_copy_whose_lab_cannot_be_removed_stays(gates: Gates) -> None:
    assert gates
    copy_checkout()
    (COPY / "Makefile").write_text("lab-down: ; @false\n")
    (COPY / ".lab").mkdir()
    assert [outcome.verdict for outcome in remove_copy()] == ["failed"]
    assert (COPY / ".lab").exists()
    with pytest.raises(SystemExit, match=r"^make test: the second lab .* run `make lab-down` in /.*second-checkout$"):
        copy_checkout()


def test_a_running_gate_ends_with_all_its_processes_and_no_other_begins(gates: Gates, begun: Path) -> None:
    with ThreadPoolExecutor() as pool:
        running = pool.submit(gates.lane, [Gate("long"), Gate("unit")])
        wait_until(lambda: begun.exists() and begun.read_text().strip(), 20)
        gates.end()
        assert [outcome.verdict for outcome in running.result(20)] == ["failed", "failed"]


def test_a_gate_that_nobody_waits_for_any_more_ends(gates: Gates, begun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_process: subprocess.Popen[bytes]) -> int:
        wait_until(lambda: begun.exists() and begun.read_text().strip(), 20)
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        gates.run(Gate("long"))
