"""The action session_plan on a manager: sessions get the groups that their users are in when they start."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.module_utils._model.session import UserGroup
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.store import QueueStore
from ansible_collections.backendai.cluster.plugins.plugin_utils._run import planning
from tests.unit.builders import POOLS, SESSION_ID, agent_facts, held_session, plan, requested, result, spec
from tests.unit.group_files import GROUP, PASSWD, FileDirectory, directory_in
from tests.unit.plugins.action.conftest import Run
from tests.unit.plugins.action.stages import Plan

RULES = {"allowed": "own", "closed": ["backendai-operators"]}
LIMITS = {"max_sessions": 50}
USER = {"user": "alice", "user_uid": 1001}
OF_ALICE = (UserGroup(1001, "alice"), UserGroup(2000, "project-a"), UserGroup(2001, "project-b"))
LEFT = GROUP.replace("project-a:x:2000:alice,bob", "project-a:x:2000:bob")
MOUNTS = [{"source": f"/mnt/{number}", "target": f"/{number}"} for number in range(70)]
OWNERS = {f"/mnt/{number}": 5000 + number for number in range(70)}
MANY = "".join(f"g{number}:x:{number}:alice\n" for number in range(5000, 5070))


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileDirectory:
    """Return the accounts and groups of the manager, whose files may be changed."""
    files = directory_in(tmp_path)
    monkeypatch.setattr(planning, "Directory", lambda: files)
    return files


def answers(*names: str, **changes: Any) -> dict[str, Any]:
    hostvars = {name: {"__session_agent": result(agent_facts(name, **changes))} for name in names or ("agent1",)}
    return {"hostvars": hostvars}


def create(run: Run, variables: dict[str, Any] | None = None, *, check_mode: bool = False, **args: Any) -> Any:
    given = {"spec": dataclasses.asdict(spec(mounts=args.pop("mounts", []))), "pools": dataclasses.asdict(POOLS)}
    more = {"agents": ["agent1"], "limits": LIMITS, "groups": RULES, "record_path": "", **USER}
    return run(Plan, {**given, **more, **args}, variables or answers(), check_mode=check_mode)


def start_pending(run: Run, variables: dict[str, Any] | None = None, **args: Any) -> Any:
    more = {"agents": ["agent1"], "limits": LIMITS, "groups": RULES, **args}
    return run(Plan, {"queue": True, "pools": dataclasses.asdict(POOLS), **more}, variables or answers())


def waiting(number: int = 1, **changes: Any) -> Any:
    return requested(number, **{"user": "alice", "user_uid": 1001, "limited": True, **changes})


@pytest.mark.usefixtures("directory")
def test_a_new_session_has_the_groups_of_its_user(run: Run, queue: QueueStore) -> None:
    (start,) = create(run)["starts"]
    assert start["plan"]["groups"] == [dataclasses.asdict(group) for group in OF_ALICE]
    (entry,) = queue.entries()
    assert entry.plan
    assert entry.plan.groups == OF_ALICE


@pytest.mark.usefixtures("directory")
@pytest.mark.parametrize("args", [{"groups": {}}, {"user_uid": -1}, {"limits": {}}])
def test_without_the_rules_of_a_manager_sessions_have_no_groups(run: Run, args: dict[str, Any]) -> None:
    (start,) = create(run, **args)["starts"]
    assert start["plan"]["groups"] == []


def test_nothing_starts_for_an_account_that_is_gone(run: Run, queue: QueueStore, directory: FileDirectory) -> None:
    directory.passwd.write_text("")
    with pytest.raises(AnsibleActionFail, match=r"^groups: alice with uid 1001 is no account of this host"):
        create(run)
    queue.save(waiting())
    assert start_pending(run)["starts"] == []
    (entry,) = queue.entries()
    assert entry.record["pending"]["reason"].startswith("groups: alice with uid 1001 is no account")


def test_a_session_that_waited_has_the_groups_of_the_time_when_it_starts(
    run: Run, queue: QueueStore, directory: FileDirectory
) -> None:
    assert create(run, answers(allocated={"cpu": 8}))["starts"] == []
    directory.group.write_text(LEFT)
    (start,) = start_pending(run)["starts"]
    assert [group["number"] for group in start["plan"]["groups"]] == [1001, 2001]
    (entry,) = queue.entries()
    assert entry.plan
    assert entry.plan.group_numbers == (1001, 2001)


def test_what_operators_let_wait_has_no_groups(run: Run, queue: QueueStore, directory: FileDirectory) -> None:
    queue.save(waiting(limited=False))
    directory.passwd.write_text("")
    (start,) = start_pending(run)["starts"]
    assert start["plan"]["groups"] == []


@pytest.mark.parametrize("repair", ["", SESSION_ID])
@pytest.mark.parametrize("check_mode", [False, True])
def test_a_repair_reads_the_groups_again_and_records_them(
    run: Run, queue: QueueStore, directory: FileDirectory, repair: str, check_mode: bool
) -> None:
    made = dataclasses.replace(plan({"agent1": 1}), groups=OF_ALICE)
    queue.save(waiting(asked=spec(), id=SESSION_ID, state="RUNNING", plan=made))
    told = answers(sessions=[held_session(made, "agent1")])
    directory.group.write_text(LEFT)
    (start,) = create(run, told, repair=repair, check_mode=check_mode)["starts"]
    assert (start["existing"], [group["number"] for group in start["plan"]["groups"]]) == (True, [1001, 2001])
    (kept,) = queue.entries()
    expected = made if check_mode else dataclasses.replace(made, groups=(OF_ALICE[0], OF_ALICE[2]))
    assert (kept.state, kept.plan) == ("RUNNING", expected)


def test_a_repair_without_the_rules_of_a_manager_keeps_the_groups(run: Run, queue: QueueStore) -> None:
    made = dataclasses.replace(plan({"agent1": 1}), groups=OF_ALICE)
    queue.save(waiting(asked=spec(), id=SESSION_ID, state="RUNNING", plan=made))
    told = answers(sessions=[held_session(made, "agent1")])
    (start,) = create(run, told, repair=SESSION_ID, groups={})["starts"]
    assert start["plan"]["groups"] == [dataclasses.asdict(group) for group in OF_ALICE]


def test_of_too_many_groups_names_are_looked_up_only_of_owners_of_folders(run: Run, directory: FileDirectory) -> None:
    directory.group.write_text("".join(f"g{number}:x:{number}:alice\n" for number in range(2000, 67_000)))
    (start,) = create(run, answers(path_groups={"/mnt/1": 5001}), mounts=MOUNTS[:2])["starts"]
    assert start["plan"]["groups"] == [{"number": 5001, "name": "g5001"}]
    assert directory.looked_up == [5001]


def test_who_has_too_many_is_told_and_takes_no_room_of_others(
    run: Run, queue: QueueStore, directory: FileDirectory
) -> None:
    directory.group.write_text(f"{MANY}alice:x:1001:\n")
    room = answers(cpu=1, path_groups=OWNERS)
    sentence = "alice is in 70 groups that own a folder of the session, and a container has at most 64: ask an operator"
    with pytest.raises(AnsibleActionFail, match=f"^{sentence}"):
        create(run, room, mounts=MOUNTS)
    assert queue.entries() == []
    queue.save(waiting(1, asked=spec(name="session-1", mounts=MOUNTS)))
    queue.save(waiting(2, user="bob", user_uid=1002))
    assert "bob" in PASSWD
    assert [start["plan"]["name"] for start in start_pending(run, room)["starts"]] == ["session-2"]
    first = next(entry for entry in queue.entries() if entry.name == "session-1")
    assert first.state == "PENDING"
    assert first.record["pending"]["reason"].startswith(sentence)
