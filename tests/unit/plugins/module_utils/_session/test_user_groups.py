"""The groups of a session on an agent: which are refused, and what containers get."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker import labels
from ansible_collections.backendai.cluster.plugins.module_utils._docker.images import Image
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.image_look import HomeFolder, ImageLook
from ansible_collections.backendai.cluster.plugins.module_utils._model.plain_data import DataError
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.module_utils._model.session import UserGroup
from ansible_collections.backendai.cluster.plugins.module_utils._session import apply as slicing
from ansible_collections.backendai.cluster.plugins.module_utils._session import user_groups
from ansible_collections.backendai.cluster.plugins.module_utils._session.admission import find_problem
from ansible_collections.backendai.cluster.plugins.module_utils._session.apply import ApplyRequest, apply_claimed
from ansible_collections.backendai.cluster.plugins.module_utils._session.claim import ClaimRequest, claim
from ansible_collections.backendai.cluster.plugins.module_utils._session.contents import RenderedFiles
from ansible_collections.backendai.cluster.plugins.module_utils._session.facts import AgentSettings
from ansible_collections.backendai.cluster.plugins.module_utils._session.user_groups import (
    GroupRefusedError,
    judge_group_files,
    judge_groups,
)
from tests.unit.builders import SESSION_ID, held, plan, public_keys

GROUPS = (UserGroup(2000, "project-a"), UserGroup(2001))
MADE = dataclasses.replace(plan({"agent1": 1}), groups=GROUPS)
IMAGE = MADE.images[0]
NOWHERE = "unix:///absent"
NULL = os.makedev(1, 3)
NUMERIC = "root:x:0:\n2000:x:0:\n"


@pytest.fixture
def devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of device nodes, which is that of the agent."""
    folder = tmp_path / "devices"
    (folder / "inner").mkdir(parents=True)
    monkeypatch.setattr(user_groups, "DEVICES", folder)
    return folder


def make_node(path: Path, group: int, kind: int = stat.S_IFCHR) -> None:
    os.mknod(path, kind | 0o660, NULL)
    os.chown(path, 0, group)


def contents(made: SessionPlan = MADE) -> RenderedFiles:
    environments: dict[str, dict[str, str]] = {kernel.hostname: {} for kernel in made.kernels}
    return RenderedFiles("127.0.0.1 localhost\n", "Host *\n", environments, public_keys(made), ())


def apply(engine: Any, store: Store, made: SessionPlan = MADE) -> None:
    apply_claimed(
        engine, store, ApplyRequest(made, "agent1", "nonce-1", contents(made), "backendai-default"), check_mode=False
    )


@pytest.mark.parametrize("where", ["node", "inner/node"])
@pytest.mark.parametrize("kind", [stat.S_IFCHR, stat.S_IFBLK])
def test_a_group_that_owns_a_device_of_the_agent_is_refused(devices: Path, where: str, kind: int) -> None:
    make_node(devices / "other", 6)
    judge_groups(MADE, "agent1", NOWHERE)
    make_node(devices / where, 2000, kind)
    with pytest.raises(GroupRefusedError) as refused:
        judge_groups(MADE, "agent1", NOWHERE)
    assert str(refused.value) == (
        f"groups: on agent1 the group 2000 (project-a) owns the device {devices / where}: leave it out of groups in the"
        " policy, or give it another number there"
    )


def test_what_is_no_device_and_what_is_mounted_there_refuses_nothing(devices: Path) -> None:
    (devices / "file").touch()
    os.mkfifo(devices / "fifo")
    for name in ("file", "fifo", "inner"):
        os.chown(devices / name, 0, 2000)
    # Links are not followed, and /dev/shm is another file system, of users.
    (devices / "link").symlink_to("/dev")
    judge_groups(MADE, "agent1", NOWHERE)


def test_the_devices_of_this_machine_are_looked_at() -> None:
    nodes = (path for path in Path("/dev").iterdir() if path.is_char_device() and not path.is_symlink())
    owner = next((node.stat().st_gid for node in nodes if node.stat().st_gid), 0)
    if owner:
        with pytest.raises(GroupRefusedError, match="owns the device /dev/"):
            judge_groups(dataclasses.replace(MADE, groups=(UserGroup(owner),)), "agent1", NOWHERE)
    judge_groups(dataclasses.replace(MADE, groups=(UserGroup(1999999999),)), "agent1", NOWHERE)


@pytest.mark.usefixtures("devices")
def test_the_group_of_the_engines_socket_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as engine:
        engine.bind(str(path))
        os.chown(path, 0, 2001)
        with pytest.raises(GroupRefusedError) as refused:
            judge_groups(MADE, "agent1", f"unix://{path}")
    assert str(refused.value) == (
        f"groups: on agent1 the group 2001 owns {path}, which controls its engine: leave it out of groups in the"
        " policy, or give it another number there"
    )


def test_an_agent_that_gives_the_groups_to_nobody_refuses_none(devices: Path) -> None:
    make_node(devices / "node", 2000)
    judge_groups(MADE, "agent2", NOWHERE)


def test_an_image_whose_names_read_as_numbers_is_refused_when_groups_are_given() -> None:
    image = Image("", {}, look=ImageLook(group=NUMERIC))
    judge_group_files(dataclasses.replace(MADE, groups=()), {IMAGE: image})
    with pytest.raises(GroupRefusedError) as refused:
        judge_group_files(MADE, {IMAGE: image})
    assert str(refused.value) == (
        f"session_image: /etc/group of {IMAGE!r} has names that read as numbers, and the engine would prefer them"
        " to the user's groups: remove these lines from the image, or set groups: [] in the policy"
    )


