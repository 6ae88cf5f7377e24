"""The playbooks about agents, run by ansible-playbook; a program stands in for ssh and the agents behind it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.backendai.cluster.plugins.module_utils._program.launcher import MARK
from tests.integration.ansible_settings import ROOT
from tests.unit.builders import agent_facts
from tests.unit.plugins.action.test_session_info_plays import environment

#: Agents that keep whether they are in service; one whose file ``away-NAME`` is there cannot be reached.
SSH = """#!{python}
import json, sys
from pathlib import Path

folder = Path({folder!r})
agent = next(word for word in sys.argv if word in ("agent1", "agent2", "agent3"))
if (folder / f"away-{{agent}}").exists():
    print("no route to host", file=sys.stderr)
    sys.exit(255)
stream = sys.stdin.buffer
stream.read(int(stream.readline()))
stream.read(json.loads(stream.readline())["size"])
request = json.loads(stream.read())
options = request["options"]
with (folder / "asked").open("a") as asked:
    asked.write(f"{{agent}}:{{request['phase']}}\\n")
if request["phase"] == "survey":
    result = json.loads((folder / agent).read_text())
else:
    cordon, wanted = folder / f"cordon-{{agent}}", options["state"] == "present"
    before = cordon.exists()
    if wanted and not request["check_mode"]:
        cordon.write_text(options["reason"])
    elif not wanted and not request["check_mode"]:
        cordon.unlink(missing_ok=True)
    description = f"cordoned by {{options['by']}} ({{options['reason']}})" if wanted else ""
    result = {{"changed": wanted != before, "cordoned_before": before, "description": description, "sessions": []}}
print({mark!r} + json.dumps({{"result": result}}))
"""
ON_TWO = ("-e", "agent_names=agent1,agent2", "-e", "agent_cordon_reason=disk")


class Site:
    """A folder with an inventory of three agents."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "ssh").write_text(SSH.format(python=sys.executable, folder=str(folder), mark=MARK))
        (folder / "ssh").chmod(0o755)
        names = ("agent1", "agent2", "agent3")
        for name in names:
            (folder / name).write_text(json.dumps({"agent": agent_facts(name).to_dict(), "error": None}))
        local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        variables = {"ansible_ssh_executable": str(folder / "ssh"), "ansible_python_interpreter": "/usr/bin/python3"}
        agents = {"hosts": {name: {} for name in names}, "vars": variables}
        inventory = {"all": {"hosts": {"localhost": local}, "children": {"agents": agents}}}
        (folder / "inventory.yml").write_text(yaml.safe_dump(inventory))

    def play(self, playbook: str | list[dict[str, Any]], *arguments: str, **settings: str) -> tuple[int, str]:
        """Run a playbook, the name of one or its plays; return its exit code and its output."""
        if not isinstance(playbook, str):
            (self.folder / "play.yml").write_text(yaml.safe_dump(playbook))
            playbook = str(self.folder / "play.yml")
        inventory = str(self.folder / "inventory.yml")
        line = [sys.executable, "-m", "ansible", "playbook", "-i", inventory, playbook, *arguments]
        run = subprocess.run(line, cwd=ROOT, env=environment(settings), capture_output=True, text=True, check=False)
        return run.returncode, run.stdout + run.stderr

    @property
    def cordoned(self) -> dict[str, str]:
        """The reasons of the agents that are out of service."""
        return {path.name.removeprefix("cordon-"): path.read_text() for path in sorted(self.folder.glob("cordon-*"))}

    @property
    def asked(self) -> list[str]:
        """What agents were asked, in any order."""
        path = self.folder / "asked"
        return sorted(path.read_text().split()) if path.exists() else []


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.mark.parametrize(
    "settings",
    [{}, {"ANSIBLE_ANY_ERRORS_FATAL": "True"}, {"ANSIBLE_STRATEGY": "free"}],
    ids=["as usual", "any_errors_fatal", "strategy: free"],
)
def test_agents_are_taken_out_of_service_and_back_with_the_settings_that_a_team_has(
    site: Site, settings: dict[str, str]
) -> None:
    code, output = site.play("backendai.cluster.cordon_agents", *ON_TWO, **settings)
    assert code == 0, output
    assert site.cordoned == {"agent1": "disk", "agent2": "disk"}
    assert "agent1 takes no new sessions: cordoned by " in output
    code, output = site.play("backendai.cluster.resume_agents", *ON_TWO, **settings)
    assert (code, site.cordoned) == (0, {}), output
    assert "agent1 takes new sessions." in output
    # What waits is started: all agents are asked what is free.
    assert [asked for asked in site.asked if asked.endswith(":survey")] == [f"agent{n}:survey" for n in (1, 2, 3)]


