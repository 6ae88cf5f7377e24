# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs with many agents: simulated ones, since only the planner and the control node are tested."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.forked_ansible import run_forked
from tests.integration.laboratory import PYTHON, Run
from tests.large.hosts import remove_agents
from tests.large.identity import LargeLab, SimulatedAgent
from tests.large.lab import up

pytestmark = [pytest.mark.queue, pytest.mark.long]

#: The sessions fill all agents but three, of which two are empty.
AGENTS, SESSIONS = 12, 25


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
        code, output = run_forked([*line, *options], self.folder / "output", 300)
        return Run(code, output, json.loads(report.read_text()) if report.exists() else None)

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
    return Many(*built, tmp_path)


def test_all_sessions_of_all_agents_are_listed(many: Many) -> None:
    run = many.run("list_sessions")
    assert many.asked(run) == many.names
    assert {record["name"]: record["status"] for record in run.record} == {
        f"session-{number:03}": "RUNNING" for number in range(1, SESSIONS + 1)
    }


def test_a_session_waits_once_all_agents_have_said_that_there_is_no_room(many: Many) -> None:
    request = {"name": "new", "image": PYTHON, "resources": {"cpu": 1, "mem": "64m"}, "cluster_size": 99}
    run = many.run("create_session", "--forks=20", **request)
    assert (run.code, run.record["status"]) == (0, "PENDING"), run.output
    assert many.asked(run) == many.names
    assert many.run("terminate_session", name="new").code == 0
