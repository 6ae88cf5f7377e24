"""References in plays exist: Ansible reports a missing one only when its task runs."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
import yaml

from ansible_collections.backendai.cluster.plugins.module_utils._module import ROUTES_OPTIONS
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.run_options import RunOptions
from ansible_collections.backendai.cluster.plugins.plugin_utils.session_options import specification
from tests.unit.builders import REPOSITORY

PLAYBOOKS = sorted((REPOSITORY / "playbooks").rglob("*.yml"))
OF_THE_RUN = re.compile(r"(?:__session_run\.|__session_request\.run\.|\['run'\]\[')(\w+)")
VARIABLE = re.compile(r"(?<![\w.'\[])session_\w+(?= \|)")
FILE = re.compile(r"(?:import_tasks|include_tasks|import_playbook): (\S+)")


@pytest.mark.parametrize("path", PLAYBOOKS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_everything_a_play_references_exists(path: Path) -> None:
    text = path.read_text()
    assert {*OF_THE_RUN.findall(text)} <= {field.name for field in dataclasses.fields(RunOptions)}
    assert {*VARIABLE.findall(text)} <= {*specification()}
    assert [name for name in FILE.findall(text) if not (path.parent / name).is_file()] == []


def test_gateways_get_all_parts_of_an_update() -> None:
    names = [name for name in ROUTES_OPTIONS if name != "purge"]
    paths = sorted((REPOSITORY / "playbooks/parts").glob("update_*gateways.yml"))
    assert len(paths) == 3
    for path in paths:
        (play,) = yaml.safe_load(path.read_text())
        (task,) = play["tasks"]
        options = task["backendai.cluster.gateway_routes"]
        assert {name: options.get(name) for name in names} == {
            name: f"{{{{ __session_routes.{name} }}}}" for name in names
        }


def test_references_are_found() -> None:
    text = "".join(path.read_text() for path in PLAYBOOKS)
    assert {"queue_path", "claim_ttl", "force"} <= {*OF_THE_RUN.findall(text)}
    assert {"session_id", "session_token_ttl"} <= {*VARIABLE.findall(text)}
    assert {"tasks/plan.yml", "prepare.yml", "parts/reconcile.yml"} <= {*FILE.findall(text)}
