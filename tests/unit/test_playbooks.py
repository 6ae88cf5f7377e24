"""References in plays exist: Ansible reports a missing one only when its task runs."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

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


@pytest.mark.parametrize("path", sorted((REPOSITORY / "playbooks").glob("*.yml")), ids=lambda path: path.stem)
def test_a_limit_without_localhost_is_refused_by_the_first_play_of_what_plans(path: Path) -> None:
    first = yaml.safe_load(path.read_text())[0]
    if path.stem == "repair_session":
        assert first["ansible.builtin.import_playbook"] == "create_session.yml"
    elif not path.stem.startswith(("provision_", "remove_gateways", "remove_managers", "rotate_", "build_")):
        assert first["hosts"] == "{{ ansible_limit | default('') | backendai.cluster.planner }}"


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


@pytest.mark.parametrize(
    ("held", "hosts"),
    [
        ({}, "localhost"),
        ({"__session_held": ["x"]}, "localhost"),
        ({"__session_held": ["x"], "__session_starts_none": True}, []),
    ],
)
def test_pending_sessions_start_unless_the_manager_lets_none(held: dict[str, Any], hosts: Any) -> None:
    plays = yaml.safe_load((REPOSITORY / "playbooks/parts/start_pending.yml").read_text())
    (play,) = [play for play in plays if play["name"] == "Select the pending sessions to start"]
    variables = {"hostvars": {"localhost": {"__session_result": {}}}, **held}
    templar = Templar(loader=DataLoader(), variables=variables)
    assert templar.template(trust_as_template(play["hosts"])) == hosts
    (of_new,) = yaml.safe_load((REPOSITORY / "playbooks/tasks/plan.yml").read_text())
    for task in (play["tasks"][0], of_new):
        passed_on = templar.template(trust_as_template(task["backendai.cluster.session_plan"]["held"]))
        assert passed_on == held.get("__session_held", [])


def test_references_are_found() -> None:
    text = "".join(path.read_text() for path in PLAYBOOKS)
    assert {"queue_path", "claim_ttl", "force"} <= {*OF_THE_RUN.findall(text)}
    assert {"session_id", "session_token_ttl"} <= {*VARIABLE.findall(text)}
    assert {"tasks/plan.yml", "prepare.yml", "parts/reconcile.yml"} <= {*FILE.findall(text)}


@pytest.mark.parametrize(
    ("host", "variables", "folder"),
    [
        ("a1", {"agent_state_path": "/srv/agent", "firewall_state_path": "/srv/other"}, "/srv/agent"),
        ("g1", {"agent_state_path": "/srv/other", "firewall_state_path": "/srv/firewall"}, "/srv/firewall"),
        ("g1", {}, "the default"),
    ],
)
def test_the_report_of_a_firewall_reads_the_folder_that_the_host_was_given(
    host: str, variables: dict[str, str], folder: str
) -> None:
    plays = yaml.safe_load((REPOSITORY / "playbooks/firewall_report.yml").read_text())
    (task,) = [task for play in plays for task in play["tasks"] if "backendai.cluster.firewall_traffic" in task]
    selected = {"localhost": {"__firewall_agents_of_report": ["a1"]}}
    known = {"hostvars": selected, "inventory_hostname": host, "omit": "the default"}
    templar = Templar(loader=DataLoader(), variables={**known, **variables})
    given = trust_as_template(task["backendai.cluster.firewall_traffic"]["state_path"])
    assert templar.template(given).strip() == folder
