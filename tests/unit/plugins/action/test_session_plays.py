"""The action session in playbooks, run by ansible-playbook; a program stands in for ssh and the agents behind it."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.store import QueueStore
from tests.integration.ansible_settings import ROOT
from tests.unit.builders import IMAGE, agent_facts, holders
from tests.unit.plugins.action.play_site import PLAY, SURVEYED, TEAMS, PlaySite, await_lines, lives, save

# Agents claim, start and remove sessions: ``parts`` has what they hold.
ACT = f"""
def start(entry):
    reply = {{"steps": entry["steps"]}}
    part = folder / "parts" / f"{{host}}-{{entry['id']}}"
    for step in entry["steps"]:
        hang(step)
        if step == "claim" and not check:
            part.write_text(json.dumps(entry["plan"]))
            names = [k["hostname"] for k in entry["plan"]["kernels"] if k["agent"] == host]
            reply["public_keys"] = {{name: {{"user": "USER", "host": "HOST"}} for name in names}}
        if step == "commit" and not check:
            names = [k["hostname"] for k in json.loads(part.read_text())["kernels"] if k["agent"] == host]
            reply["containers"] = {{name: {{"status": "running", "image_digest": "sha256:1"}} for name in names}}
    return reply

def remove(entry):
    (folder / "parts" / f"{{host}}-{{entry['id']}}").unlink(missing_ok=True)
    return {{"failed": "x" * 100000}} if (folder / "talks").exists() else {{}}

if phase == "survey":
    {SURVEYED}
else:
    act = {{"start": start, "remove": remove}}[phase]
    result = {{"changed": True, "sessions": {{entry["id"]: act(entry) for entry in options["sessions"]}}}}
"""
TRAIN: dict[str, Any] = {
    "name": "train",
    "image": IMAGE,
    "cluster_mode": "multi-node",
    "cluster_size": 2,
    "resources": {"cpu": 8, "mem": "1g"},
    "env": {"TOKEN": "hunter2"},
}
SAVE = save("made")
VARIABLES = [word for name, value in TRAIN.items() for word in ("-e", json.dumps({f"session_{name}": value}))]


class Site(PlaySite):
    """A site with two agents with eight cores each."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, ACT, {"agents": ["agent1", "agent2"]})
        self.variables["session_record_path"] = f"{folder}/record.json"
        (folder / "parts").mkdir()
        for name in ("agent1", "agent2"):
            self.hold(name, agent_facts(name))

    @property
    def record(self) -> dict[str, Any]:
        record: dict[str, Any] = json.loads((self.folder / "record.json").read_text())
        return record

    @property
    def parts(self) -> list[str]:
        """The agents that hold a part of a session, one for each."""
        return sorted(path.name.partition("-")[0] for path in (self.folder / "parts").iterdir())

    @property
    def states(self) -> list[str]:
        return [entry.state for entry in QueueStore(str(self.folder / ".queue")).entries()]

    def hold_session(self) -> None:
        """Let the agents answer surveys with the session of the queue, which they run."""
        (entry,) = QueueStore(str(self.folder / ".queue")).entries()
        assert entry.plan
        for name, facts in holders(entry.plan).items():
            self.hold(name, facts)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def task(**more: Any) -> dict[str, Any]:
    args = {**TRAIN, **more.pop("args", {})}
    return {"backendai.cluster.session": args, "register": "made", **more}


@TEAMS
def test_a_session_is_created_with_the_settings_that_a_team_has(site: Site, settings: dict[str, str]) -> None:
    run = site.run("backendai.cluster.create_session", *VARIABLES, "-v", **settings)
    assert run.returncode == 0, run.stdout + run.stderr
    assert (site.record["status"], site.parts, site.states) == ("RUNNING", ["agent1", "agent2"], ["RUNNING"])
    assert "Session train is RUNNING." in run.stdout
    assert "hunter2" not in run.stdout + run.stderr
    # Progress is beside the result.
    assert "Claim resources (agent1): done" in run.stderr
    assert "Claim resources" not in run.stdout


def test_a_task_returns_what_later_tasks_need(site: Site) -> None:
    named = {
        "ansible.builtin.add_host": {"name": "{{ item.hostname }}", "groups": "containers"},
        "loop": "{{ made.session.kernels }}",
    }
    counted = {"ansible.builtin.assert": {"that": ["groups.containers == ['main1', 'sub1']", "made is changed"]}}
    run = site.run([{**PLAY, "tasks": [task(), SAVE, named, counted]}])
    assert run.returncode == 0, run.stdout + run.stderr
    assert [kernel["agent"] for kernel in site.result["session"]["kernels"]] == ["agent1", "agent2"]
    assert "hunter2" not in json.dumps(site.result)


