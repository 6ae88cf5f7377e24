"""The oldest ansible-core and cryptography that the collection supports: what a user gives is no template there."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.ansible_settings import ROOT, environment
from tests.integration.laboratory import PYTHON, TIMEOUT, Kernel, command, run_in, unwrapped
from tests.integration.sessions import Sessions
from tests.lab.other_ansible import OF_LINKS, ensure_ansible, oldest_core

pytestmark = [pytest.mark.managers, pytest.mark.requests]

#: As README says.
(CRYPTOGRAPHY,) = re.findall(r"`cryptography` ≥ (\d+)", (ROOT / "README.md").read_text())
OWNER = {"session_user": "alice", "session_user_uid": 2001, "session_no_new_privileges": True}


@pytest.fixture(scope="module")
def programs() -> Path:
    """The folder of programs of that ansible-core, with what the command of a manager and its tests need."""
    packages = (
        f"ansible-core=={oldest_core()}.*",
        "ansible-runner",
        f"cryptography=={CRYPTOGRAPHY}.*",
        "rich",
        "pytest",
        "hypothesis",
    )
    return ensure_ansible("oldest-ansible", packages, ["dev"])


class Templates:
    """Texts that would each make a file of their own, if they were templates."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._count = folder, 0
        folder.mkdir()

    def text(self) -> str:
        self._count += 1
        return "{{ lookup('pipe', 'touch %s') }}" % (self._folder / str(self._count))

    @property
    def run(self) -> list[str]:
        """The numbers of those that were templates."""
        return sorted(path.name for path in self._folder.iterdir())


@pytest.fixture
def templates(tmp_path: Path) -> Iterator[Templates]:
    """Texts that must not be templates."""
    made = Templates(tmp_path / "ran")
    yield made
    assert made.run == []


def play(programs: Path, folder: Path, playbook: str, **variables: object) -> tuple[int, str]:
    """Run a playbook, and return its exit code and its output."""
    line = command(playbook, folder, variables)
    line[0] = str(programs / line[0])
    process = subprocess.run(
        line, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    return process.returncode, process.stdout + process.stderr


def accepted(name: str, templates: Templates) -> dict[str, Any]:
    """Return a request with a template wherever a user may write any text."""
    text = templates.text
    return {
        "session_name": name,
        "session_image": PYTHON,
        "session_resources": {"cpu": 1, "mem": "128m"},
        "session_env": {"TEXT": text()},
        "session_bootstrap_script": f'export BOOT="{text()}"\n',
        "session_command": f'echo "{text()}"; sleep 100000',
        "session_stop_command": f'echo "{text()}"',
        "session_apps": ["terminal", {"name": "probe", "port": 8000, "command": f'echo "{text()}"; sleep 100000'}],
    }


def test_a_session_of_templates_lives_as_any_other(
    programs: Path, sessions: Sessions, templates: Templates, tmp_path: Path
) -> None:
    given, record = tmp_path / "request.json", tmp_path / "record.json"
    request = accepted(sessions.name, templates)
    given.write_text(json.dumps(request))
    asked = {"session_request_path": str(given), **OWNER}
    for playbook, variables in (
        ("create_session", {**asked, "session_record_path": str(record)}),
        ("create_session", asked),
        ("list_sessions", {}),
        ("session_logs", {"session_name": sessions.name}),
        ("verify_session", {"session_name": sessions.name}),
        ("repair_session", {"session_name": sessions.name}),
        ("schedule_sessions", {}),
    ):
        code, output = play(programs, tmp_path, playbook, **variables)
        assert code == 0, output
        if playbook == "session_logs":
            assert request["session_command"].split('"')[1] in output
    (main1,) = json.loads(record.read_text())["kernels"]
    kernel: Kernel = main1
    assert run_in(kernel, "sh", "-lc", 'echo "$TEXT"').strip() == request["session_env"]["TEXT"]
    code, output = play(programs, tmp_path, "terminate_session", session_name=sessions.name)
    assert code == 0, output


def test_a_template_where_no_text_belongs_is_refused(
    programs: Path, sessions: Sessions, templates: Templates, tmp_path: Path
) -> None:
    given = tmp_path / "request.json"
    fields = ("name", "image", "resource_group", "architecture", "cluster_mode", "network_driver", "priority")
    changes: list[dict[str, Any]] = [
        *({f"session_{field}": templates.text()} for field in fields),
        {templates.text(): templates.text()},
        {"session_env": {templates.text(): templates.text()}},
        {"session_roles": {templates.text(): {"image": templates.text()}}},
        {"session_mounts": [{"source": templates.text(), "target": templates.text()}]},
        {"session_authorized_keys": [templates.text()]},
    ]
    for change in changes:
        given.write_text(json.dumps({**accepted(sessions.name, templates), **change}))
        code, output = play(programs, tmp_path, "create_session", session_request_path=str(given), **OWNER)
        assert code != 0, output
        assert "Traceback" not in unwrapped(output)


@pytest.mark.parametrize("tests", [["tests/unit/roles/manager"], OF_LINKS], ids=["a manager's command", "links"])
def test_what_depends_on_the_inside_of_ansible_passes_its_tests(programs: Path, tests: list[str]) -> None:
    line = [str(programs / "python"), "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    process = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert process.returncode == 0, process.stdout
