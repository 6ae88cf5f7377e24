"""The action session_info in playbooks, run by ansible-playbook; a program stands in for ssh and agents."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.backendai.cluster.plugins.module_utils._program.launcher import MARK
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.store import QueueStore
from tests.integration.ansible_settings import ROOT
from tests.unit.builders import holders, plan, requested

MADE = plan()
SSH = """#!/bin/sh
for word; do case $word in agent?) agent=$word;; esac; done
echo "$agent" >> {0}/asked
case $agent in
agent3) echo 'no route to host' >&2; exit 255;;
esac
[ ! -e {0}/hang ] || {{ echo $$ >> {0}/hanging; exec sleep 600; }}
cat > /dev/null
cat {0}/$agent
"""
PLAY: dict[str, Any] = {"hosts": "localhost", "gather_facts": False}
SAVE = {
    "ansible.builtin.copy": {"content": "{{ found | to_json }}", "dest": "{{ result }}"},
    "delegate_to": "localhost",
}


class Site:
    """A folder with an inventory of three agents, of which one is away, and the queue of a session that runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "ssh").write_text(SSH.format(folder))
        (folder / "ssh").chmod(0o755)
        for name, facts in holders(MADE).items():
            reply = {"result": {"agent": facts.to_dict(), "error": None}}
            (folder / name).write_text(f"{MARK}{json.dumps(reply)}\n")
        QueueStore(str(folder / ".queue")).save(requested(id=MADE.id, name=MADE.name, state="RUNNING", plan=MADE))
        local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        agents: dict[str, Any] = {"hosts": {f"agent{number}": {} for number in (1, 2, 3)}}
        variables = {"ansible_ssh_executable": str(folder / "ssh"), "ansible_python_interpreter": "/usr/bin/python3"}
        inventory = {"all": {"hosts": {"localhost": local}, "children": {"agents": {**agents, "vars": variables}}}}
        (folder / "inventory.yml").write_text(yaml.safe_dump(inventory))

    def line(self, playbook: str | list[dict[str, Any]], *arguments: str) -> list[str]:
        """Return the command line of a playbook: the name of one, or its plays."""
        if not isinstance(playbook, str):
            (self.folder / "play.yml").write_text(yaml.safe_dump(playbook))
            playbook = str(self.folder / "play.yml")
        program = [sys.executable, "-m", "ansible", "playbook"]
        return [*program, "-i", str(self.folder / "inventory.yml"), "-e", f"result={self.result}", playbook, *arguments]

    @property
    def result(self) -> Path:
        return self.folder / "result.json"

    def play(self, playbook: str | list[dict[str, Any]], *arguments: str, **settings: str) -> tuple[int, str]:
        """Run a playbook; return its exit code and its output."""
        process = subprocess.run(
            self.line(playbook, *arguments),
            cwd=ROOT,
            env=environment(settings),
            capture_output=True,
            text=True,
            check=False,
        )
        return process.returncode, process.stdout + process.stderr

    @property
    def asked(self) -> list[str]:
        """The agents that were asked, in any order."""
        path = self.folder / "asked"
        return sorted(path.read_text().split()) if path.exists() else []