def test_the_play_has_fixed_defaults_and_a_manager_s_variable_wins_over_them(site: Site) -> None:
    capacity = {"cpu": 8, "mem": 64 << 30, "cuda.device": 4}
    site.hold("agent1", agent_facts("agent1", capacity=capacity))
    asked = [
        "-e",
        json.dumps({"session_name": "train", "session_image": IMAGE, "session_resources": {"cuda.device": 2}}),
    ]
    plain = site.run("backendai.cluster.create_session", *asked)
    assert plain.returncode == 0, plain.stdout + plain.stderr
    assert site.record["resources"]["container"] == {"cpu": 1, "mem": 1 << 30, "cuda.device": 2}
    assert "are the defaults, whatever GPUs a container has" in " ".join((plain.stdout + plain.stderr).split())
    manager = json.dumps({"__session_defaults": {"per_gpu": {"mem": "2g"}}, "session_name": "other"})
    followed = site.run("backendai.cluster.create_session", *asked, "-e", manager)
    assert followed.returncode == 0, followed.stdout + followed.stderr
    assert site.record["resources"]["container"] == {"cpu": 4, "mem": 4 << 30, "cuda.device": 2}
    assert "Each container with cuda.device 2 gets cpu 4, mem 4g: " in followed.stdout


def test_check_mode_shows_the_plan_and_changes_nothing(site: Site) -> None:
    run = site.run([{**PLAY, "tasks": [task()]}], "--check", "--diff")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "+session train: multi-node, 2 containers of lab/python:1" in run.stdout
    assert "changed=1" in run.stdout
    assert (site.parts, site.states) == ([], [])


def test_a_play_with_all_agents_makes_one_session(site: Site) -> None:
    play = {**PLAY, "hosts": "agents"}
    run = site.run([{**play, "tasks": [task()]}])
    assert run.returncode == 2
    assert "set run_once: true" in run.stdout + run.stderr
    assert site.asked == []
    run = site.run([{**play, "tasks": [task(run_once=True)]}])
    assert run.returncode == 0, run.stdout + run.stderr
    assert site.parts == ["agent1", "agent2"]


@pytest.mark.parametrize("name", ["free", "ansible.builtin.host_pinned"])
def test_a_play_that_ignores_run_once_makes_no_session(site: Site, name: str) -> None:
    settings = (ROOT / "ansible.cfg").read_text().replace("[defaults]", f"[defaults]\nstrategy = {name}")
    settings = settings.replace("collections_path = ", f"collections_path = {ROOT}/")
    (site.folder / "ansible.cfg").write_text(settings)
    play, config = {**PLAY, "tasks": [task(run_once=True)]}, str(site.folder / "ansible.cfg")
    run = site.run([{**play, "hosts": "agents"}], ANSIBLE_CONFIG=config)
    assert run.returncode == 2
    shown = " ".join((run.stdout + run.stderr).split())
    assert f"run_once has no effect with strategy: {name}. Move it to a play with hosts: localhost." in shown
    assert site.asked == []
    run = site.run([play], ANSIBLE_CONFIG=config)
    assert run.returncode == 0, run.stdout + run.stderr
    assert site.parts == ["agent1", "agent2"]


def test_the_strategy_of_a_play_counts_more_than_that_of_the_configuration(site: Site) -> None:
    play = {**PLAY, "hosts": "agents", "tasks": [task(run_once=True)]}
    run = site.run([{**play, "strategy": "free"}])
    assert (run.returncode, site.asked) == (2, [])
    run = site.run([{**play, "strategy": "linear"}], ANSIBLE_STRATEGY="free")
    assert run.returncode == 0, run.stdout + run.stderr
    assert site.parts == ["agent1", "agent2"]


def test_a_task_may_loop_and_be_delegated(site: Site) -> None:
    args = {"name": "{{ item }}", "cluster_size": 1, "resources": {"cpu": 1, "mem": "1g"}}
    looping = task(args=args, loop=["one", "two"], delegate_to="localhost", vars={"ansible_user": "odd"})
    run = site.run([{**PLAY, "hosts": "agent2", "tasks": [looping, SAVE]}])
    assert run.returncode == 0, run.stdout + run.stderr
    made = [(result["session"]["name"], result["session"]["status"]) for result in site.result["results"]]
    assert made == [("one", "RUNNING"), ("two", "RUNNING")]


def test_a_task_in_the_background_is_refused(site: Site) -> None:
    run = site.run([{**PLAY, "tasks": [task(**{"async": 10, "poll": 0})]}])
    assert run.returncode == 2
    assert "async" in (run.stdout + run.stderr).partition("TASK [")[2]
    assert site.asked == []


