"""Lists and decisions with many agents: simulated ones, since only the planner and the control node are tested."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.ansible_settings import ROOT
from tests.integration.forked_ansible import run_forked
from tests.integration.laboratory import PYTHON, Run
from tests.large.agents import CONTAINERS, LargeLab, SimulatedAgent, make_agents, remove_agents
from tests.large.sessions import make_sessions

pytestmark = [pytest.mark.queue, pytest.mark.long]

#: The sessions have two containers on average, and fill all agents but two.
AGENTS, FULL = 200, 198
SESSIONS = FULL * CONTAINERS // 2
CORES = len(os.sched_getaffinity(0))
#: For a run that asks all of them.
SECONDS = 900


@dataclasses.dataclass(frozen=True)
class Many:
    """The simulated agents, and runs of playbooks on them."""

    lab: LargeLab
    agents: list[SimulatedAgent]
    folder: Path

    @property
    def names(self) -> list[str]:
        return [agent.name for agent in self.agents]

    def run(self, playbook: str, *options: str, **variables: object) -> Run:
        """Run a playbook with ``session_*`` variables given without their prefix."""
        report = self.folder / "report.json"
        report.unlink(missing_ok=True)
        paths = {"record_path": str(report), "list_path": str(report)}
        path = self.folder / "variables.json"
        path.write_text(json.dumps({f"session_{name}": value for name, value in {**paths, **variables}.items()}))
        line = ["ansible-playbook", "-i", str(self.lab.inventory), f"backendai.cluster.{playbook}", "-e", f"@{path}"]
        code, output = run_forked([*line, "--forks=20", *options], self.folder / "output", SECONDS)
        return Run(code, output, json.loads(report.read_text()) if report.exists() else None)

    def create(self, *options: str, **variables: object) -> Run:
        """Create a session of containers of which each agent can hold :data:`CONTAINERS`."""
        resources = {"cpu": CORES, "mem": "64m"}
        return self.run("create_session", *options, name="new", image=PYTHON, resources=resources, **variables)


@pytest.fixture(scope="module")
def built() -> Iterator[tuple[LargeLab, list[SimulatedAgent]]]:
    lab = LargeLab(ROOT)
    try:
        agents = make_agents(lab, AGENTS)
        make_sessions(lab, agents, SESSIONS, CORES)
        yield lab, agents
    finally:
        remove_agents(lab)


@pytest.fixture
def many(built: tuple[LargeLab, list[SimulatedAgent]], tmp_path: Path) -> Many:
    return Many(*built, tmp_path)


def test_all_sessions_of_all_agents_are_listed(many: Many) -> None:
    run = many.run("list_sessions")
    assert run.code == 0, run.output
    assert "is left out" not in run.text
    assert {record["name"]: record["status"] for record in run.record} == {
        f"session-{number:03}": "RUNNING" for number in range(1, SESSIONS + 1)
    }


def test_a_session_is_planned_on_an_agent_with_room(many: Many) -> None:
    run = many.create("--check", "--diff", cluster_size=CONTAINERS)
    assert run.code == 0, run.output
    shown = [line for line in run.output.splitlines() if line.startswith("+")]
    chosen = [name for name in many.names if any(name in line for line in shown)]
    assert len(chosen) == 1
    assert chosen[0] in many.names[FULL:]


def test_a_session_waits_when_it_needs_more_than_the_agents_with_room(many: Many) -> None:
    run = many.create(cluster_size=(AGENTS - FULL) * CONTAINERS + 1, cluster_mode="multi-node")
    assert (run.code, run.record["status"]) == (0, "PENDING"), run.output
    assert "no room for" in run.text
    assert "schedulable" not in run.text
    assert many.run("terminate_session", name="new").code == 0
