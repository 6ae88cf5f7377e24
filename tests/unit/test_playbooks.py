"""References in plays exist: Ansible reports a missing one only when its task runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from ansible_collections.backendai.cluster.plugins.plugin_utils.session_options import specification
from tests.unit.builders import REPOSITORY

PLAYBOOKS = sorted((REPOSITORY / "playbooks").rglob("*.yml"))
VARIABLE = re.compile(r"(?<![\w.'\[])session_\w+(?= \|)")
FILE = re.compile(r"(?:import_tasks|include_tasks|import_playbook): (\S+)")


@pytest.mark.parametrize("path", PLAYBOOKS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_everything_a_play_references_exists(path: Path) -> None:
    text = path.read_text()
    assert {*VARIABLE.findall(text)} <= {*specification()}
    assert [name for name in FILE.findall(text) if not (path.parent / name).is_file()] == []


@pytest.mark.parametrize("path", sorted((REPOSITORY / "playbooks").glob("*.yml")), ids=lambda path: path.stem)
def test_a_limit_without_localhost_is_refused_by_the_first_play_of_what_plans(path: Path) -> None:
    first = yaml.safe_load(path.read_text())[0]
    if not path.stem.startswith(("provision_", "remove_gateways", "remove_managers", "rotate_", "build_")):
        assert first["hosts"] == "{{ ansible_limit | default('') | backendai.cluster.planner }}"


@pytest.mark.parametrize(
    ("name", "state"),
    [("create_session", "present"), ("repair_session", "repaired"), ("terminate_session", "absent")],
)
def test_a_playbook_about_one_session_is_one_task_whose_options_are_variables(name: str, state: str) -> None:
    (play,) = yaml.safe_load((REPOSITORY / f"playbooks/{name}.yml").read_text())
    (task,) = play["tasks"]
    assert task["backendai.cluster.session"] == {"state": state}


@pytest.mark.parametrize(
    ("name", "module", "form"),
    [
        ("session_logs", "session_logs", "text"),
        ("verify_session", "session_verify", "table"),
        ("session_token", "session_token", "text"),
    ],
)
def test_a_playbook_that_looks_at_one_session_is_one_task_whose_options_are_variables(
    name: str, module: str, form: str
) -> None:
    (play,) = yaml.safe_load((REPOSITORY / f"playbooks/{name}.yml").read_text())
    (task,) = play["tasks"]
    assert task[f"backendai.cluster.{module}"] == {"format": form}


@pytest.mark.parametrize(
    ("name", "module", "options"),
    [
        ("list_sessions", "session_info", {"format", "path", "page_path"}),
        ("list_agents", "agent_info", {"format", "path"}),
        ("cordon_agents", "agent_state", {"state"}),
        ("verify_isolation", "isolation_verify", {"format"}),
    ],
)
def test_a_playbook_about_the_cluster_is_one_task(name: str, module: str, options: set[str]) -> None:
    (play,) = yaml.safe_load((REPOSITORY / f"playbooks/{name}.yml").read_text())
    (task,) = play["tasks"]
    assert {*task[f"backendai.cluster.{module}"]} == options


def test_references_are_found() -> None:
    text = "".join(path.read_text() for path in PLAYBOOKS)
    assert {"session_list_path", "session_page_path"} <= {*VARIABLE.findall(text)}
    assert {"tasks/select_agents.yml", "schedule_sessions.yml"} <= {*FILE.findall(text)}


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
