"""Sessions are shown as a table, and written as a list of records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.action.session_list import ActionModule
from tests.unit.builders import agent_data, plan, session_data
from tests.unit.plugins.action.conftest import Run

MADE = plan({"agent1": 2, "agent2": 2})
THERE: dict[str, Any] = {
    "hostvars": {
        **{
            name: {"__session_agent": {"agent": agent_data(name, sessions=[session_data(MADE, name)])}}
            for name in ("agent1", "agent2")
        },
        "agent3": {"__session_agent": {"unreachable": True, "msg": "no route to host"}},
    }
}
AGENTS = ["agent1", "agent2", "agent3"]


def test_the_table_is_shown_to_people(run: Run, said: list[str]) -> None:
    run(ActionModule, {"agents": AGENTS}, THERE)
    assert [line.split()[:5] for line in said] == [
        ["NAME", "MODE", "SIZE", "STATUS", "AGENTS"],
        ["train-llm", "Multi-node", "4", "RUNNING", "agent1,agent2"],
    ]


@pytest.mark.usefixtures("said")
def test_records_are_written_and_that_is_no_change(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    first = run(ActionModule, {"agents": AGENTS, "path": str(path)}, THERE)
    assert json.loads(path.read_text()) == first["sessions"]
    assert [(one["name"], one["status"], len(one["kernels"])) for one in first["sessions"]] == [
        ("train-llm", "RUNNING", 4)
    ]
    assert first["warnings"] == ["agent3 is left out: no route to host."]
    assert first["changed"] is False


@pytest.mark.usefixtures("said")
def test_check_mode_writes_no_list(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    run(ActionModule, {"agents": AGENTS, "path": str(path)}, THERE, check_mode=True)
    assert not path.exists()


@pytest.mark.usefixtures("said")
def test_a_list_that_cannot_be_written_is_one_sentence_and_leaves_nothing(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    with pytest.raises(AnsibleActionFail) as refused:
        run(ActionModule, {"agents": AGENTS, "path": str(path)}, THERE)
    assert str(refused.value) == f"{str(path)!r} cannot be written: Is a directory."
    assert list(tmp_path.iterdir()) == [path]
