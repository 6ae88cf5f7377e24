"""The suite of agent3 follows the environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lab import host_image, inventory
from tests.lab.command import LabError
from tests.lab.engine import Engine
from tests.lab.identity import Host, Lab, State
from tests.lab.trees import split_suite
from tests.unit.builders import REPOSITORY

SUITES = "import json; from tests.lab.identity import HOSTS; print(json.dumps({h.name: h.suite for h in HOSTS}))"


def suites(**environment: str) -> Any:
    """Return the suite of each host in an environment."""
    inherited = {name: value for name, value in os.environ.items() if name != "LAB_AGENT3_SUITE"}
    line = [sys.executable, "-c", SUITES]
    result = subprocess.run(line, cwd=REPOSITORY, env={**inherited, **environment}, capture_output=True, check=True)
    return json.loads(result.stdout)


def test_the_variable_changes_agent3_alone() -> None:
    default = suites()
    assert default["agent3"] == "trixie"
    for suite in ("bullseye", "trixie-sid"):
        assert suites(LAB_AGENT3_SUITE=suite) == {**default, "agent3": suite}


@pytest.mark.parametrize(("suite", "parts"), [("trixie", ("trixie", "")), ("trixie-sid", ("trixie", "sid"))])
def test_a_suite_names_its_base_and_the_newer_one(suite: str, parts: tuple[str, str]) -> None:
    assert split_suite(suite) == parts


def test_an_unknown_suite_is_refused_before_anything_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_image, "SUITES", ("bookworm", "unstable"))
    state = State(engine="private", subnet="10.77.0.0/24", docker_host="unix:///missing")
    allowed = "bullseye, bookworm, trixie or trixie-sid"
    with pytest.raises(LabError, match=f"LAB_AGENT3_SUITE is unstable: set it to {allowed}"):
        host_image.ensure_images(Engine(Lab(tmp_path), state.docker_host), state)
    assert list(tmp_path.iterdir()) == []


def test_an_agent_of_debian_11_gets_the_kit_from_who_provisions_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = (Host("agent2", "agents", "bookworm", 12), Host("agent3", "agents", "bullseye", 13))
    monkeypatch.setattr(inventory, "HOSTS", hosts)
    lab = Lab(tmp_path)
    lab.folder.mkdir()
    inventory.write_inventories(lab, State(engine="private", subnet="10.77.0.0/24", docker_host="unix:///missing"))
    agents = yaml.safe_load(lab.inventory.read_text())["all"]["children"]["agents"]["hosts"]
    kits = {name: variables.get("agent_kit") for name, variables in agents.items()}
    assert kits == {"agent2": None, "agent3": str(lab.kit)}
    assert "agent_kit" not in lab.manager_inventory.read_text()
