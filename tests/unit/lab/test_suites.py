"""The suite of agent3 follows the environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.lab import host_image
from tests.lab.command import LabError
from tests.lab.engine import Engine
from tests.lab.identity import Lab, State
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
    assert suites(LAB_AGENT3_SUITE="trixie-sid") == {**default, "agent3": "trixie-sid"}


@pytest.mark.parametrize(("suite", "parts"), [("trixie", ("trixie", "")), ("trixie-sid", ("trixie", "sid"))])
def test_a_suite_names_its_base_and_the_newer_one(suite: str, parts: tuple[str, str]) -> None:
    assert split_suite(suite) == parts


def test_an_unknown_suite_is_refused_before_anything_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_image, "SUITES", ("bookworm", "unstable"))
    state = State(engine="private", subnet="10.77.0.0/24", docker_host="unix:///missing")
    with pytest.raises(LabError, match="LAB_AGENT3_SUITE is unstable: set it to bookworm, trixie or trixie-sid"):
        host_image.ensure_images(Engine(Lab(tmp_path), state.docker_host), state)
    assert list(tmp_path.iterdir()) == []
