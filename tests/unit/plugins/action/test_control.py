"""Shared parts of control-node actions: queue, and results of agents."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail, AnsibleError

from ansible_collections.backendai.cluster.plugins.plugin_utils._lifecycle.start_steps import start_arguments
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.cluster_state import InventoryAgent
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.decision import Decision
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.owner import OWNER_TIMEOUT, current_owner
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.store import QueueStore
from ansible_collections.backendai.cluster.plugins.plugin_utils.cluster_view import (
    read_addresses,
    read_agent,
    read_answers,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils.control import ControlAction
from tests.unit.builders import NONCE, SESSION_ID, agent_data, agent_facts, image_data, plan, requested
from tests.unit.plugins.action.conftest import Run
from tests.unit.plugins.action.stages import answers_in

DEAD = dataclasses.replace(current_owner(), started="0")
ELSEWHERE = dataclasses.replace(current_owner(), host="manager2 boot")


class Probe(ControlAction):
    """An action that returns the inputs of the others."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        variables, args = task_vars or {}, self._task.args
        queue = self.queue(variables)
        if "write" in args:
            self.write_report(args["write"], "content")
        entries = self.entries(queue)
        readings = read_answers(answers_in(args.get("agents", []), variables))
        return {
            **result,
            "queue": str(queue.path),
            "variables": self.session_variables(variables),
            "entries": entries,
            "readings": readings,
            "warnings": self.warnings(readings),
        }


def answers(**results: dict[str, Any] | None) -> dict[str, Any]:
    """Return the variables of a run with these results of agents; ``None`` for agents that were not read."""
    return {"hostvars": {name: {"__session_agent": entry} if entry else {} for name, entry in results.items()}}


# ---- the queue


def test_queue_path_defaults_to_a_folder_beside_the_inventory(run: Run, tmp_path: Path) -> None:
    inventory = tmp_path / "site" / "hosts.yml"
    inventory.parent.mkdir()
    inventory.touch()
    hostvars = {"ansible_inventory_sources": [str(inventory)]}
    assert run(Probe, {"queue_path": "elsewhere"}, hostvars)["queue"] == str(tmp_path / "elsewhere")
    assert run(Probe, {"queue_path": ""}, hostvars)["queue"] == str(tmp_path / "site" / ".queue")
    assert run(Probe, {}, {})["queue"] == str(tmp_path / ".queue")


def test_session_of_a_dead_run_is_pending_again_if_its_request_was_kept(run: Run, queue: QueueStore) -> None:
    kept = requested(1, state="CREATING", owner=DEAD, agents=("agent1",), attempts=1)
    own_variables = requested(2, state="CREATING", owner=DEAD, spec=None)
    queue.save(kept)
    queue.save(own_variables)
    waits, stale = run(Probe, {}, {})["entries"]
    assert (waits.state, waits.owner, waits.spec, waits.attempts) == ("PENDING", None, queue.entries()[0].spec, 1)
    assert waits.updated_at == kept.updated_at
    assert stale == dataclasses.replace(own_variables, owner=None)
    assert [entry.owner for entry in queue.entries()] == [DEAD, DEAD]


@pytest.mark.parametrize(("age", "alive"), [(OWNER_TIMEOUT - 10, True), (OWNER_TIMEOUT + 10, False)])
def test_owner_on_another_host_expires(run: Run, queue: QueueStore, age: float, alive: bool) -> None:
    queue.save(requested(1, state="CREATING", owner=ELSEWHERE, updated_at=time.time() - age))
    (entry,) = run(Probe, {}, {})["entries"]
    assert entry.state == ("CREATING" if alive else "PENDING")


@pytest.mark.parametrize("entry", [requested(1), requested(1, state="TERMINATING", spec=None, agents=("agent1",))])
def test_entry_without_owner_is_kept(run: Run, queue: QueueStore, entry: Any) -> None:
    running = requested(2, state="CREATING", owner=current_owner())
    queue.save(entry)
    queue.save(running)
    result = run(Probe, {}, {})["entries"]
    assert [kept.state for kept in result] == [entry.state, "CREATING"]
    assert result == queue.entries()


# ---- what agents said


def test_agent_without_facts_is_omitted_with_a_one_line_reason(run: Run) -> None:
    result = run(
        Probe,
        {"agents": ["agent1", "agent2", "agent3", "agent4", "agent5"]},
        answers(
            agent1={"agent": agent_data("agent1", warnings=["nvidia-smi fails"])},
            agent2={"agent": None, "error": "start docker."},
            agent3={"unreachable": True, "msg": "Failed to connect:\n  no route to host"},
            agent4={"failed": True},
            agent5=None,
        ),
    )
    readings = result["readings"]
    assert list(readings.facts) == ["agent1"]
    assert readings.unavailable == {
        "agent2": "start docker",
        "agent3": "Failed to connect: no route to host",
        "agent4": "it returned no facts",
    }
    assert result["warnings"] == [
        "agent2 is left out: start docker.",
        "agent3 is left out: Failed to connect: no route to host.",
        "agent4 is left out: it returned no facts.",
        "agent1: nvidia-smi fails",
    ]


def test_agent_without_restore_program_is_a_warning(run: Run) -> None:
    hostvars = answers(agent1={"agent": agent_data("agent1", program=None)}, agent2={"agent": agent_data("agent2")})
    probed = run(Probe, {"agents": ["agent1", "agent2"]}, hostvars)
    assert probed["warnings"] == [
        "agent1: its sessions are not restored after a reboot; run backendai.cluster.provision_agents."
    ]
    assert list(probed["readings"].facts) == ["agent1", "agent2"]


