"""The playbooks and tasks about one session, run by ansible-playbook; a program stands in for ssh and the hosts."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.store import QueueStore
from tests.unit.builders import plan, requested
from tests.unit.kit.container import wait_until
from tests.unit.plugins.action.play_site import PLAY, TEAMS, PlaySite, await_lines, save
from tests.unit.plugins.plugin_utils._report.test_logs import logged
from tests.unit.plugins.plugin_utils._report.test_verification import part

MADE = plan({"agent1": 1, "agent2": 1}, mounts=[{"source": "/mnt/data", "target": "/data"}])
SIGHT = {"/data": {"marker": True, "folder": "1:1", "names": "abc"}}
LINKS = {"id": MADE.id, "name": MADE.name, "ssh": None}
APP = {"name": "web", "protocol": "http", "url": "https://door/s/train-llm/web/"}
ISSUED = {
    "changed": True,
    "session": {"id": MADE.id, "name": MADE.name},
    "links": {**LINKS, "apps": [APP]},
    "expires_at": 1772337597,
    "token": "head.claims.signature",
}
SAVE = save("found")


class Site(PlaySite):
    """A site with a session that runs. Hosts answer with the file of the request's name."""

    def __init__(self, folder: Path) -> None:
        groups = {f"{kind}s": [f"{kind}1", f"{kind}2"] for kind in ("agent", "gateway")}
        super().__init__(folder, "result = json.loads((folder / name).read_text())", groups)
        QueueStore(str(folder / ".queue")).save(requested(id=MADE.id, name=MADE.name, state="RUNNING", plan=MADE))
        for agent in MADE.agents:
            self.answer(f"{agent}:logs", {"parts": [logged(MADE, agent)], "error": None})
            self.answer(f"{agent}:verify", {"parts": [part(MADE, agent)], "error": None})
            self.answer(f"{agent}:marker:find", {"observed": {MADE.kernels_on(agent)[0].hostname: SIGHT}})
        for gateway in ("gateway1", "gateway2"):
            self.answer(f"{gateway}:token", ISSUED)
        self.answer("agent1:marker:create", {"created": ["/data"]})
        self.answer("agent1:marker:remove", {"leftover": []})

    def answer(self, request: str, result: dict[str, Any]) -> None:
        """Let a host answer a request with a result."""
        (self.folder / request).write_text(json.dumps(result))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def task(module: str, **more: Any) -> dict[str, Any]:
    args = {"name": MADE.name, **more.pop("args", {})}
    return {f"backendai.cluster.{module}": args, "register": "found", **more}


@contextlib.contextmanager
def interrupted(site: Site, number: signal.Signals, playbook: str, *arguments: str) -> Iterator[None]:
    """Run a playbook in the block, then send it a signal, and wait for the end of all of its processes."""
    with site.running(playbook, *arguments) as run:
        yield
        run.send_signal(number)
        assert run.wait(90) != 0
    deadline = time.monotonic() + 90
    while lives := _processes(site.folder):
        assert time.monotonic() < deadline, f"{lives}: {(site.folder / 'output').read_text()}"
        time.sleep(0.05)