def environment(settings: dict[str, str]) -> dict[str, str]:
    plain = {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1", "ANSIBLE_SSH_RETRIES": "0"}
    return {**os.environ, **plain, **settings}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def task(**more: Any) -> dict[str, Any]:
    return {"backendai.cluster.session_info": more.pop("args", {}), "register": "found", **more}


def found(site: Site) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(site.result.read_text())
    return result


@pytest.mark.parametrize(
    "settings",
    [{}, {"ANSIBLE_ANY_ERRORS_FATAL": "True"}, {"ANSIBLE_STRATEGY": "free"}],
    ids=["as usual", "any_errors_fatal", "strategy: free"],
)
def test_the_list_is_the_same_with_the_settings_that_a_team_has(site: Site, settings: dict[str, str]) -> None:
    listed = site.folder / "list.json"
    code, output = site.play("backendai.cluster.list_sessions", "-e", f"session_list_path={listed}", **settings)
    assert code == 0, output
    (record,) = json.loads(listed.read_text())
    assert (record["name"], record["status"], len(record["kernels"])) == ("train-llm", "RUNNING", 4)
    assert "agent3 is left out: " in output
    assert "no route to host" in output
    assert site.asked.count("agent1") == 1


def test_a_task_returns_sessions_and_the_agents_that_are_away(site: Site) -> None:
    code, output = site.play([{**PLAY, "tasks": [task(), SAVE]}], "--check")
    assert code == 0, output
    assert not site.result.exists()
    code, output = site.play([{**PLAY, "tasks": [task(args={"status": ["RUNNING"]}), SAVE]}])
    assert code == 0, output
    assert [session["name"] for session in found(site)["sessions"]] == ["train-llm"]
    assert {name: agent["problem"] for name, agent in found(site)["unavailable"].items()} == {"agent3": "unreachable"}
    assert found(site)["changed"] is False


def test_keywords_of_the_control_nodes_task_are_not_those_of_agents(site: Site) -> None:
    odd = {"connection": "local", "become": False, "vars": {"ansible_ssh_executable": "/no/ssh", "ansible_user": "odd"}}
    code, output = site.play([{**PLAY, **odd, "tasks": [task(**odd), SAVE]}])
    assert code == 0, output
    assert list(found(site)["unavailable"]) == ["agent3"]


def test_an_agent_with_an_option_that_was_removed_says_so_and_its_sessions_are_listed(site: Site) -> None:
    asked = task(args={"agents": ["agent1", "agent2"]})
    code, output = site.play([{**PLAY, "tasks": [asked, SAVE]}], "-e", "agent_registry_mirrors=x")
    assert code == 0, output
    assert "agent1: agent_registry_mirrors was removed: " in output
    assert [session["status"] for session in found(site)["sessions"]] == ["RUNNING"]


def test_a_limit_hides_agents(site: Site) -> None:
    code, output = site.play([{**PLAY, "tasks": [task(), SAVE]}], "--limit", "localhost,agent1")
    assert code == 0, output
    assert {name: agent["problem"] for name, agent in found(site)["unavailable"].items()} == {
        "agent2": "hidden",
        "agent3": "hidden",
    }
    assert set(site.asked) == {"agent1"}


def test_a_play_with_all_agents_asks_each_of_them_once(site: Site) -> None:
    play = {**PLAY, "hosts": "agents"}
    code, output = site.play([{**play, "tasks": [task()]}])
    assert code == 2
    assert "set run_once: true" in output
    assert site.asked == []
    code, output = site.play([{**play, "tasks": [task(run_once=True), {**SAVE, "run_once": True}]}])
    assert code == 0, output
    assert [session["name"] for session in found(site)["sessions"]] == ["train-llm"]
    assert site.asked.count("agent1") == 1


def test_a_task_may_loop_and_be_delegated(site: Site) -> None:
    looping = task(args={"name": "{{ item }}", "agents": ["agent1", "agent2"]}, loop=["train-llm", "other"])
    code, output = site.play([{**PLAY, "hosts": "agent3", "tasks": [{**looping, "delegate_to": "localhost"}, SAVE]}])
    assert code == 0, output
    assert [len(result["sessions"]) for result in found(site)["results"]] == [1, 0]


def test_a_task_in_the_background_is_refused(site: Site) -> None:
    code, output = site.play([{**PLAY, "tasks": [task(**{"async": 10, "poll": 0})]}])
    assert code == 2
    assert "async" in output.partition("TASK [")[2]
    assert site.asked == []


def await_lines(path: Path, count: int) -> list[str]:
    deadline = time.monotonic() + 90
    while not path.exists() or len(path.read_text().split()) < count:
        assert time.monotonic() < deadline, f"{path.name} never came"
        time.sleep(0.05)
    return path.read_text().split()


def lives(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_run_leaves_no_process(site: Site, number: signal.Signals) -> None:
    (site.folder / "hang").touch()
    # Whoever runs the tests in the background may have signals ignored.
    line = ["env", "--default-signal=INT,TERM", *site.line([{**PLAY, "tasks": [task()]}])]
    with (
        (site.folder / "output").open("wb") as shown,
        subprocess.Popen(
            line, cwd=ROOT, env=environment({}), start_new_session=True, stdout=shown, stderr=shown
        ) as run,
    ):
        pids = await_lines(site.folder / "hanging", 2)
        run.send_signal(number)
        assert run.wait(90) != 0
    deadline = time.monotonic() + 90
    while any(map(lives, pids)):
        assert time.monotonic() < deadline, f"a process of ssh still runs: {pids}"
        time.sleep(0.05)
