"""Cached facts with many agents: simulated ones, since only the planner and the control node are tested."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.forked_ansible import run_forked
from tests.integration.laboratory import PYTHON, Run
from tests.large.hosts import remove_agents
from tests.large.identity import CONTAINERS, LargeLab, SimulatedAgent
from tests.large.lab import up

pytestmark = [pytest.mark.queue, pytest.mark.long]

#: The sessions fill all agents but three, of which two are empty.
AGENTS, SESSIONS = 12, 25
AGE = 3600


@dataclasses.dataclass(frozen=True)
class Many:
    """The simulated agents, and runs of playbooks on them."""

    lab: LargeLab
    agents: list[SimulatedAgent]
    folder: Path

    @property
    def names(self) -> list[str]:
        return [agent.name for agent in self.agents]

    @property
    def facts(self) -> Path:
        return self.lab.queue / "facts"

    def run(self, playbook: str, *options: str, **variables: object) -> Run:
        """Run a playbook with ``session_*`` variables given without their prefix."""
        report = self.folder / "report.json"
        report.unlink(missing_ok=True)
        paths = {"record_path": str(report), "list_path": str(report)}
        path = self.folder / "variables.json"
        path.write_text(json.dumps({f"session_{name}": value for name, value in {**paths, **variables}.items()}))
        line = ["ansible-playbook", "-i", str(self.lab.inventory), f"backendai.cluster.{playbook}", "-e", f"@{path}"]
        code, output = run_forked([*line, *options], self.folder / "output", 300)
        return Run(code, output, json.loads(report.read_text()) if report.exists() else None)

    def create(self, *options: str, **variables: object) -> Run:
        """Plan a session of one container, with all steps that change nothing."""
        request: dict[str, Any] = {"name": "new", "image": PYTHON, "resources": {"cpu": 1, "mem": "64m"}}
        request |= {"facts_max_age": AGE, **variables}
        return self.run("create_session", *(options or ("--check", "--diff")), **request)

    def chosen(self, run: Run) -> list[str]:
        """Return the agents of a plan that was shown."""
        assert run.code == 0, run.output
        shown = [line for line in run.output.splitlines() if line.startswith("+")]
        return [name for name in self.names if any(name in line for line in shown)]

    def asked(self, run: Run) -> list[str]:
        """Return the agents that took part in a run."""
        return [name for name in self.names if name in run.hosts]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LargeLab, list[SimulatedAgent]]]:
    lab = LargeLab(tmp_path_factory.mktemp("many"))
    try:
        yield lab, up(lab, AGENTS, SESSIONS)
    finally:
        remove_agents(lab)


@pytest.fixture
def many(built: tuple[LargeLab, list[SimulatedAgent]], tmp_path: Path) -> Many:
    """The agents after a run that has cached the facts of all of them."""
    made = Many(*built, tmp_path)
    shutil.rmtree(made.facts, ignore_errors=True)
    assert made.run("schedule_sessions", facts_max_age=AGE).code == 0
    assert len(list(made.facts.glob("*.json"))) == AGENTS
    return made


@contextlib.contextmanager
def without_sessions(agent: SimulatedAgent, folder: Path) -> Iterator[None]:
    """Move the sessions of an agent away, as if they had ended."""
    shutil.move(agent.state / "sessions", folder / "sessions")
    (agent.state / "sessions").mkdir()
    try:
        yield
    finally:
        (agent.state / "sessions").rmdir()
        shutil.move(folder / "sessions", agent.state / "sessions")


@contextlib.contextmanager
def with_sessions_of(full: SimulatedAgent, agent: SimulatedAgent) -> Iterator[None]:
    """Give an agent the same sessions as a full one, as if another control node had started them."""
    copies = [agent.state / "sessions" / source.name for source in (full.state / "sessions").iterdir()]
    for copy in copies:
        text = (full.state / "sessions" / copy.name / "session.json").read_text()
        copy.mkdir()
        (copy / "session.json").write_text(text.replace(full.name, agent.name))
    try:
        yield
    finally:
        for copy in copies:
            shutil.rmtree(copy)


def test_all_sessions_of_all_agents_are_listed(many: Many) -> None:
    run = many.run("list_sessions")
    assert many.asked(run) == many.names
    assert {record["name"]: record["status"] for record in run.record} == {
        f"session-{number:03}": "RUNNING" for number in range(1, SESSIONS + 1)
    }


def test_a_creation_asks_only_the_agents_of_its_plan(many: Many) -> None:
    run = many.create()
    assert many.chosen(run) == many.asked(run)
    assert len(many.asked(run)) == 1


def test_without_cached_facts_all_agents_are_asked(many: Many) -> None:
    assert many.asked(many.create(facts_max_age=0)) == many.names


def test_agents_that_were_filled_since_are_planned_around(many: Many) -> None:
    (first,) = many.chosen(many.create())
    with with_sessions_of(many.agents[0], many.agents[many.names.index(first)]):
        run = many.create()
    (second,) = many.chosen(run)
    assert second != first
    assert many.asked(run) == many.names


def test_cached_facts_without_room_do_not_make_a_session_wait(many: Many, tmp_path: Path) -> None:
    # The three agents with room hold one container less, and one that is full five more when its sessions have ended.
    resources = {"cpu": len(os.sched_getaffinity(0)), "mem": "64m"}
    with without_sessions(many.agents[0], tmp_path):
        run = many.create(cluster_size=2 * CONTAINERS + 2, resources=resources, cluster_mode="multi-node")
    assert many.agents[0].name in many.chosen(run)
    assert many.asked(run) == many.names


def test_a_session_waits_once_all_agents_have_said_that_there_is_no_room(many: Many) -> None:
    run = many.create("--forks=20", cluster_size=99)
    assert (run.code, run.record["status"]) == (0, "PENDING"), run.output
    assert many.asked(run) == many.names
    assert many.run("terminate_session", name="new").code == 0


def test_a_damaged_file_is_one_warning_and_its_agent_is_asked(many: Many) -> None:
    damaged = many.names[0]
    path = many.facts / f"{damaged}.json"
    path.write_text(path.read_text()[:-9])
    run = many.create()
    assert run.text.count(f"{path} is damaged, so {damaged} is asked.") == 1
    assert damaged in many.asked(run)
    assert len(many.chosen(run)) == 1
