"""The action agent_info: the agents, what is free on them, a table, a file, and warnings."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.action import agent_info
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue import store
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.owner import current_owner
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.store import QueueStore
from ansible_collections.backendai.cluster.plugins.plugin_utils.agent_calls import Answer
from tests.unit.builders import agent_facts, holders, plan, requested, result
from tests.unit.plugins.action.asked_hosts import GONE, Asked, AskedHosts
from tests.unit.plugins.action.conftest import Run

AGENTS = ["agent1", "agent2", "agent3"]


class Site:
    """Three agents with a session on two of them; ``hidden`` are those that a limit hides."""

    def __init__(self) -> None:
        self.hosts: dict[str, dict[str, Any]] = {name: {} for name in AGENTS}
        self.answers: dict[str, Answer] = {name: result(facts) for name, facts in holders(plan()).items()}
        self.answers["agent3"] = GONE
        self.hidden: list[str] = []
        self.asked: list[Asked] = []

    def answer(self, request: Asked) -> Answer:
        self.asked.append(request)
        return self.answers[request.host]


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    there = Site()

    @contextlib.contextmanager
    def calls(_action: object, _variables: Mapping[str, Any]) -> Iterator[AskedHosts]:
        yield AskedHosts(there.hosts, there.answer)

    action = agent_info.ActionModule
    monkeypatch.setattr(action, "calls", calls)
    monkeypatch.setattr(action, "agents", lambda _action, given, _variables: given or AGENTS)
    monkeypatch.setattr(
        action, "within_limit", lambda _action, names, _variables: [name for name in names if name not in there.hidden]
    )
    return there


def listed(run: Run, site: Site, variables: dict[str, Any] | None = None, **args: Any) -> dict[str, Any]:
    return run(agent_info.ActionModule, args, {"hostvars": site.hosts, **(variables or {})})


def test_agents_are_returned_with_what_is_free_on_them(run: Run, site: Site, printed: list[str]) -> None:
    site.hosts["agent3"] = {"agent_resource_group": "gpu"}
    result = listed(run, site)
    assert [(row["name"], row["status"], row["resource_group"]) for row in result["agents"]] == [
        ("agent1", "ready", "default"),
        ("agent2", "ready", "default"),
        ("agent3", "unreachable", "gpu"),
    ]
    (group,) = result["groups"]
    assert group["free"]["cpu"] == sum(row["free"]["cpu"] for row in result["agents"][:2])
    assert result["unavailable"] == {"agent3": {"problem": "unreachable", "reason": "no route to host"}}
    assert (result["changed"], printed) == (False, [])
    assert {request.phase for request in site.asked} == {"survey"}
    assert all(request.options["others"] for request in site.asked)


def test_agents_are_shown_as_a_table_or_as_json_and_written_to_a_file(
    run: Run, site: Site, printed: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "agents.json"
    result = listed(run, site, format="table", path=str(path))
    assert [line.split()[0] for line in printed] == ["NAME", *AGENTS, "Group"]
    assert "agents" not in result
    del printed[:]
    listed(run, site, format="json")
    assert json.loads("\n".join(printed)) == json.loads(path.read_text())


def test_check_mode_writes_no_file(run: Run, site: Site, tmp_path: Path) -> None:
    path = tmp_path / "agents.json"
    run(agent_info.ActionModule, {"path": str(path)}, {"hostvars": site.hosts}, check_mode=True)
    assert not path.exists()


def test_what_another_run_is_about_to_start_is_not_free(run: Run, site: Site, queue: QueueStore) -> None:
    free = {row["name"]: row["free"] for row in listed(run, site)["agents"]}
    starting = plan({"agent1": 1}, name="other")
    queue.save(requested(1, state="CREATING", plan=starting, owner=current_owner()))
    (first, *_others) = listed(run, site)["agents"]
    assert first["free"]["cpu"] == free["agent1"]["cpu"] - starting.kernels[0].resources["cpu"]


def test_what_is_wrong_with_agents_and_what_runs_beside_sessions_are_warnings(run: Run, site: Site) -> None:
    warned = agent_facts("agent1", warnings=("the firewall is in report mode.",))
    site.answers["agent1"] = {**result(warned), "warnings": ["a GPU is used by\x1b python."]}
    warnings = listed(run, site, agents=["agent1"])["warnings"]
    assert warnings == ["agent1: a GPU is used by\\x1b python.", "agent1: the firewall is in report mode."]


def test_most_agents_away_are_a_warning_unless_a_limit_hides_the_others(run: Run, site: Site) -> None:
    site.answers |= {"agent1": GONE, "agent2": GONE}
    (warning,) = listed(run, site)["warnings"]
    assert warning.startswith("3 of 3 agents do not answer (agent1, agent2, agent3)")
    site.hidden = ["agent2"]
    result = listed(run, site)
    assert (result["warnings"], [row["name"] for row in result["agents"]]) == ([], ["agent1", "agent3"])
    assert result["unavailable"]["agent2"]["problem"] == "hidden"


@pytest.mark.parametrize(
    ("args", "variables", "message"),
    [
        ({"format": "wide"}, {}, "value of format must be one of: table, json, got: wide"),
        ({}, {"session_queue_pth": "/srv"}, "session_queue_pth is not an option of a session; did you mean"),
        ({}, {"ansible_play_hosts_all": AGENTS}, "for each of the 3 hosts of the play: set run_once: true"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_any_agent_is_asked(
    run: Run, site: Site, args: dict[str, Any], variables: dict[str, Any], message: str
) -> None:
    with pytest.raises(AnsibleActionFail, match=message):
        listed(run, site, variables, **args)
    assert site.asked == []


def test_the_queue_is_that_of_the_task_or_else_of_the_inventory(run: Run, site: Site, tmp_path: Path) -> None:
    queue = QueueStore(str(tmp_path / "own"))
    queue.save(requested(1, state="CREATING", plan=plan({"agent1": 1}, name="other"), owner=current_owner()))
    free = listed(run, site)["agents"][0]["free"]["cpu"]
    for variables, args in (({"session_queue_path": str(queue.path)}, {}), ({}, {"queue_path": str(queue.path)})):
        assert listed(run, site, variables, **args)["agents"][0]["free"]["cpu"] < free


def test_a_timer_that_does_not_run_is_warned_of(
    run: Run, site: Site, queue: QueueStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "TIMER_UNIT", tmp_path)
    assert listed(run, site)["timer"] == {"problem": ""}
    queue.save_timer(3600.0)
    path = queue.path / store.TIMER_FILE
    for age, late in ((3 * 3600 - 60, False), (3 * 3600 + 60, True)):
        os.utime(path, (time.time() - age, time.time() - age))
        result = listed(run, site, path=str(tmp_path / "agents.json"))
        written = json.loads((tmp_path / "agents.json").read_text())["timer"]
        assert (result["timer"], bool(written["problem"])) == (written, late)
        assert [
            text for text in result["warnings"] if text.startswith("the last good run of the timer was 3h ago: ")
        ] == ([written["problem"]] if late else [])
