"""The action session_info: the sessions as records, a table, files, and warnings about those that need action."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.action import session_info
from ansible_collections.backendai.cluster.plugins.module_utils._model.devices import Device, GpuRequest
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.module_utils._model.session import Mount
from ansible_collections.backendai.cluster.plugins.module_utils._model.storage import StorageService
from ansible_collections.backendai.cluster.plugins.module_utils._model.use import Load
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue import store
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import QueueEntry, mark_terminating
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.owner import current_owner
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.store import QueueStore
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.record import session_record, unplanned_record
from tests.unit.builders import NOW, SESSION_ID, agent_facts, held_session, holders, plan, requested, result
from tests.unit.plugins.action.conftest import Run

MADE = plan()
THERE: dict[str, Any] = {
    "hostvars": {
        **{name: {"__session_agent": result(facts)} for name, facts in holders(MADE).items()},
        "agent3": {"__session_agent": {"unreachable": True, "msg": "no route to host"}},
    }
}
AGENTS = ["agent1", "agent2", "agent3"]
EVIL = {"agent": None, "error": "\x1b]0;owned\x07"}
LIST = {"format": "table", "agents": AGENTS}
Lists = Callable[..., dict[str, Any]]


class ActionModule(session_info.ActionModule):
    """The action, whose agents have answered already: the variables of each have its result."""

    def survey(
        self, agents: Sequence[str], _queue: QueueStore, variables: Mapping[str, Any], *, loads: bool
    ) -> dict[str, Mapping[str, Any]]:
        assert loads == self._task.args.get("use", False)
        answers = {name: variables["hostvars"].get(name, {}).get("__session_agent") for name in agents}
        return {name: answer for name, answer in answers.items() if answer}

    def agents(self, given: Sequence[str] | None, task_vars: Mapping[str, Any]) -> list[str]:
        return list(given or task_vars["hostvars"])


Record = Callable[..., None]
ACTION_NEEDED = (
    "sessions on agent1, agent2 need action: run backendai.cluster.schedule_sessions to remove ended sessions and"
    " restart failed containers."
)


def ending(of: SessionPlan) -> QueueEntry:
    entry = requested(id=of.id, name=of.name, state="RUNNING", plan=of)
    return mark_terminating(entry, session_record(of, "TERMINATED"), of.agents, NOW)


@pytest.fixture
def recorded(queue: QueueStore) -> Record:
    """Return a function that saves the entry of a session which was started here."""

    def save(of: SessionPlan = MADE, **changes: Any) -> None:
        queue.save(requested(id=of.id, name=of.name, state="RUNNING", plan=of, enqueued_at=NOW, **changes))

    return save


def holding(session_plan: SessionPlan, **state: Any) -> dict[str, Any]:
    """Return the variables of a run with agents that run this session in this state."""
    hostvars = {name: agent_facts(name) for name in AGENTS} | holders(session_plan, **state)
    return {"hostvars": {name: {"__session_agent": result(facts)} for name, facts in hostvars.items()}}


@pytest.fixture
def lists(run: Run, tmp_path: Path) -> Lists:
    """Return a function that lists sessions, and returns the result of the action with the records that it wrote."""

    def list_sessions(variables: dict[str, Any], **args: Any) -> dict[str, Any]:
        path = tmp_path / "list.json"
        result = run(ActionModule, {**LIST, "path": str(path), **args}, variables)
        return {**result, "sessions": json.loads(path.read_text())}

    return list_sessions


def content(queue: QueueStore) -> dict[str, tuple[int, bytes]]:
    """Return the files of the queue with their modification times."""
    files = [path for path in queue.path.rglob("*") if path.is_file()]
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def test_table_of_sessions_is_shown(run: Run, recorded: Record, printed: list[str]) -> None:
    recorded()
    run(ActionModule, LIST, THERE)
    assert [line.split()[:7] for line in printed] == [
        ["NAME", "USER", "MODE", "SIZE", "CPU/GPU", "STATUS", "AGENTS"],
        ["train-llm", "alice", "Multi-node", "4", "4/0", "RUNNING", "agent1,agent2"],
    ]


def test_the_list_is_printed_as_a_wide_table_or_as_json(
    run: Run, lists: Lists, recorded: Record, printed: list[str]
) -> None:
    recorded()
    run(ActionModule, {**LIST, "format": "wide"}, THERE)
    assert "IMAGE" in printed[0]
    del printed[:]
    result = lists(THERE, format="json")
    assert json.loads("\n".join(printed)) == result["sessions"]


def test_a_session_names_the_storage_that_its_agents_close_to_it(lists: Lists, recorded: Record) -> None:
    recorded()
    closed = StorageService("NFS", "192.0.2.7", "/mnt/data", ("2049",))
    agent = dataclasses.replace(holders(MADE)["agent1"], closed_storage=(closed,))
    (listed,) = lists({"hostvars": {**THERE["hostvars"], "agent1": {"__session_agent": result(agent)}}})["sessions"]
    assert [(service["agent"], service["description"]) for service in listed["closed_storage"]] == [
        ("agent1", "NFS of 192.0.2.7 (tcp 2049), mounted at /mnt/data")
    ]


def test_a_session_with_gpus_names_their_models(lists: Lists, recorded: Record) -> None:
    kernels = tuple(dataclasses.replace(kernel, resources={"cpu": 1, "cuda.device": 1}) for kernel in MADE.kernels)
    several = ("NVIDIA L4", "", "NVIDIA H100 80GB HBM3", "NVIDIA L4")
    devices = [Device("cuda.device", f"GPU-{at}", model=model) for at, model in enumerate(several)]
    devices.append(Device("cuda.mig-1g.10gb", "MIG-1", model="NVIDIA A100"))

    def models(**changes: Any) -> Any:
        of = dataclasses.replace(MADE, **changes)
        recorded(of)
        facts = {name: dataclasses.replace(agent, devices=tuple(devices)) for name, agent in holders(of).items()}
        hostvars = {name: {"__session_agent": result(agent)} for name, agent in facts.items()}
        (listed,) = lists({"hostvars": hostvars})["sessions"]
        return listed.get("gpu_models")

    assert models() is None
    assert models(kernels=kernels) is None, "an agent may give any of several models"
    assert models(kernels=kernels, gpu=GpuRequest("h100")) == ["NVIDIA H100 80GB HBM3"]


def test_what_a_session_uses_is_told_if_all_of_its_agents_have_measured_it(lists: Lists, recorded: Record) -> None:
    recorded()

    def use(*loads: Load | None) -> Any:
        answers = {}
        for (name, agent), load in zip(holders(MADE).items(), loads, strict=True):
            (part,) = agent.sessions
            facts = dataclasses.replace(agent, sessions=(dataclasses.replace(part, load=load),))
            answers[name] = {"__session_agent": result(facts)}
        (listed,) = lists({"hostvars": answers}, use=True)["sessions"]
        return listed.get("use")

    assert use(Load(1.25, (97,)), Load(0.5, (0,))) == {"cpu": 1.75, "gpus": [97, 0]}
    assert use(Load(1.25), None) is None


def test_pending_sessions_have_their_position_in_the_queue(
    lists: Lists, queue: QueueStore, recorded: Record, printed: list[str]
) -> None:
    recorded()
    queue.save(requested(1))
    queue.save(requested(2, priority=20))
    records = {entry["name"]: entry for entry in lists(THERE)["sessions"]}
    assert [records[name]["queue_position"] for name in ("session-1", "session-2", "train-llm")] == [2, 1, None]
    assert "#2" in printed[2]


@pytest.mark.usefixtures("printed")
def test_records_are_written_without_a_change(lists: Lists, recorded: Record) -> None:
    recorded()
    first = lists(THERE)
    assert [(entry["name"], entry["status"], len(entry["kernels"])) for entry in first["sessions"]] == [
        ("train-llm", "RUNNING", 4)
    ]
    assert first["warnings"] == ["agent3 is left out: no route to host."]
    assert first["changed"] is False


@pytest.mark.parametrize(
    ("history", "listed"),
    [
        (False, {"train-llm": "RUNNING", "session-1": "PENDING", "session-2": "CREATING"}),
        (
            True,
            {
                "train-llm": "RUNNING",
                "session-1": "PENDING",
                "session-2": "CREATING",
                "session-3": "CANCELLED",
                "ending": "TERMINATED",
            },
        ),
    ],
)
def test_pending_and_starting_sessions_are_listed_ended_ones_on_demand(
    lists: Lists, queue: QueueStore, recorded: Record, printed: list[str], history: bool, listed: dict[str, str]
) -> None:
    recorded()
    queue.save(requested(1))
    starting = requested(2, state="CREATING", owner=current_owner())
    queue.save(dataclasses.replace(starting, record={**starting.record, "pending": {"reason": "", "shortfall": {}}}))
    finished = requested(3, state="TERMINATED", spec=None)
    queue.save(dataclasses.replace(finished, record={**finished.record, "status": "CANCELLED"}))
    unreachable = dataclasses.replace(plan({"agent3": 1}, name="ending"), id="00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a")
    queue.save(ending(unreachable))
    result = lists(THERE, history=history)
    assert {entry["name"]: entry["status"] for entry in result["sessions"]} == listed
    assert [entry["pending"] for entry in result["sessions"] if entry["name"] == "session-2"] == [None]
    assert len(printed) == 1 + len(listed)


@pytest.mark.usefixtures("printed")
@pytest.mark.parametrize("state", [{"state": "CREATING", "owner": current_owner()}, {"state": "PENDING"}])
def test_running_sessions_are_listed_once(lists: Lists, queue: QueueStore, state: dict[str, Any]) -> None:
    queue.save(requested(id=SESSION_ID, name="train-llm", plan=MADE, **state))
    result = lists(THERE)
    assert [(entry["name"], entry["status"]) for entry in result["sessions"]] == [("train-llm", "RUNNING")]


@pytest.mark.usefixtures("printed")
def test_terminating_sessions_are_not_listed_as_running(lists: Lists, queue: QueueStore) -> None:
    queue.save(ending(MADE))
    result = lists(THERE)
    assert result["sessions"] == []
    assert result["warnings"][1:] == [
        "session train-llm has ended, but agent1, agent2 may still run a part of it.",
        ACTION_NEEDED,
    ]


@pytest.mark.usefixtures("printed")
def test_unnamed_session_is_named_by_its_id(run: Run, queue: QueueStore) -> None:
    record = unplanned_record(None, None, "TERMINATED", SESSION_ID)
    queue.save(requested(id=SESSION_ID, name="", state="TERMINATING", spec=None, record=record, agents=tuple(AGENTS)))
    assert run(ActionModule, LIST, THERE)["warnings"][1:] == [
        f"session {SESSION_ID} has ended, but agent1, agent2, agent3 may still run a part of it.",
        ACTION_NEEDED,
    ]


def test_page_is_written_for_a_web_server(run: Run, recorded: Record, printed: list[str], tmp_path: Path) -> None:
    recorded()
    path = tmp_path / "page.html"
    quiet = run(ActionModule, {**LIST, "format": "none", "page_path": str(path)}, THERE)
    page = path.read_text()
    assert path.stat().st_mode & 0o777 == 0o644
    assert all(text in page for text in ("<title>Cluster sessions</title>", '"train-llm"', '"no route to host"'))
    assert (quiet.get("warnings"), printed) == (None, [])


@pytest.mark.usefixtures("printed")
def test_check_mode_writes_no_list(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    run(ActionModule, {**LIST, "path": str(path)}, THERE, check_mode=True)
    assert not path.exists()


@pytest.mark.usefixtures("printed")
def test_unwritable_list_is_an_error_and_leaves_no_file(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    with pytest.raises(AnsibleActionFail) as refused:
        run(ActionModule, {**LIST, "path": str(path)}, THERE)
    assert str(refused.value) == f"{str(path)!r} cannot be written: Is a directory."
    assert list(tmp_path.iterdir()) == [path]


# ---- what is due


@pytest.mark.parametrize("exit_code", [0, 3])
def test_finished_session_is_listed_before_it_is_saved(
    lists: Lists, queue: QueueStore, recorded: Record, printed: list[str], exit_code: int
) -> None:
    made = plan(command="python train.py")
    recorded(made)
    hostvars = holding(made, stopped={"main1": ("exited", exit_code)})
    listed = lists(hostvars)
    (record,) = listed["sessions"]
    reason = f"the command ended with exit code {exit_code}"
    assert (record["status"], record["exit_code"], record["reason"]) == ("TERMINATED", exit_code, reason)
    assert printed[1].split()[:6] == ["train-llm", "alice", "Multi-node", "4", "4/0", "TERMINATED"]
    assert printed[1].endswith(reason)
    assert listed["warnings"] == [ACTION_NEEDED]
    assert [entry.state for entry in queue.entries()] == ["RUNNING"]


@pytest.mark.usefixtures("printed")
def test_degraded_session_is_listed_with_a_warning(lists: Lists, recorded: Record) -> None:
    made = plan(failure_policy="restart")
    recorded(made)
    hostvars = holding(made, stopped={"sub2": ("exited", 1)})
    listed = lists(hostvars)
    assert [record["status"] for record in listed["sessions"]] == ["DEGRADED"]
    assert [warning.partition(":")[0] for warning in listed["warnings"]] == ["sessions on agent2 need action"]


@pytest.mark.usefixtures("printed")
def test_healthy_sessions_have_no_warnings(run: Run, recorded: Record) -> None:
    recorded()
    assert run(ActionModule, LIST, holding(MADE))["warnings"] == []


@pytest.mark.usefixtures("printed")
@pytest.mark.parametrize("check_mode", [True, False])
@pytest.mark.parametrize("history", [True, False])
def test_list_does_not_change_the_queue(run: Run, queue: QueueStore, history: bool, check_mode: bool) -> None:
    killed = dataclasses.replace(current_owner(), started="0")
    queue.save(requested(1, pending_timeout=1, enqueued_at=1.0))
    queue.save(requested(2, state="CREATING", owner=killed))
    queue.save(requested(3, state="CREATING", owner=killed, spec=None))
    queue.save(requested(4, state="TERMINATED", spec=None, updated_at=1.0))
    queue.save(requested(5, state="TERMINATING", spec=None, agents=("agent1",)))
    hostvars = holding(plan(command="python train.py"), stopped={"main1": ("exited", 3)})
    queue.save(requested(6, id=SESSION_ID, state="RUNNING", plan=plan(command="python train.py")))
    before = content(queue)
    run(ActionModule, {**LIST, "history": history}, hostvars, check_mode=check_mode)
    assert content(queue) == before


@pytest.mark.usefixtures("printed")
def test_list_does_not_create_the_queue_folder(run: Run, queue: QueueStore) -> None:
    run(ActionModule, LIST, THERE)
    assert not queue.path.exists()


@pytest.mark.usefixtures("printed")
@pytest.mark.parametrize(
    ("changes", "status"),
    [({"committed": False}, "CREATING"), ({"committed": False, "expired": True}, "ERROR"), ({}, "RUNNING")],
    ids=["being made", "given up", "made"],
)
def test_session_status_comes_from_its_agents(
    lists: Lists, recorded: Record, changes: dict[str, Any], status: str
) -> None:
    recorded()
    listed = lists(holding(MADE, **changes))
    assert [record["status"] for record in listed["sessions"]] == [status]
    assert listed["warnings"] == ([ACTION_NEEDED] if "expired" in changes else [])


def test_records_of_the_queue_are_safe_to_print(run: Run, queue: QueueStore, printed: list[str]) -> None:
    entry = requested(1)
    reason = "start 1 of 3 failed: \x1b[2J\x1b]0;owned\x07"
    queue.save(dataclasses.replace(entry, record={**entry.record, "pending": {"reason": reason, "shortfall": {}}}))
    run(ActionModule, {**LIST, "agents": []}, {"hostvars": {}})
    assert printed[-1].endswith("start 1 of 3 failed: \\x1b[2J\\x1b]0;owned\\x07")


@pytest.mark.usefixtures("printed")
def test_warnings_are_safe_to_print(run: Run) -> None:
    result = run(ActionModule, {**LIST, "agents": ["agent1"]}, {"hostvars": {"agent1": {"__session_agent": EVIL}}})
    assert result["warnings"] == ["agent1 is left out: \\x1b]0;owned\\x07."]


# ---- agents that say something else than the record


def with_mount(of: SessionPlan) -> SessionPlan:
    return dataclasses.replace(of, mounts=(Mount("/", "/mnt/host"),))


@pytest.mark.usefixtures("printed")
def test_session_is_listed_as_it_was_started_here(lists: Lists, recorded: Record) -> None:
    recorded(record={**requested(1).record, "host_keys": {"main1": "ssh-ed25519 HOST"}})
    parts = {
        "agent1": held_session(MADE, "agent1", name="a-lie"),
        "agent2": held_session(MADE, "agent2", plan_digest=with_mount(MADE).digest),
        "agent3": held_session(MADE, "agent1"),
    }
    facts = {name: agent_facts(name, sessions=[part]) for name, part in parts.items()}
    listed = lists(
        {"hostvars": {name: {"__session_agent": result(each)} for name, each in facts.items()}}, history=True
    )
    (record,) = listed["sessions"]
    assert (record["name"], record["status"], record["error"], len(record["kernels"])) == (
        "train-llm",
        "RUNNING",
        None,
        4,
    )
    assert (record["user"], record["host_keys"], record["recorded"]) == (
        "alice",
        {"main1": "ssh-ed25519 HOST"},
        True,
    )
    other_plan, other_agent = listed["warnings"]
    assert other_plan == (
        "agent2 has another plan of the session train-llm than this control node, which started it:"
        f" backendai.cluster.verify_session -e session_id={SESSION_ID} shows the first difference, and repair_session"
        " restores it."
    )
    assert other_agent == (
        f"agent3 says that it has a part of the session train-llm ({SESSION_ID}), which was not planned there: it is"
        " ignored, and terminate_session removes it."
    )


def test_session_without_a_record_is_listed_as_nobodys(lists: Lists, printed: list[str]) -> None:
    listed = lists(holding(MADE))
    (record,) = listed["sessions"]
    assert (record["name"], record["status"], record["recorded"]) == ("train-llm", "RUNNING", False)
    assert (record["user"], record["uid"], record["apps"], record["host_keys"]) == (None, None, [], {})
    assert printed[1].split()[:3] == ["train-llm", "(no", "record)"]
    assert listed["warnings"] == []


def test_page_for_everybody_has_no_session_without_a_record(run: Run, printed: list[str], tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    run(ActionModule, {**LIST, "page_path": str(path)}, holding(MADE))
    assert "train-llm" not in path.read_text()
    assert len(printed) == 2


@pytest.mark.usefixtures("printed")
@pytest.mark.parametrize(
    "changes", [{"state": "PENDING", "plan": None}, {"state": "RUNNING", "plan": plan({"agent3": 1})}]
)
def test_what_an_agent_says_of_a_session_that_is_not_planned_there_is_not_listed(
    lists: Lists, queue: QueueStore, changes: dict[str, Any]
) -> None:
    queue.save(requested(id=SESSION_ID, name="session-1", **changes))
    listed = lists(holding(MADE))
    assert [record["name"] for record in listed["sessions"]] == ([] if changes["plan"] else ["session-1"])


@pytest.mark.usefixtures("printed")
def test_running_session_whose_agents_are_away_is_degraded(lists: Lists, queue: QueueStore) -> None:
    queue.save(requested(id=SESSION_ID, name="train-llm", state="RUNNING", plan=MADE))
    gone = {"hostvars": {name: {"__session_agent": {"unreachable": True, "msg": "no route"}} for name in AGENTS}}
    listed = lists(gone)
    (record,) = listed["sessions"]
    remedy = "switch it on and connect it; only if it never comes back, end the session with session_force=true"
    assert (record["status"], record["error"]) == (
        "DEGRADED",
        f"agent1 does not answer, agent2 does not answer: {remedy}",
    )
    assert "this control node may be cut off" in listed["warnings"][3]
    assert [entry.state for entry in queue.entries()] == ["RUNNING"]


ENGINE_DEAD = {"agent": None, "error": "the container engine does not respond:\x1b[2J restart it."}
GONE = {"unreachable": True, "msg": "no route"}
NOT_THERE = result(agent_facts("agent1"))
NO_ENGINE = "the container engine does not respond:\\x1b[2J restart it"
REMEDY = "switch it on and connect it; only if it never comes back, end the session with session_force=true"


@pytest.mark.usefixtures("printed")
@pytest.mark.parametrize(
    ("agent2", "error"),
    [
        (ENGINE_DEAD, f"agent2: {NO_ENGINE}"),
        (GONE, f"agent2 does not answer: {REMEDY}"),
        (NOT_THERE, None),
    ],
    ids=["dead engine", "away", "without its containers"],
)
def test_a_session_of_which_an_agent_says_nothing_has_the_reason(
    lists: Lists, recorded: Record, agent2: dict[str, Any], error: str | None
) -> None:
    recorded()
    others = {"agent1": result(holders(MADE)["agent1"]), "agent2": agent2, "agent3": result(agent_facts("agent3"))}
    (listed,) = lists({"hostvars": {name: {"__session_agent": each} for name, each in others.items()}})["sessions"]
    assert (listed["status"], listed["error"]) == ("DEGRADED", error)


@pytest.mark.usefixtures("printed")
@pytest.mark.parametrize(
    ("agent1", "agent2", "error"),
    [
        (ENGINE_DEAD, ENGINE_DEAD, f"agent1, agent2: {NO_ENGINE}"),
        (ENGINE_DEAD, GONE, f"agent1: {NO_ENGINE}; agent2 does not answer: {REMEDY}"),
        (NOT_THERE, ENGINE_DEAD, f"agent2: {NO_ENGINE}"),
        (NOT_THERE, GONE, f"agent2 does not answer: {REMEDY}"),
        (NOT_THERE, NOT_THERE, None),
    ],
)
def test_running_session_whose_agents_cannot_be_used_is_degraded(
    lists: Lists, queue: QueueStore, agent1: dict[str, Any], agent2: dict[str, Any], error: str | None
) -> None:
    queue.save(requested(id=SESSION_ID, name="train-llm", state="RUNNING", plan=MADE))
    others = {"agent1": agent1, "agent2": agent2, "agent3": result(agent_facts("agent3"))}
    listed = lists({"hostvars": {name: {"__session_agent": each} for name, each in others.items()}})
    shown = [(record["status"], record["error"]) for record in listed["sessions"]]
    assert shown == ([("DEGRADED", error)] if error else [])


@pytest.mark.usefixtures("printed")
@pytest.mark.parametrize(
    ("inventory", "read", "error"),
    [
        (["agent3"], ["agent3"], "agent1, agent2: not in the inventory, or hidden by --limit"),
        (["agent1", "agent3"], ["agent1", "agent3"], "agent2: not in the inventory, or hidden by --limit"),
        (AGENTS, ["agent3"], ""),
    ],
    ids=["all removed", "one removed", "hidden"],
)
def test_running_session_whose_agents_have_left_the_inventory_is_degraded(
    lists: Lists, queue: QueueStore, inventory: list[str], read: list[str], error: str
) -> None:
    queue.save(requested(id=SESSION_ID, name="train-llm", state="RUNNING", plan=MADE))
    hostvars = {name: {"__session_agent": result(agent_facts(name))} if name in read else {} for name in inventory}
    shown = [
        (record["status"], record["error"]) for record in lists({"hostvars": hostvars}, agents=inventory)["sessions"]
    ]
    remedy = "put them back, or end the session with session_force=true"
    assert shown == ([("DEGRADED", f"{error}; {remedy}")] if error else [])


@pytest.mark.usefixtures("printed")
def test_list_of_some_agents_does_not_say_that_this_control_node_is_cut_off(run: Run) -> None:
    hostvars: dict[str, Any] = {"agent1": {"__session_agent": GONE}, "agent2": {}, "agent3": {}}
    assert run(ActionModule, LIST, {"hostvars": hostvars})["warnings"] == ["agent1 is left out: no route."]


def test_degraded_session_says_which_agent_is_away(lists: Lists, queue: QueueStore, printed: list[str]) -> None:
    queue.save(requested(id=SESSION_ID, name="train-llm", state="RUNNING", plan=MADE))
    variables = holding(MADE)
    variables["hostvars"]["agent2"] = {"__session_agent": {"unreachable": True, "msg": "no route"}}
    (record,) = lists(variables)["sessions"]
    assert (record["status"], record["error"][:23]) == ("DEGRADED", "agent2 does not answer:")
    assert "agent2 does not answer:" in printed[1]


def test_list_shows_when_a_session_ends(lists: Lists, recorded: Record, printed: list[str]) -> None:
    timed = plan(max_lifetime=7200)
    recorded(timed)
    (record,) = lists(holding(timed, lived=1800, idle=0))["sessions"]
    assert record["ends_at"] - time.time() == pytest.approx(5400, abs=600)
    assert printed[1].split()[-1] == "1h"


# ---- what a playbook of one's own gets


def returned(run: Run, variables: dict[str, Any], **args: Any) -> list[str | None]:
    return [session["name"] for session in run(ActionModule, {"agents": AGENTS, **args}, variables)["sessions"]]


@pytest.fixture
def several(run: Run, queue: QueueStore, recorded: Record) -> Run:
    """A session that runs, one that waits and one that has ended."""
    recorded()
    queue.save(dataclasses.replace(requested(1), record={**requested(1).record, "user": "bob"}))
    ended = requested(3, state="TERMINATED", spec=None)
    queue.save(dataclasses.replace(ended, record={**ended.record, "status": "CANCELLED"}))
    return run


@pytest.mark.parametrize(
    ("args", "names"),
    [
        ({}, ["train-llm", "session-1"]),
        ({"history": True}, ["train-llm", "session-1", "session-3"]),
        ({"name": "train-llm"}, ["train-llm"]),
        ({"name": "train"}, []),
        ({"id": SESSION_ID}, ["train-llm"]),
        ({"user": "bob"}, ["session-1"]),
        ({"status": ["RUNNING", "ERROR"]}, ["train-llm"]),
        ({"status": "PENDING,CREATING"}, ["session-1"]),
        ({"status": ["CANCELLED"], "history": True}, ["session-3"]),
        ({"user": "alice", "status": ["PENDING"]}, []),
    ],
)
def test_sessions_are_returned_as_records_that_filters_select(
    several: Run, printed: list[str], args: dict[str, Any], names: list[str]
) -> None:
    assert returned(several, THERE, **args) == names
    assert printed == []


def test_filters_hold_for_what_is_printed_and_written(several: Run, printed: list[str], tmp_path: Path) -> None:
    path, page = tmp_path / "list.json", tmp_path / "page.html"
    files = {"path": str(path), "page_path": str(page)}
    shown = several(ActionModule, {**LIST, **files, "name": "session-1"}, THERE)
    assert "sessions" not in shown
    assert [session["name"] for session in json.loads(path.read_text())] == ["session-1"]
    assert [line.split()[0] for line in printed] == ["NAME", "session-1"]
    assert ("session-1" in page.read_text(), "train-llm" in page.read_text()) == (True, False)


def test_an_agent_that_was_not_read_has_a_reason(run: Run) -> None:
    variables = {
        "hostvars": {
            "agent1": {"__session_agent": {"agent": None, "error": "the engine is down.\x1b[2J"}},
            "agent2": {"__session_agent": {"unreachable": True, "msg": "no route\nto host"}},
            "agent3": {},
        }
    }
    listed = run(ActionModule, {"agents": AGENTS}, variables)
    assert listed["unavailable"] == {
        "agent1": {"problem": "unusable", "reason": "the engine is down.\\x1b[2J"},
        "agent2": {"problem": "unreachable", "reason": "no route to host"},
        "agent3": {"problem": "hidden", "reason": "hidden by --limit"},
    }
    assert len(listed["warnings"]) == 2


def test_returned_records_are_safe_to_print(run: Run, queue: QueueStore) -> None:
    entry = requested(1)
    pending = {"reason": "start 1 of 3 failed: \x1b[2J", "shortfall": {}}
    queue.save(dataclasses.replace(entry, record={**entry.record, "pending": pending}))
    (session,) = run(ActionModule, {"agents": []}, {})["sessions"]
    assert session["pending"]["reason"] == "start 1 of 3 failed: \\x1b[2J"


def test_the_queue_is_the_one_that_the_inventory_names(run: Run, tmp_path: Path) -> None:
    for name in ("site", "own"):
        QueueStore(str(tmp_path / name)).save(dataclasses.replace(requested(1), name=name))
    site = {"session_queue_path": str(tmp_path / "site"), "session_queue_policy": "lifo"}
    saved = {name: QueueStore(str(tmp_path / name)).entries()[0].record["name"] for name in ("site", "own")}
    assert returned(run, site, agents=[]) == [saved["site"]]
    assert returned(run, {}, agents=[], queue_path=str(tmp_path / "empty")) == []
    assert returned(run, site, agents=[], queue_path=str(tmp_path / "empty")) == []


@pytest.mark.parametrize(
    ("args", "variables", "message"),
    [
        (
            {"status": ["CANCELLED"]},
            {},
            "status: CANCELLED: sessions that have ended are only listed with history: true",
        ),
        ({"status": ["GONE"]}, {}, "value of status must be one or more of: .*GONE"),
        ({"nmae": "x"}, {}, "nmae. Supported parameters include"),
        ({"history": "perhaps"}, {}, "argument 'history' is of type"),
        ({}, {"ansible_play_hosts_all": AGENTS}, "for each of the 3 hosts of the play: set run_once: true, or move it"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    run: Run, args: dict[str, Any], variables: dict[str, Any], message: str
) -> None:
    with pytest.raises(AnsibleActionFail, match=message):
        run(ActionModule, {"agents": [], **args}, variables)


@pytest.mark.parametrize(
    ("args", "variables", "message"),
    [
        (
            {},
            {"session_queue_policy": "best"},
            "value of session_queue_policy must be one of: fifo, lifo, drf, got: best.",
        ),
        ({"queue_patience": -1}, {}, "queue_patience: -1 must be a whole number from 0 to 10000."),
        (
            {},
            {"session_lst_path": "x"},
            "session_lst_path is not an option of a session; did you mean session_list_path?",
        ),
    ],
)
def test_an_option_that_is_not_valid_is_refused_and_nobody_is_asked(
    run: Run, monkeypatch: pytest.MonkeyPatch, args: dict[str, Any], variables: dict[str, Any], message: str
) -> None:
    monkeypatch.delattr(ActionModule, "survey")
    refused = run(ActionModule, args, variables)
    assert (refused["failed"], refused["refused"], refused["changed"]) == (True, True, False)
    assert refused["msg"].startswith(message)


def test_ended_sessions_are_listed_by_the_variable_of_operators_or_the_file_of_a_user(
    run: Run, queue: QueueStore, tmp_path: Path
) -> None:
    queue.save(requested(1, state="TERMINATED", spec=None))
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"session_history": True}))
    assert returned(run, {}, agents=[]) == []
    for variables in ({"session_history": "yes"}, {"session_request_path": str(request)}):
        assert returned(run, variables, agents=[]) == ["session-1"]
    assert returned(run, {"session_history": True}, agents=[], history=False) == []


def test_an_agent_that_the_inventory_does_not_have_is_refused(run: Run) -> None:
    with pytest.raises(AnsibleActionFail, match=r"agents: the inventory has no host 'agent9'\."):
        run(session_info.ActionModule, {"agents": ["agent1", "agent9"]}, {"hostvars": {"agent1": {}}})


LATE = (
    "the last good run of the timer was 3h ago: sessions that wait do not start, and none ends by its time;"
    f" systemctl status backendai-schedule.service on {os.uname().nodename} says why."
)


@pytest.fixture
def timer(queue: QueueStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> float:
    """Let the timer have run three hours ago, and return when."""
    unit = tmp_path / "backendai-schedule.timer"
    unit.touch()
    monkeypatch.setattr(store, "TIMER_UNIT", unit)
    queue.save_timer(60.0)
    ran_at = time.time() - 3 * 3600 - 5
    os.utime(queue.path / store.TIMER_FILE, (ran_at, ran_at))
    return ran_at


@pytest.mark.parametrize("style", ["table", "json"])
def test_a_timer_that_does_not_run_is_warned_of(lists: Lists, timer: float, style: str) -> None:
    listed = lists(THERE, format=style)
    assert listed["warnings"][-1] == LATE
    host = os.uname().nodename
    assert listed["timer"] == {"host": host, "ran_at": timer, "late_at": timer + 300, "problem": LATE}


def test_a_timer_that_starts_a_session_now_is_not_warned_of(lists: Lists, queue: QueueStore, timer: float) -> None:
    queue.save(requested(7, state="CREATING", owner=current_owner(), updated_at=timer))
    listed = lists(THERE)
    assert (listed["timer"]["ran_at"], listed["timer"]["problem"], LATE in listed["warnings"]) == (timer, "", False)


def test_without_a_timer_nothing_is_said(lists: Lists) -> None:
    assert lists(THERE)["timer"] == {"problem": ""}


def test_the_page_knows_when_the_timer_ran(run: Run, tmp_path: Path, timer: float) -> None:
    page = tmp_path / "page.html"
    run(ActionModule, {**LIST, "format": "none", "page_path": str(page)}, THERE)
    assert f'"ran_at":{timer!r},"late_at":{timer + 300!r}' in page.read_text()
