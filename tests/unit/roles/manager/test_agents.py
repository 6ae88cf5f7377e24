"""The agents of an inventory, asked without a playbook: by their variables, with what is asked as it is."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.unit.builders import REPOSITORY
from tests.unit.roles.manager.manager_host import ManagerHost

LOOKUP = "{{ lookup('pipe', 'touch PATH') }}"

# Ansible's settings and its finder of collections belong to a process. The programs of agents return what they get.
ASK = """
import hashlib, json, sys
from pathlib import Path
from backendai_manager.errors import CommandError
from backendai_manager.manager.runs import Runs
from backendai_manager.paths import Paths
folders, inventory, home, questions = json.load(sys.stdin)
answers = {}
with Runs(Paths(*map(Path, folders)), inventory, "", lambda: False, "1001").agents() as agents:
    from ansible_collections.backendai.cluster.plugins.plugin_utils import host_program, host_request
    from tests.unit.program import archive_of
    archive = archive_of()
    host_program.archive, host_program.program_digest = lambda: archive, lambda: hashlib.sha256(archive).hexdigest()
    host_request.HOME = home
    print("shown by Ansible")
    for name, options in questions.items():
        try:
            ask = agents.ask(name)
            answers[name] = [ask("echo", options, 7)["request"]["options"] for _again in range(2)]
        except CommandError as error:
            answers[name] = str(error)
json.dump(answers, sys.stdout)
"""


def ask(host: ManagerHost, folder: Path, questions: Mapping[str, Any], hosts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what agents on this machine answer."""
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    inventory = Path(host.settings["inventory"])
    inventory.write_text(json.dumps({"agents": {"hosts": hosts, "vars": local}}))
    paths = host.paths
    folders = [str(path) for path in (paths.programs, paths.settings, paths.home, paths.runtime)]
    search = [REPOSITORY, REPOSITORY / "roles/manager/files", REPOSITORY / ".venv/collections"]
    process = subprocess.run(
        [sys.executable, "-c", ASK],
        input=json.dumps([folders, str(inventory), str(folder / "programs"), questions]),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, search))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert "shown by Ansible" in process.stderr
    assert sorted(path.name for path in paths.runtime.iterdir()) == ["ssh"]
    answers: dict[str, Any] = json.loads(process.stdout)
    return answers


def test_what_a_user_gives_arrives_as_it_is_and_an_agents_variables_are_templates(
    host: ManagerHost, tmp_path: Path
) -> None:
    text = LOOKUP.replace("PATH", str(tmp_path / "ran"))
    variables = {"agent_state_path": "{{ root }}/{{ inventory_hostname }}", "root": "/srv"}
    answers = ask(host, tmp_path, {"agent1": {"kernel": text, text: text}}, {"agent1": variables})
    places = {"state_path": "/srv/agent1", "docker_host": "unix:///var/run/docker.sock"}
    assert answers == {"agent1": [{"kernel": text, text: text, **places}] * 2}
    assert not (tmp_path / "ran").exists()


SENTENCES = {
    "agent2": r".*no route to host\.",
    "agent3": r".*there is no connection plugin 'no\.such\.plugin'\.",
    "agent4": r".*'nothing' is undefined.*\.",
    "agent9": r"it is not in the manager's inventory\.",
}


def test_an_agent_that_cannot_be_asked_is_a_sentence(host: ManagerHost, tmp_path: Path) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\nprintf 'no route\\nto host' >&2; exit 255\n")
    ssh.chmod(0o755)
    hosts = {
        "agent2": {"ansible_connection": "ssh", "ansible_ssh_executable": str(ssh)},
        "agent3": {"ansible_connection": "no.such.plugin"},
        "agent4": {"agent_state_path": "{{ nothing }}"},
    }
    answers = ask(host, tmp_path, {name: {} for name in SENTENCES}, hosts)
    for name, sentence in SENTENCES.items():
        assert re.fullmatch(sentence, answers[name]), answers[name]
