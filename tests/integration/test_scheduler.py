"""The scheduler's timer, on the lab's gateway as control node, with a fake ansible-playbook."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.internals import UNIT_SCHEDULER
from tests.integration.laboratory import Run, run_on, run_playbook
from tests.integration.programs import source
from tests.integration.waiting import wait_until

pytestmark = [pytest.mark.queue, pytest.mark.provisioning]

MANAGER = "gateway1"
FOLDER = "/var/tmp/backendai schedule %n"
PROGRAM = f"{FOLDER}/program"
NOTES = f"{FOLDER}/notes"
CONNECTIONS = f"/run/{UNIT_SCHEDULER}"
UNITS = f"/etc/systemd/system/{UNIT_SCHEDULER}.service /etc/systemd/system/{UNIT_SCHEDULER}.timer"
HOOK = "/etc/backendai/on-failure"
TRACES = "systemctl list-units --all --plain --no-legend 'backendai-s*'; find /etc/systemd /run -name 'backendai-s*'"
OPTIONS = ["-e", "two words", """ '"$HOME ${HOME} %n \\ ;""", ";", "", "line\nline\tü"]

Provision = Callable[..., Run]


@pytest.fixture
def provision(tmp_path: Path) -> Iterator[Provision]:
    """Run ``provision_scheduler`` with ``scheduler_*`` variables without their prefix; afterwards remove everything."""

    def run(*options: str, **variables: object) -> Run:
        options_by_name = {"inventory": f"{FOLDER}/hosts.yml", "command": PROGRAM, "interval": "1s", **variables}
        extra_vars = {
            "scheduler_group": "gateways",
            **{f"scheduler_{name}": value for name, value in options_by_name.items()},
        }
        return run_playbook("provision_scheduler", tmp_path, extra_vars, *options)

    assert run_on(MANAGER, TRACES) == ""
    stand_in = f"#!/usr/bin/python3\n{source('note_run')}"
    run_on(MANAGER, f"mkdir '{FOLDER}'; cat > '{PROGRAM}' << 'END'\n{stand_in}END\nchmod +x '{PROGRAM}'")
    try:
        yield run
    finally:
        removed = run(state="absent") if run_on(MANAGER, TRACES) else None
        run_on(MANAGER, f"rm -r '{FOLDER}'; rm -f {HOOK}")
    assert run_on(MANAGER, TRACES) == "", removed


def set_behaviour(seconds: float, code: int) -> None:
    """Set the duration and the exit code of the fake program's runs."""
    run_on(MANAGER, f"echo {seconds} {code} > '{FOLDER}/behaviour'")


def notes(count: int) -> list[dict[str, Any]]:
    """Wait for that many runs of the fake program, and return the notes of all runs."""
    lines: list[str] = []

    def has_enough() -> bool:
        lines[:] = run_on(MANAGER, f"cat '{NOTES}' 2> /dev/null", check=False).splitlines()
        return len(lines) >= count

    wait_until(has_enough)
    return [json.loads(line) for line in lines]


def test_timer_repeats_the_playbook_without_overlap(provision: Provision) -> None:
    run_on(MANAGER, f"chmod 777 '{FOLDER}'")
    variables = {"ANSIBLE_CONFIG": "/a b/%n$HOME", "N": 1}
    page = f"{FOLDER}/page $HOME.html"
    options = {"options": OPTIONS, "user": "daemon", "directory": FOLDER, "environment": variables, "interval": "100ms"}
    options["page_path"] = page
    installed = provision(**options)
    assert installed.code == 0, installed.output
    assert run_on(MANAGER, f"systemd-analyze verify {UNITS}") == ""
    assert run_on(MANAGER, f"systemctl is-enabled {UNIT_SCHEDULER}.timer").strip() == "enabled"
    runs = notes(8)
    command = ["-i", f"{FOLDER}/hosts.yml", "backendai.cluster.schedule_sessions"]
    of_timer = {"__session_timer_interval": 0.1, "session_page_path": page}
    assert runs[0]["arguments"] == [*command, "-e", json.dumps(of_timer), *OPTIONS]
    assert runs[0]["directory"] == FOLDER
    expected = {"ANSIBLE_CONFIG": "/a b/%n$HOME", "N": "1", "USER": "daemon", "RUNTIME_DIRECTORY": CONNECTIONS}
    assert {**expected, "ANSIBLE_SSH_CONTROL_PATH_DIR": CONNECTIONS}.items() <= runs[0]["environment"].items()
    pauses = [later["began"] - earlier["ended"] for earlier, later in itertools.pairwise(runs)]
    assert 0.1 <= min(pauses) <= max(pauses) < 30
    rerun = provision(**options)
    assert (rerun.code, rerun.changed) == (0, 0), rerun.output