def test_a_limit_hides_agents(site: Site) -> None:
    run = site.run(
        "backendai.cluster.create_session", *VARIABLES, "-e", "session_cluster_size=1", "--limit", "localhost,agent2"
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert {name.partition(":")[0] for name in site.asked} == {"agent2"}
    assert site.parts == ["agent2"]


def test_a_request_that_is_not_valid_is_refused_with_all_problems(site: Site) -> None:
    run = site.run([{**PLAY, "tasks": [task(args={"cluster_size": 0, "priority": 101}, ignore_errors=True), SAVE]}])
    assert run.returncode == 0, run.stdout + run.stderr
    assert (site.result["failed"], site.result["refused"], site.asked) == (True, True, [])
    assert ("cluster_size: " in site.result["msg"], "priority: " in site.result["msg"]) == (True, True)


DOCUMENTED = (ROOT / "docs" / "playbooks.md").read_text().partition("```yaml\n")[2].partition("```")[0]


def documented(**args: Any) -> list[dict[str, Any]]:
    """The playbook of the documentation, with other options of its session, and without what needs containers."""
    (play,) = plays = yaml.safe_load(DOCUMENTED)
    (block,) = play["tasks"]
    (create,) = (made for made in block["block"] if "backendai.cluster.session" in made)
    create["backendai.cluster.session"] |= args
    block["block"] = [create]
    result: list[dict[str, Any]] = plays
    return result


def create_as_documented(site: Site) -> None:
    (create,) = documented()[0]["tasks"][0]["block"]
    run = site.run([{**PLAY, "tasks": [create]}])
    assert run.returncode == 0, run.stdout + run.stderr
    site.hold_session()


def test_the_documented_playbook_ends_its_session(site: Site) -> None:
    create_as_documented(site)
    assert site.parts == ["agent1"]
    run = site.run(documented())
    assert run.returncode == 0, run.stdout + run.stderr
    assert (site.parts, site.states) == ([], ["TERMINATED"])


@pytest.mark.parametrize(
    ("more", "message"),
    [({"env": {"EPOCHS": "2"}}, "that differs in session_env (EPOCHS)"), ({"cluster_size": 0}, "cluster_size: ")],
    ids=["while another has its name", "with an invalid option"],
)
def test_a_create_that_is_refused_leaves_the_session_of_another_run(
    site: Site, more: dict[str, Any], message: str
) -> None:
    create_as_documented(site)
    run = site.run(documented(**more))
    assert run.returncode == 2
    assert message in run.stdout + run.stderr
    assert (site.parts, site.states) == (["agent1"], ["RUNNING"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_of_later_tasks_leaves_the_documented_session_with_a_lifetime(
    site: Site, number: signal.Signals
) -> None:
    (play,) = plays = documented()
    begun = site.folder / "begun"
    play["tasks"][0]["block"].append({"ansible.builtin.shell": f"echo $$ > {begun}; exec sleep 600"})
    with site.running(plays) as run:
        (pid,) = await_lines(begun, 1)
        run.send_signal(number)
        try:
            assert run.wait(90) != 0
        finally:
            if lives(pid):
                os.kill(int(pid), signal.SIGKILL)
    (entry,) = QueueStore(str(site.folder / ".queue")).entries()
    assert (site.parts, entry.state, (entry.spec or {})["max_lifetime"]) == (["agent1"], "RUNNING", 86400)
    assert "End the session" not in (site.folder / "output").read_text()


@pytest.mark.parametrize("step", ["survey", "claim", "apply"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_run_undoes_what_it_has_begun(site: Site, step: str, number: signal.Signals) -> None:
    (site.folder / f"hang-{step}").touch()
    with site.running("backendai.cluster.create_session", *VARIABLES) as run:
        pids = await_lines(site.folder / "hanging", 2)
        (site.folder / f"hang-{step}").unlink()
        run.send_signal(number)
        assert run.wait(90) != 0
    deadline = time.monotonic() + 90
    record = site.folder / "record.json"
    while not record.exists() or any(map(lives, pids)):
        assert time.monotonic() < deadline, (site.folder / "output").read_text()
        time.sleep(0.05)
    # The oldest ansible-core ends without a word to the process of the task.
    reasons = ["the process of this run has gone", *([] if number == signal.SIGKILL else ["interrupted by "])]
    assert site.record["status"] == "ERROR"
    assert any(f"the session 'train' was not created: {reason}" in site.record["error"] for reason in reasons)
    assert (site.parts, site.states) == ([], [] if step == "survey" else ["TERMINATED"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_was_interrupted_undoes_whatever_there_is_to_say_of_it(site: Site, number: signal.Signals) -> None:
    for name in ("hang-claim", "talks"):
        (site.folder / name).touch()
    with site.running("backendai.cluster.create_session", *VARIABLES) as run:
        await_lines(site.folder / "hanging", 2)
        (worker,) = await_lines(site.folder / "worker", 1)
        (site.folder / "hang-claim").unlink()
        run.send_signal(number)
        deadline = time.monotonic() + 60
        while lives(worker) and time.monotonic() < deadline:
            time.sleep(0.05)
        if stuck := lives(worker):
            os.kill(int(worker), signal.SIGKILL)
        assert run.wait(60) != 0
    assert not stuck
    assert (site.record["status"], site.parts) == ("ERROR", [])