def _processes(folder: Path) -> list[str]:
    """Return the processes that have a folder in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(folder).encode() in path.read_bytes():
                found.append(path.parent.name)
    return found


# ---- session_logs


@TEAMS
def test_logs_are_shown_with_the_settings_that_a_team_has(site: Site, settings: dict[str, str]) -> None:
    path = site.folder / "logs.json"
    variables = {"session_name": MADE.name, "session_logs_path": str(path)}
    run = site.run("backendai.cluster.session_logs", "-e", json.dumps(variables), **settings)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "== main1 on agent1: running ==\nI am main1\n== sub1 on agent2: running ==\nI am sub1\n" in run.stdout
    assert [kernel["log"] for kernel in json.loads(path.read_text())["kernels"]] == [["I am main1"], ["I am sub1"]]
    assert site.asked == ["agent1:logs", "agent2:logs"]


def test_a_task_returns_logs_and_the_agents_that_are_away(site: Site) -> None:
    (site.folder / "away-agent2").touch()
    reading = task("session_logs", ignore_errors=True)
    run = site.run([{**PLAY, "tasks": [reading, SAVE]}])
    assert run.returncode == 0, run.stdout + run.stderr
    assert [kernel["log"] for kernel in site.result["kernels"]] == [["I am main1"], []]
    assert {name: agent["problem"] for name, agent in site.result["unavailable"].items()} == {"agent2": "unreachable"}
    run = site.run("backendai.cluster.session_logs", "-e", f"session_name={MADE.name}")
    assert run.returncode == 2
    assert "agent2 is unavailable: " in run.stdout + run.stderr
    assert "no route to host" in run.stdout + run.stderr


def test_a_task_about_logs_may_loop_and_runs_once(site: Site) -> None:
    looping = task("session_logs", args={"kernel": "{{ item }}"}, loop=["main1", "sub1"], run_once=True)
    run = site.run([{**PLAY, "hosts": "agents", "tasks": [looping, {**SAVE, "run_once": True}]}])
    assert run.returncode == 0, run.stdout + run.stderr
    assert [result["kernels"][0]["hostname"] for result in site.result["results"]] == ["main1", "sub1"]
    run = site.run([{**PLAY, "hosts": "agents", "tasks": [task("session_logs")]}])
    assert (run.returncode, "set run_once: true" in run.stdout + run.stderr) == (2, True)


def test_a_limit_hides_an_agent_of_logs(site: Site) -> None:
    run = site.run("backendai.cluster.session_logs", "-e", f"session_name={MADE.name}", "--limit", "localhost,agent1")
    assert run.returncode == 2
    assert "agent2 is unavailable: hidden by --limit" in run.stdout + run.stderr
    assert site.asked == ["agent1:logs"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_logs_are_followed_until_the_run_is_interrupted(site: Site, number: signal.Signals) -> None:
    variables = {"session_name": MADE.name, "session_logs_follow": True}
    with interrupted(site, number, "backendai.cluster.session_logs", "-e", json.dumps(variables)):
        await_lines(site.folder / "asked", 6)
        # The process of the task hands lines to that of the run, which may not have shown them yet.
        wait_until(lambda: "I am main1" in (site.folder / "output").read_text())
    assert (site.folder / "output").read_text().count("I am main1") == 1


# ---- session_verify


@TEAMS
def test_a_session_is_verified_with_the_settings_that_a_team_has(site: Site, settings: dict[str, str]) -> None:
    path = site.folder / "report.json"
    variables = {"session_name": MADE.name, "session_report_path": str(path)}
    run = site.run("backendai.cluster.verify_session", "-e", json.dumps(variables), **settings)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "mount /data: the same in all containers (compared by a marker file of main1)" in run.stdout
    assert "Session train-llm is healthy." in run.stdout
    assert json.loads(path.read_text())["healthy"] is True
    # Progress is beside the result.
    assert "Test the session (agent1): done" in run.stderr
    assert site.asked == [
        *("agent1:marker:create", "agent1:marker:find", "agent1:marker:remove", "agent1:verify"),
        *("agent2:marker:find", "agent2:verify"),
    ]


def test_a_task_returns_what_is_wrong_with_a_session(site: Site) -> None:
    (site.folder / "away-agent2").touch()
    run = site.run([{**PLAY, "tasks": [task("session_verify", ignore_errors=True), SAVE]}])
    assert run.returncode == 0, run.stdout + run.stderr
    assert (site.result["healthy"], site.result["unavailable"]["agent2"]["problem"]) == (False, "unreachable")
    assert "1 unavailable agent" in site.result["msg"]
    run = site.run("backendai.cluster.verify_session", "-e", f"session_name={MADE.name}")
    assert run.returncode == 2
    assert "Session train-llm is not healthy." in run.stdout


@pytest.mark.parametrize("step", ["agent1:marker:create", "agent2:marker:find"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_run_removes_its_marker_files(site: Site, step: str, number: signal.Signals) -> None:
    (site.folder / f"hang-{step}").touch()
    with interrupted(site, number, "backendai.cluster.verify_session", "-e", f"session_name={MADE.name}"):
        await_lines(site.folder / "hanging", 1)
    assert "agent1:marker:remove" in site.asked


# ---- session_token


@TEAMS
def test_a_token_is_written_with_the_settings_that_a_team_has(site: Site, settings: dict[str, str]) -> None:
    path = site.folder / "my.token"
    variables = {"session_name": MADE.name, "session_token_path": str(path)}
    run = site.run("backendai.cluster.session_token", "-e", json.dumps(variables), "-v", **settings)
    assert run.returncode == 0, run.stdout + run.stderr
    assert path.read_text() == "head.claims.signature\n"
    lines = [line for line in run.stdout.splitlines() if "head.claims.signature" in line]
    assert [line.split() for line in lines] == [["web", "https://door/s/train-llm/web/?token=head.claims.signature"]]
    assert site.asked == ["gateway1:token"]


def test_a_task_returns_links_and_no_token(site: Site) -> None:
    path = site.folder / "my.token"
    (site.folder / "away-gateway1").touch()
    run = site.run([{**PLAY, "tasks": [task("session_token", args={"path": str(path)}), SAVE]}], "-vvv")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "head.claims.signature" not in run.stdout + run.stderr + json.dumps(site.result)
    assert (site.result["links"]["apps"], site.result["path"]) == ([APP], str(path))
    assert (path.read_text(), site.asked) == ("head.claims.signature\n", ["gateway2:token"])


def test_without_a_gateway_that_can_be_reached_there_is_no_token(site: Site) -> None:
    path = site.folder / "my.token"
    variables = {"session_name": MADE.name, "session_token_path": str(path)}
    for more, problem in (
        ({"gateway_group": "nobody"}, "gateway_group: 'nobody' has no hosts; a token is signed by a gateway."),
        ({}, "no gateway can sign a token: gateway1 is unavailable: "),
    ):
        run = site.run("backendai.cluster.session_token", "-e", json.dumps({**variables, **more}))
        # Some releases of core print a message as YAML, with its quotes doubled.
        output = (run.stdout + run.stderr).replace("''", "'")
        assert (run.returncode, problem in output) == (2, True), output
        for name in ("gateway1", "gateway2"):
            (site.folder / f"away-{name}").touch()
    assert not path.exists()