def test_check_mode_changes_nothing_and_new_interval_applies_at_once(provision: Provision) -> None:
    bare = provision("--check", "--diff")
    assert (bare.code, bare.changed) == (0, 1), bare.output
    assert run_on(MANAGER, TRACES) == ""
    assert provision(interval="52w").code == 0
    before = run_on(MANAGER, f"{TRACES}; cat {UNITS}")
    for options, changes in (({"interval": "1s"}, 1), ({"state": "absent"}, 2)):
        checked = provision("--check", **options)
        assert (checked.code, checked.changed) == (0, changes), checked.output
        assert run_on(MANAGER, f"{TRACES}; cat {UNITS}") == before
    assert run_on(MANAGER, f"cat '{NOTES}' 2> /dev/null", check=False) == ""
    changed = provision(interval="1s")
    assert (changed.code, changed.changed) == (0, 1), changed.output
    notes(2)


def called() -> int:
    """Return how often the program of the operator has run."""
    return int(run_on(MANAGER, f"cat '{FOLDER}/called' 2> /dev/null | wc --lines"))


def test_failed_runs_are_repeated_and_absent_removes_everything(provision: Provision) -> None:
    set_behaviour(0.5, 3)
    assert provision().code == 0
    notes(2)
    assert "status=3" in run_on(MANAGER, f"journalctl --boot --unit={UNIT_SCHEDULER}")
    # A program that is not root's does not run, and the journal says so. Root's is stopped after ten seconds.
    program = f"#!/bin/sh\necho $(id -u) >> '{FOLDER}/called'\nexec sleep 100\n"
    run_on(
        MANAGER, f"mkdir -p /etc/backendai; cat > {HOOK} << 'END'\n{program}END\nchown daemon {HOOK}; chmod 755 {HOOK}"
    )
    told = f"journalctl --boot --unit={UNIT_SCHEDULER}-failed.service"
    wait_until(lambda: f"{HOOK} does not run: it or its folder is a link" in run_on(MANAGER, told))
    assert called() == 0
    run_on(MANAGER, f"chown root {HOOK}")
    wait_until(lambda: called() > 1)
    assert run_on(MANAGER, f"sort -u '{FOLDER}/called'").strip() == "0"
    assert "timed out" in run_on(MANAGER, told)
    # After a run that succeeds it is not called.
    set_behaviour(0.1, 0)
    wait_until(lambda: run_on(MANAGER, f"cat '{FOLDER}/began'") == "0.1 0")
    wait_until(
        lambda: run_on(MANAGER, f"systemctl is-active {UNIT_SCHEDULER}-failed", check=False).strip() != "activating"
    )
    calls = called()
    notes(len(notes(0)) + 3)
    assert called() == calls
    set_behaviour(9, 3)
    # A run that begins from now on, not one that began before.
    wait_until(lambda: run_on(MANAGER, f"cat '{FOLDER}/began'") == "9 3")
    before = notes(0)
    removed = provision(state="absent")
    assert (removed.code, removed.changed) == (0, 2), removed.output
    assert len(notes(0)) > len(before)
    assert run_on(MANAGER, TRACES) == ""
    rerun = provision(state="absent")
    assert (rerun.code, rerun.changed) == (0, 0), rerun.output


def test_all_invalid_options_are_reported_together(provision: Provision) -> None:
    span = "a systemd time span, such as 30s or 1h 30min, longer than 0"
    cases = {
        "inventory": ("hosts.yml", "an absolute path without .."),
        "command": ("bin/ansible-playbook", "the name of a program, or an absolute path without .."),
        "options": ("-e a=b", "a list of strings"),
        "user": ("no body", "the name of a user"),
        "directory": ("/srv/..", "an absolute path without .."),
        "environment": ({"a b": "c"}, "a mapping of variable names to strings"),
        "interval": ("soon", span),
        "timeout": ("infinity", span),
    }
    refused = provision(**{option: case[0] for option, case in cases.items()})
    assert refused.code != 0
    for option, (value, requirement) in cases.items():
        assert f"scheduler_{option}: '{value}' must be {requirement}." in refused.output.replace("''", "'")
    assert run_on(MANAGER, TRACES) == ""


def test_time_span_that_systemd_rejects_is_refused(provision: Provision) -> None:
    refused = provision("--check", interval="1min\n30s", timeout="0")
    assert refused.code != 0
    for option in ("interval", "timeout"):
        assert re.search(rf"scheduler_{option}: .{{1,20}} must be a systemd time span", refused.text), refused.output


def test_unknown_state_is_refused(provision: Provision) -> None:
    assert "value of scheduler_state must be one of: present, absent, got: gone" in provision(state="gone").text