def test_a_drain_goes_on_without_an_agent_that_is_away_and_fails_in_the_end(site: Site) -> None:
    (site.folder / "away-agent2").touch()
    code, output = site.play("backendai.cluster.drain_agents", *ON_TWO)
    assert code == 2
    assert "agent2 was not drained: " in output
    assert "no route to host" in output
    assert site.cordoned == {"agent1": "disk"}
    assert site.asked == ["agent1:cordon", "agent1:survey", "agent3:survey"]


def test_a_drain_of_agents_that_are_none_asks_nobody(site: Site) -> None:
    code, output = site.play("backendai.cluster.drain_agents", "-e", "agent_names=agnt1")
    assert code == 2
    assert "agent_names: 'agnt1' is not an agent of the inventory; did you mean agent1?" in output
    assert site.asked == []


def test_check_mode_says_what_would_be_and_leaves_agents_in_service(site: Site) -> None:
    code, output = site.play("backendai.cluster.cordon_agents", *ON_TWO, "--check")
    assert (code, site.cordoned) == (0, {}), output
    assert "agent2 takes no new sessions: cordoned by " in output
    assert "changed=1" in output


def test_a_limit_hides_agents_and_says_so(site: Site) -> None:
    code, output = site.play("backendai.cluster.cordon_agents", *ON_TWO, "--limit", "localhost,agent1")
    assert (code, site.cordoned) == (0, {"agent1": "disk"}), output
    assert "agent2 is left out: hidden by --limit." in output


def test_each_host_of_a_play_may_be_taken_out_while_it_is_worked_on(site: Site) -> None:
    task = {"agents": "{{ inventory_hostname }}", "reason": "update", "all_confirmed": True}
    out = {"backendai.cluster.agent_state": {**task, "state": "cordoned"}, "register": "service"}
    shown = {
        "ansible.builtin.debug": {"msg": "{{ inventory_hostname }} was out: {{ service.agents[0].cordoned_before }}"}
    }
    play = {"hosts": "agents", "gather_facts": False, "serial": 2, "tasks": [out, shown]}
    code, output = site.play([play])
    assert (code, [*site.cordoned]) == (0, ["agent1", "agent2", "agent3"]), output
    assert "agent3 was out: False" in output
    assert site.asked == ["agent1:cordon", "agent2:cordon", "agent3:cordon"]


@pytest.mark.parametrize(
    "settings",
    [{}, {"ANSIBLE_ANY_ERRORS_FATAL": "True"}, {"ANSIBLE_STRATEGY": "free"}],
    ids=["as usual", "any_errors_fatal", "strategy: free"],
)
def test_agents_are_listed_with_the_settings_that_a_team_has(site: Site, settings: dict[str, str]) -> None:
    (site.folder / "away-agent2").touch()
    path = site.folder / "agents.json"
    code, output = site.play("backendai.cluster.list_agents", "-e", f"agent_list_path={path}", **settings)
    assert code == 0, output
    report = json.loads(path.read_text())
    assert [row["status"] for row in report["agents"]] == ["ready", "unreachable", "ready"]
    assert "no route to host" in next(line for line in output.splitlines() if line.startswith("agent2"))
    assert site.asked == ["agent1:survey", "agent3:survey"]


def test_a_task_returns_the_agents_that_are_not_in_service(site: Site) -> None:
    read = {"backendai.cluster.agent_info": {}, "register": "cluster"}
    names = "{{ cluster.agents | rejectattr('status', 'eq', 'ready') | map(attribute='name') | join(', ') }}"
    (site.folder / "away-agent2").touch()
    play = {"hosts": "agents", "gather_facts": False, "run_once": True}
    code, output = site.play([{**play, "tasks": [read, {"ansible.builtin.debug": {"msg": f"away: {names}"}}]}])
    assert code == 0, output
    assert "away: agent2" in output
