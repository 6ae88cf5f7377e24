"""The action session_info in playbooks, run by ansible-playbook; a program stands in for ssh and agents."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.store import QueueStore
from tests.unit.builders import holders, plan, requested
from tests.unit.plugins.action.play_site import PLAY, SURVEYED, TEAMS, PlaySite, await_lines, lives, save

MADE = plan()
SAVE = save("found")


class Site(PlaySite):
    """A site with three agents, of which one is away, and the queue of a session that runs."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, SURVEYED, {"agents": ["agent1", "agent2", "agent3"]})
        for name, facts in holders(MADE).items():
            self.hold(name, facts)
        (folder / "away-agent3").touch()
        QueueStore(str(folder / ".queue")).save(requested(id=MADE.id, name=MADE.name, state="RUNNING", plan=MADE))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def task(**more: Any) -> dict[str, Any]:
    return {"backendai.cluster.session_info": more.pop("args", {}), "register": "found", **more}


@TEAMS
def test_the_list_is_the_same_with_the_settings_that_a_team_has(site: Site, settings: dict[str, str]) -> None:
    listed = site.folder / "list.json"
    code, output = site.play("backendai.cluster.list_sessions", "-e", f"session_list_path={listed}", **settings)
    assert code == 0, output
    (record,) = json.loads(listed.read_text())
    assert (record["name"], record["status"], len(record["kernels"])) == ("train-llm", "RUNNING", 4)
    assert "agent3 is left out: " in output
    assert "no route to host" in output
    assert site.asked.count("agent1:survey") == 1


def test_an_empty_format_is_the_default(site: Site) -> None:
    code, output = site.play("backendai.cluster.list_sessions", "-e", "session_list_format=")
    assert code == 0, output
    assert "NAME" in output


def test_a_task_returns_sessions_and_the_agents_that_are_away(site: Site) -> None:
    code, output = site.play([{**PLAY, "tasks": [task(), SAVE]}], "--check")
    assert code == 0, output
    assert not (site.folder / "result.json").exists()
    code, output = site.play([{**PLAY, "tasks": [task(args={"status": ["RUNNING"]}), SAVE]}])
    assert code == 0, output
    assert [session["name"] for session in site.result["sessions"]] == ["train-llm"]
    assert {name: agent["problem"] for name, agent in site.result["unavailable"].items()} == {"agent3": "unreachable"}
    assert site.result["changed"] is False


def test_keywords_of_the_control_nodes_task_are_not_those_of_agents(site: Site) -> None:
    odd = {"connection": "local", "become": False, "vars": {"ansible_ssh_executable": "/no/ssh", "ansible_user": "odd"}}
    code, output = site.play([{**PLAY, **odd, "tasks": [task(**odd), SAVE]}])
    assert code == 0, output
    assert list(site.result["unavailable"]) == ["agent3"]


def test_an_agent_with_an_option_that_was_removed_says_so_and_its_sessions_are_listed(site: Site) -> None:
    asked = task(args={"agents": ["agent1", "agent2"]})
    code, output = site.play([{**PLAY, "tasks": [asked, SAVE]}], "-e", "agent_registry_mirrors=x")
    assert code == 0, output
    assert "agent1: agent_registry_mirrors was removed: " in output
    assert [session["status"] for session in site.result["sessions"]] == ["RUNNING"]


def test_a_limit_hides_agents(site: Site) -> None:
    code, output = site.play([{**PLAY, "tasks": [task(), SAVE]}], "--limit", "localhost,agent1")
    assert code == 0, output
    assert {name: agent["problem"] for name, agent in site.result["unavailable"].items()} == {
        "agent2": "hidden",
        "agent3": "hidden",
    }
    assert set(site.asked) == {"agent1:survey"}


def test_a_play_with_all_agents_asks_each_of_them_once(site: Site) -> None:
    play = {**PLAY, "hosts": "agents"}
    code, output = site.play([{**play, "tasks": [task()]}])
    assert code == 2
    assert "set run_once: true" in output
    assert site.asked == []
    code, output = site.play([{**play, "tasks": [task(run_once=True), {**SAVE, "run_once": True}]}])
    assert code == 0, output
    assert [session["name"] for session in site.result["sessions"]] == ["train-llm"]
    assert site.asked.count("agent1:survey") == 1


def test_a_task_may_loop_and_be_delegated(site: Site) -> None:
    looping = task(args={"name": "{{ item }}", "agents": ["agent1", "agent2"]}, loop=["train-llm", "other"])
    code, output = site.play([{**PLAY, "hosts": "agent3", "tasks": [{**looping, "delegate_to": "localhost"}, SAVE]}])
    assert code == 0, output
    assert [len(result["sessions"]) for result in site.result["results"]] == [1, 0]


def test_a_task_in_the_background_is_refused(site: Site) -> None:
    code, output = site.play([{**PLAY, "tasks": [task(**{"async": 10, "poll": 0})]}])
    assert code == 2
    assert "async" in output.partition("TASK [")[2]
    assert site.asked == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_run_leaves_no_process(site: Site, number: signal.Signals) -> None:
    (site.folder / "hang-survey").touch()
    with site.running([{**PLAY, "tasks": [task()]}]) as run:
        pids = await_lines(site.folder / "hanging", 2)
        run.send_signal(number)
        assert run.wait(90) != 0
    deadline = time.monotonic() + 90
    while any(map(lives, pids)):
        assert time.monotonic() < deadline, f"a process of ssh still runs: {pids}"
        time.sleep(0.05)
