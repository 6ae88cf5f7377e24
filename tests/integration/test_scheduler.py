"""The timer on the manager, which the lab's gateway plays: a program of the test stands in for ansible-playbook."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.laboratory import Run, on, play

MANAGER = "gateway1"
FOLDER = "/var/tmp/backendai schedule %n"
PROGRAM = f"{FOLDER}/program"
NOTES = f"{FOLDER}/notes"
UNITS = "/etc/systemd/system/backendai-schedule.service /etc/systemd/system/backendai-schedule.timer"
TRACES = "systemctl list-units --all --plain --no-legend 'backendai-schedule*'; find /etc/systemd /run -name 'backendai-s*'"
OPTIONS = ["-e", "two words", """ '"$HOME ${HOME} %n \\ ;""", ";", "", "line\nline\tü"]

STAND_IN = f"""#!/usr/bin/python3
import json, os, sys, time
began = time.time()
time.sleep(0.5)
note = dict(arguments=sys.argv[1:], environment=dict(os.environ), directory=os.getcwd(), began=began, ended=time.time())
with open({NOTES!r}, "a") as notes:
    print(json.dumps(note), file=notes)
"""

Provision = Callable[..., Run]


@pytest.fixture
def provision(tmp_path: Path) -> Iterator[Provision]:
    """Run ``provision_scheduler`` with ``scheduler_*`` variables given without their prefix; afterwards nothing is left."""

    def run(*options: str, **variables: object) -> Run:
        asked = {"inventory": f"{FOLDER}/hosts.yml", "command": PROGRAM, "interval": "1s", **variables}
        given = {"scheduler_group": "gateways", **{f"scheduler_{name}": value for name, value in asked.items()}}
        return play("provision_scheduler", tmp_path, given, *options)

    assert on(MANAGER, TRACES) == ""
    on(MANAGER, f"mkdir '{FOLDER}'; cat > '{PROGRAM}' << 'END'\n{STAND_IN}END\nchmod +x '{PROGRAM}'")
    try:
        yield run
    finally:
        removed = run(state="absent")
        on(MANAGER, f"rm -r '{FOLDER}'")
    assert removed.code == 0, removed.output
    assert on(MANAGER, TRACES) == ""


def notes(count: int) -> list[dict[str, Any]]:
    """Return what the stand-in noted of each of its runs, once there are so many of them."""
    deadline = time.monotonic() + 60
    while len(found := on(MANAGER, f"cat '{NOTES}' 2> /dev/null", check=False).splitlines()) < count:
        assert time.monotonic() < deadline, on(MANAGER, "systemctl status 'backendai-schedule*'", check=False)
        time.sleep(0.5)
    return [json.loads(line) for line in found]


def test_the_timer_runs_the_playbook_again_and_again_and_never_twice_at_once(provision: Provision) -> None:
    on(MANAGER, f"chmod 777 '{FOLDER}'")
    variables = {"ANSIBLE_CONFIG": "/a b/%n$HOME", "N": 1}
    asked = {"options": OPTIONS, "user": "daemon", "directory": FOLDER, "environment": variables}
    installed = provision(**asked)
    assert installed.code == 0, installed.output
    assert on(MANAGER, f"systemd-analyze verify {UNITS}") == ""
    runs = notes(8)
    assert runs[0]["arguments"] == ["-i", f"{FOLDER}/hosts.yml", "backendai.cluster.schedule_sessions", *OPTIONS]
    assert runs[0]["directory"] == FOLDER
    assert {"ANSIBLE_CONFIG": "/a b/%n$HOME", "N": "1", "USER": "daemon"}.items() <= runs[0]["environment"].items()
    pauses = [later["began"] - earlier["ended"] for earlier, later in itertools.pairwise(runs)]
    assert 1 <= min(pauses) <= max(pauses) < 10
    again = provision(**asked)
    assert (again.code, again.changed) == (0, 0), again.output


def test_another_interval_counts_at_once(provision: Provision) -> None:
    assert provision(interval="1h").code == 0
    notes(1)
    assert provision(interval="1s").changed == 1
    notes(3)


def test_check_mode_on_a_bare_host_changes_nothing(provision: Provision) -> None:
    checked = provision("--check", "--diff")
    assert (checked.code, checked.changed) == (0, 1), checked.output
    assert on(MANAGER, TRACES) == ""


@pytest.mark.parametrize(
    ("option", "value", "wanted"),
    [
        ("inventory", "hosts.yml", "an absolute path without .."),
    ],
)
def test_x(option, value, wanted): pass
