"""The action session_report: the list of agents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible_collections.backendai.cluster.plugins.action.session_report import ActionModule
from tests.unit.builders import agent_facts, holders, plan, result
from tests.unit.plugins.action.conftest import Run

THERE: dict[str, Any] = {
    "hostvars": {
        **{name: {"__session_agent": result(facts)} for name, facts in holders(plan()).items()},
        "agent3": {"__session_agent": {"unreachable": True, "msg": "no route to host"}},
    }
}
AGENTS = ["agent1", "agent2", "agent3"]


def test_agents_are_listed_and_written_as_json(run: Run, printed: list[str], tmp_path: Path) -> None:
    path = tmp_path / "agents.json"
    result = run(ActionModule, {"kind": "agents", "agents": AGENTS, "path": str(path)}, THERE)
    report = json.loads(path.read_text())
    assert report == result["report"]
    assert [(row["name"], row["status"]) for row in report["agents"]] == [
        ("agent1", "ready"),
        ("agent2", "ready"),
        ("agent3", "unreachable"),
    ]
    assert [line.split()[0] for line in printed] == ["NAME", "agent1", "agent2", "agent3", "Group"]


def test_the_list_of_agents_has_their_warnings(run: Run) -> None:
    warned = agent_facts("agent1", warnings=("the firewall is in report mode.",))
    variables = {"hostvars": {"agent1": {"__session_agent": result(warned)}}}
    listed = run(ActionModule, {"kind": "agents", "agents": ["agent1"]}, variables)
    assert listed["warnings"] == ["agent1: the firewall is in report mode."]
