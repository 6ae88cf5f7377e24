"""Tests for properties of processes and the boot id."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host import processes
from ansible_collections.backendai.cluster.plugins.module_utils._host.processes import (
    boot_id,
    parent_pid,
    process_environment,
    process_start_time,
)

MISSING_PID = 2**22 + 1


def test_parent_start_time_and_environment_of_a_process_are_read() -> None:
    with subprocess.Popen(["sleep", "60"], env={"TOKEN": "a=b", "PATH": os.environ["PATH"]}) as process:
        try:
            assert parent_pid(process.pid) == os.getpid()
            assert int(process_start_time(process.pid)) >= int(process_start_time(os.getpid()))
            until = time.monotonic() + 60
            # Before exec, its environment is still that of this process.
            while "TOKEN" not in process_environment(process.pid) and time.monotonic() < until:
                time.sleep(0.01)
            assert process_environment(process.pid)["TOKEN"] == "a=b"
        finally:
            process.kill()


def test_dead_or_missing_process_has_no_start_time() -> None:
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(ProcessLookupError):
            process_start_time(process.pid)
    with pytest.raises(ProcessLookupError):
        process_start_time(MISSING_PID)
    assert process_environment(MISSING_PID) == {}


def test_boot_id_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(boot_id()) == 36
    (tmp_path / "boot_id").write_text("another\n")
    monkeypatch.setattr(processes, "BOOT_ID", tmp_path / "boot_id")
    assert boot_id() == "another"
