"""Gates in parallel: the ones without a lab get less of the processor, and all of them end with `make test`."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host.processes import runs
from tests.gates.run_all import GROUP_NICE, LOGS, Gates, Outcome, lower_priority
from tests.integration.waiting import wait_until

MAKEFILE = """
docs: ; @echo right
types: ; @echo wrong; false
unit: ; @sh -c 'echo $$$$ > begun; sleep 60'; echo after
"""


@pytest.fixture(name="gates")
def make_gates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gates:
    """Gates with a Makefile of their own."""
    monkeypatch.chdir(tmp_path)
    LOGS.mkdir(parents=True)
    Path("Makefile").write_text(MAKEFILE)
    return Gates()


def test_the_output_of_a_gate_is_printed_with_its_result(gates: Gates, capsys: pytest.CaptureFixture[str]) -> None:
    assert [outcome.verdict for outcome in gates.lane(["docs", "types"])] == ["ok", "failed"]
    printed = capsys.readouterr().out
    assert "=== docs ===\nright\n=== docs: ok, " in printed
    assert "=== types ===\nwrong\n" in printed


def test_what_needs_the_lab_is_not_run_without_it(gates: Gates) -> None:
    failed = gates.run("lab")
    assert failed.verdict == "failed"
    assert gates.lane(["lab", "docs"])[1] == Outcome("docs", "not run", 0.0)


def test_a_running_gate_ends_with_all_its_processes_and_no_other_begins(gates: Gates) -> None:
    with ThreadPoolExecutor() as pool:
        running = pool.submit(gates.lane, ["unit", "docs"])
        begun = Path("begun")
        wait_until(lambda: begun.exists() and begun.read_text().strip(), 20)
        gates.end()
        assert [outcome.verdict for outcome in running.result(20)] == ["failed", "failed"]
    pid = int(begun.read_text())
    wait_until(lambda: not runs(pid), 20)


def test_a_gate_that_nobody_waits_for_any_more_ends(gates: Gates, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = Path("begun")

    def interrupt(_process: subprocess.Popen[bytes]) -> int:
        wait_until(lambda: begun.exists() and begun.read_text().strip(), 20)
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        gates.run("unit")
    wait_until(lambda: not runs(int(begun.read_text())), 20)


def test_a_session_gets_less_of_the_processor_and_one_that_has_ended_is_no_error() -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        try:
            lower_priority(process.pid)
            group = Path(f"/proc/{process.pid}/autogroup").read_text()
        finally:
            process.kill()
    assert group.endswith(f" nice {GROUP_NICE}\n")
    lower_priority(process.pid)