@pytest.mark.parametrize(
    ("results", "error"),
    [
        ({**agent_data("agent1"), "capacity": None}, "capacity must be a mapping"),
        ({"warnings": []}, "resource_group is missing"),
        ("damaged", "the data must be a mapping"),
    ],
    ids=["a field", "nearly all", "all"],
)
def test_agent_with_corrupt_facts_is_omitted(run: Run, results: Any, error: str) -> None:
    hostvars = answers(agent1={"agent": results}, agent2={"agent": agent_data("agent2")})
    result = run(Probe, {"agents": ["agent1", "agent2"]}, hostvars)
    assert result["readings"].facts == {"agent2": agent_facts("agent2")}
    assert result["warnings"] == [f"agent1 is left out: the facts of agent1 are damaged: {error}."]


@pytest.mark.parametrize(
    ("name", "variables", "addresses"),
    [
        (
            "agent1",
            {"ansible_host": "192.0.2.1", "agent_underlay_address": "198.51.100.1"},
            ["192.0.2.1", "198.51.100.1"],
        ),
        ("192.0.2.2", {"ansible_host": "login.example.com"}, ["192.0.2.2"]),
        ("agent1", {}, []),
    ],
    ids=["both", "the name", "none"],
)
def test_the_inventory_gives_an_agent_addresses(name: str, variables: dict[str, Any], addresses: list[str]) -> None:
    assert read_addresses(name, variables) == addresses


@pytest.mark.parametrize(
    ("variables", "known"),
    [
        ({}, InventoryAgent("default", frozenset())),
        (
            {"agent_resource_group": "gpu", "agent_labels": ["ssd", "a100"]},
            InventoryAgent("gpu", frozenset({"ssd", "a100"})),
        ),
        ({"agent_labels": "ssd,a100"}, InventoryAgent("default", frozenset({"ssd", "a100"}))),
        ({"agent_labels": {"ssd": True}}, InventoryAgent()),
    ],
)
def test_the_inventory_says_what_agents_are_that_do_not_answer(
    variables: dict[str, Any], known: InventoryAgent
) -> None:
    assert read_agent(variables) == known


def test_what_depends_on_facts_that_were_not_gathered_is_not_known() -> None:
    class Lazy(dict[str, Any]):
        def __getitem__(self, name: str) -> Any:
            raise AnsibleError(f"{name} is undefined")

    assert read_agent(Lazy(agent_labels="{{ ansible_facts.x }}")) == InventoryAgent()


# ---- variables in, reports out


def test_only_session_variables_are_templated(run: Run) -> None:
    from ansible.template import trust_as_template

    variables = {"session_name": trust_as_template("train-{{ number }}"), "session_env": {"A": 1}, "number": 7}
    assert run(Probe, {}, variables)["variables"] == {"session_name": "train-7", "session_env": {"A": 1}}


def test_report_path_expands_the_home_folder(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    run(Probe, {"write": "~/record.json"}, {})
    assert (tmp_path / "record.json").read_text() == "content"


def test_empty_path_writes_no_report(run: Run, tmp_path: Path) -> None:
    run(Probe, {"write": ""}, {}, check_mode=True)
    run(Probe, {"write": str(tmp_path / "record.json")}, {}, check_mode=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["absent/record.json", "folder"])
def test_unwritable_report_is_an_error_and_leaves_no_file(run: Run, tmp_path: Path, path: str) -> None:
    (tmp_path / "folder").mkdir()
    reason = {"absent/record.json": "No such file or directory", "folder": "Is a directory"}[path]
    with pytest.raises(AnsibleActionFail) as refused:
        run(Probe, {"write": path}, {})
    assert str(refused.value) == f"{path!r} cannot be written: {reason}."
    assert [result.name for result in tmp_path.iterdir()] == ["folder"]


# ---- what agents need to start a session


def test_start_has_no_secrets() -> None:
    session_plan = plan(env={"TOKEN": "hunter2"})
    pulls = {"agent1": ["lab/python:1"]}
    images = {"agent1": {}, "agent2": {"lab/python:1": image_data()}}
    start = start_arguments(
        Decision(session_plan, False, pulls, {}, images),
        [SESSION_ID],
        nonce=NONCE,
        never_completed=True,
    )
    assert start == {
        "plan": session_plan.to_dict(),
        "id": SESSION_ID,
        "existing": False,
        "never_completed": True,
        "repairs": False,
        "agents": ["agent1", "agent2"],
        "missing_images": pulls,
        "images": images,
        "recorded_images": {},
        "route_problem": "",
        "public_keys": {},
        "nonce": NONCE,
        "stale_sessions": [SESSION_ID],
    }
    assert "hunter2" not in json.dumps(start)


@pytest.mark.parametrize(
    ("committed", "keys", "never_completed", "repairs"),
    [
        (False, {}, False, False),
        (True, {}, False, True),
        (True, {}, True, False),
        (True, {"main1": {"user": "U", "host": "H"}}, True, False),
        (True, {"main1": {"user": "U", "host": "H"}}, False, True),
    ],
    ids=["claimed", "on some agents", "by a run that was killed", "on all agents, by it", "on all agents"],
)
def test_start_repairs_what_an_earlier_run_has_committed(
    committed: bool, keys: dict[str, dict[str, str]], never_completed: bool, repairs: bool
) -> None:
    decision = Decision(plan(), True, {}, keys, committed=committed)
    start = start_arguments(decision, [], nonce=NONCE, never_completed=never_completed)
    assert start["repairs"] is repairs
    # What is not known is claimed.
    assert start["public_keys"] == (keys if repairs else {})