def test_a_claim_with_such_a_group_leaves_nothing(engine: Any, store: Store, devices: Path) -> None:
    make_node(devices / "node", 2000)
    settings = AgentSettings("default", True, (), {}, 1, 0, "", False, docker_host=NOWHERE)
    # No other run has been faster: nobody tries that again.
    with pytest.raises(GroupRefusedError, match=r"^groups: on agent1 the group 2000 \(project-a\) owns the device"):
        claim(engine, store, settings, ClaimRequest(MADE, "agent1", "nonce-1", 600), check_mode=False)
    assert (store.held_ids(), engine.calls) == ([], [])


@pytest.mark.parametrize("cause", ["device", "image"])
def test_nothing_is_created_with_a_group_that_is_refused(
    engine: Any, store: Store, devices: Path, monkeypatch: pytest.MonkeyPatch, cause: str
) -> None:
    store.save(held(dataclasses.replace(MADE, groups=()), expires_at=9e12))
    if cause == "device":
        make_node(devices / "node", 2000)
    else:
        monkeypatch.setattr(slicing, "look_at_image", lambda *_which: ImageLook(group=NUMERIC))
    with pytest.raises(GroupRefusedError):
        apply(engine, store)
    assert engine.calls == []
    assert not store.kernel_folder(SESSION_ID, "main1").exists()


@pytest.mark.usefixtures("devices")
def test_containers_get_the_numbers_and_their_group_file_the_names(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slicing, "look_at_image", lambda *_which: ImageLook(group="root:x:0:\nold:x:2001:\n"))
    store.save(held(MADE, expires_at=9e12))
    apply(engine, store)
    (asked,) = engine.asked
    assert asked["HostConfig"]["GroupAdd"] == ["2000", "2001"]
    assert json.loads(engine.made[0]["Labels"][labels.GROUPS]) == [2000, 2001]
    text = (store.kernel_folder(SESSION_ID, "main1") / "group").read_text()
    assert text == "root:x:0:\nold:x:2001:\ntty:x:5:\nwork:x:1000:\nproject-a:x:2000:\n"


@pytest.mark.usefixtures("devices")
@pytest.mark.parametrize(("groups", "binds"), [(GROUPS, False), ((), True)])
def test_a_home_of_the_image_that_a_group_may_write_stays_the_images(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch, groups: tuple[UserGroup, ...], binds: bool
) -> None:
    monkeypatch.setattr(slicing, "look_at_image", lambda *_which: ImageLook(home=HomeFolder(0, 2000, 0o770)))
    monkeypatch.setattr(slicing, "make_folders", lambda *_which: None)
    monkeypatch.setattr(slicing, "prepare_start", lambda *_which: None)
    made = dataclasses.replace(MADE, groups=groups)
    store.save(held(made, expires_at=9e12))
    apply(engine, store, made)
    (asked,) = engine.asked
    assert ("/home/work" in [mount["Target"] for mount in asked["HostConfig"]["Mounts"]]) is binds


@pytest.mark.usefixtures("devices")
@pytest.mark.parametrize(("state", "calls"), [("running", 0), ("exited", 2)])
def test_a_repair_gives_other_groups_to_containers_that_do_not_run(
    engine: Any, store: Store, state: str, calls: int
) -> None:
    store.save(held(MADE))
    apply(engine, store)
    engine.calls.clear()
    engine.made[0]["State"] = state
    apply(engine, store, dataclasses.replace(MADE, groups=GROUPS[:1]))
    assert len([call for call in engine.calls if call.startswith(("remove", "create"))]) == calls
    stored = store.session(SESSION_ID)
    assert stored
    assert stored.plan.group_numbers == (2000,)


def test_a_container_with_a_group_that_its_plan_has_no_more_does_not_begin(store: Store) -> None:
    inspected = {"State": {"Pid": os.getpid()}, "HostConfig": {"GroupAdd": ["2000", "2001", "2002"]}}
    assert find_problem(store, held(dataclasses.replace(MADE, groups=GROUPS[:1])), inspected) == (
        "has the group 2001, 2002, which its plan has no more: repair_session replaces it"
    )


@pytest.mark.parametrize(
    "groups",
    [
        [{"number": 0, "name": "root"}],
        [{"number": -1, "name": ""}],
        [{"number": 1 << 31, "name": ""}],
        [{"number": 2000, "name": "a\nb"}],
        [{"number": 2000, "name": "x" * 129}],
        [{"number": "2000", "name": ""}],
        [{"number": True, "name": ""}],
        [{"number": 2000, "name": "a", "more": 1}],
        [{"name": "a"}],
        [{"number": 2000, "name": "a"}, {"number": 2000, "name": "b"}],
        [{"number": number, "name": ""} for number in range(2000, 2065)],
        {"2000": "a"},
    ],
)
def test_a_plan_with_groups_that_nobody_can_have_is_refused(groups: Any) -> None:
    with pytest.raises(DataError, match=r"^the plan of a session is damaged: "):
        SessionPlan.from_dict({**MADE.to_dict(), "groups": groups})


def test_a_plan_has_up_to_64_groups() -> None:
    data = [{"number": number, "name": ""} for number in range(2000, 2064)]
    assert len(SessionPlan.from_dict({**MADE.to_dict(), "groups": data}).groups) == 64
