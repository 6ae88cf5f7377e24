"""Each Molecule scenario fails without its role: its ``verify`` sees hosts that ``converge`` has never run on."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = ROOT / "extensions" / "molecule"
BIN = ROOT / ".venv" / "bin"
TIMEOUT = 600

#: What is so on any host: that the hosts can be probed at all.
TRUE_ANYWAY = {
    "firewall": {
        "The port that is allowed to the outsider is open",
        "The service that the outsider does not reach runs",
    },
}
_TASK = re.compile(r"^TASK \[(?P<name>.*)\] \*+$", re.MULTILINE)


def scenario_names() -> list[str]:
    return sorted(path.parent.name for path in SCENARIOS.glob("*/molecule.yml"))


def run(*words: str | Path, folder: Path) -> str:
    """Run a program of the virtual environment in the checkout, and return what it printed."""
    settings = {"PATH": f"{BIN}:{os.environ['PATH']}", "MOLECULE_EPHEMERAL_DIRECTORY": str(folder), "NO_COLOR": "1"}
    settings["ANSIBLE_CONFIG"] = str(ROOT / "ansible.cfg")
    environment = {name: value for name, value in os.environ.items() if name != "MOLECULE_HOSTS"}
    process = subprocess.run(
        [str(word) for word in words],
        cwd=ROOT,
        env={**environment, **settings},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def claims(plays: list[dict[str, Any]]) -> list[str]:
    """Return the names of the assertions of a playbook."""
    return [task["name"] for play in plays for task in play["tasks"] if "ansible.builtin.assert" in task]


def failed_tasks(output: str) -> set[str]:
    """Return the tasks that failed and were passed over."""
    names = [match["name"] for match in _TASK.finditer(output)]
    texts = _TASK.split(output)[2::2]
    return {name for name, text in zip(names, texts, strict=True) if "FAILED!" in text or "failed: [" in text}


@pytest.fixture
def prepared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A scenario with its hosts, on which its role has not run, and the folder with their inventory."""
    scenario = str(request.param)
    folder = tmp_path / "state"
    try:
        run("molecule", "create", "-s", scenario, folder=folder)  # and prepare
        yield scenario, folder
    finally:
        run("molecule", "destroy", "-s", scenario, folder=folder)


@pytest.mark.parametrize("prepared", scenario_names(), indirect=True)
def test_every_claim_of_a_scenario_is_false_without_its_role(prepared: tuple[str, Path], tmp_path: Path) -> None:
    scenario, folder = prepared
    plays = yaml.safe_load((SCENARIOS / scenario / "verify.yml").read_text())
    claimed = claims(plays)
    playbook = tmp_path / "verify.yml"
    # Goes on after a failure, so that each claim is tried.
    playbook.write_text(yaml.safe_dump([{**play, "ignore_errors": True} for play in plays]))
    inventories = (f"--inventory={SCENARIOS / scenario / 'inventory'}", f"--inventory={folder / 'inventory'}")
    failed = failed_tasks(run("ansible-playbook", *inventories, playbook, folder=folder))
    print(f"\n{scenario} without its role:", *(f"  fails: {name}" for name in claimed if name in failed), sep="\n")
    assert len(claimed) >= 5
    assert set(claimed) - failed == TRUE_ANYWAY.get(scenario, set())
