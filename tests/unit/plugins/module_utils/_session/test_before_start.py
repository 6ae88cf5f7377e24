"""The homes of containers: when they are made, copied from an image, kept, and replaced."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host.home_copy import HomeTooLargeError
from ansible_collections.backendai.cluster.plugins.module_utils._host.path_look import NoFolder
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.image_look import HomeFolder, ImageLook
from ansible_collections.backendai.cluster.plugins.module_utils._session import apply as slicing
from ansible_collections.backendai.cluster.plugins.module_utils._session import before_start, mount_sources
from ansible_collections.backendai.cluster.plugins.module_utils._session.apply import (
    ApplyRequest,
    InfinibandMissingError,
    apply_claimed,
)
from ansible_collections.backendai.cluster.plugins.module_utils._session.contents import RenderedFiles
from ansible_collections.backendai.cluster.plugins.module_utils._session.host_capabilities import HostCapabilities
from ansible_collections.backendai.cluster.plugins.module_utils._session.image_look import ImageRefusedError
from ansible_collections.backendai.cluster.plugins.module_utils._session.mount_sources import MountRefusedError
from tests.unit.builders import SESSION_ID, held, plan, public_keys
from tests.unit.fake_docker import FakeDocker

MADE = dataclasses.replace(
    plan({"agent1": 1}, mounts=[{"source": "/mnt/a", "target": "/home/work/a/b"}]), infiniband=True
)
CONTENTS = RenderedFiles("", "", {"main1": {}}, public_keys(MADE), ())
CONTAINER = "backendai-train-llm-main1"
ROOTS, USERS = HomeFolder(0, 0, 0o755), HomeFolder(MADE.uid, MADE.gid, 0o755)


@dataclasses.dataclass
class Agent:
    """An agent whose image has ``home`` with ``files`` empty files."""

    engine: FakeDocker
    store: Store
    home: HomeFolder | None = None
    files: int = 1
    leads: dict[str, str] = dataclasses.field(default_factory=dict)
    lacking: dict[str, str] = dataclasses.field(default_factory=dict)

    def apply(self, *, fresh_home: bool = False) -> None:
        client: Any = self.engine
        request = ApplyRequest(MADE, "agent1", "nonce-1", CONTENTS, "backendai-default", fresh_home=fresh_home)
        apply_claimed(client, self.store, request, check_mode=False)

    def look(self, *_asked: object) -> ImageLook:
        return ImageLook(home=self.home, leads=self.leads, lacking=self.lacking)

    @contextlib.contextmanager
    def copy(self, *_asked: object) -> Iterator[Iterator[bytes]]:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            folder = tarfile.TarInfo("work")
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            for member in (folder, *(tarfile.TarInfo(f"work/{number}") for number in range(self.files))):
                archive.addfile(member)
        yield iter([packed.getvalue()])

    @property
    def folder(self) -> Path:
        return self.store.homes.home(SESSION_ID, "main1")

    @property
    def names(self) -> list[str]:
        """What is in the home, sorted."""
        return sorted(path.name for path in self.folder.iterdir())


@pytest.fixture
def agent(engine: FakeDocker, store: Store, monkeypatch: pytest.MonkeyPatch) -> Agent:
    """Return an agent that has claimed a session with InfiniBand and a mount below its home."""
    store.save(held(MADE))
    made = Agent(engine, store)
    monkeypatch.setattr(slicing, "read_host", lambda _client: HostCapabilities(infiniband=("/dev/infiniband/uverbs0",)))
    monkeypatch.setattr(slicing, "look_at_image", made.look)
    monkeypatch.setattr(before_start, "look_at_image", made.look)
    monkeypatch.setattr(before_start, "copy_of_home", made.copy)
    return made


def test_a_home_is_made_and_copied_where_the_image_has_one_that_its_user_may_not_write(agent: Agent) -> None:
    agent.apply()
    assert agent.names == ["a"]
    agent.home = ROOTS
    agent.apply(fresh_home=True)
    assert agent.names == ["0", "a"]
    assert agent.folder.stat().st_uid == MADE.uid


def test_a_home_that_the_image_keeps_is_not_made_and_is_copied_once_it_no_longer_does(agent: Agent) -> None:
    agent.home = USERS
    agent.apply()
    assert not agent.folder.exists()
    assert "/home/work" not in {mount["Target"] for mount in agent.engine.asked[-1]["HostConfig"]["Mounts"]}
    # Such as after its user has left the group of that folder.
    agent.home = ROOTS
    agent.engine.made.clear()
    agent.apply()
    assert agent.names == ["0", "a"]
    # And back.
    agent.home = USERS
    agent.apply(fresh_home=True)
    assert not agent.folder.exists()


def test_folders_for_mounts_are_made_where_links_of_the_image_lead(agent: Agent) -> None:
    agent.leads = {"/home/work": "/srv/work", "/home/work/a/b": "/srv/work/c/d"}
    agent.apply()
    assert agent.names == ["c"]
    assert {path.stat().st_uid for path in agent.folder.rglob("*")} == {MADE.uid}


def test_folders_for_mounts_are_made_again_in_the_home_that_a_stopped_container_has(agent: Agent) -> None:
    agent.apply()
    (container,) = agent.engine.made
    for mounts, names in ([], ["moved"]), ([{"Source": str(agent.folder), "Target": "/home/work"}], ["a", "moved"]):
        container.update(State="exited", HostConfig={"Mounts": mounts})
        if not mounts:
            (agent.folder / "a").rename(agent.folder / "moved")
        agent.apply()
        assert (agent.names, container["State"]) == (names, "running")


def test_an_image_that_keeps_its_home_without_the_folders_for_mounts_is_refused(agent: Agent) -> None:
    agent.lacking = {"/home/work/a/b": "/home/work/a"}
    agent.home = USERS
    with pytest.raises(ImageRefusedError, match=r"build the image with the line RUN mkdir -p /home/work/a,"):
        agent.apply()
    assert agent.engine.calls == []
    agent.home = ROOTS
    agent.apply()


def lose_infiniband(_agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slicing, "read_host", lambda _client: HostCapabilities(infiniband=()))


def lose_mount(_agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mount_sources, "look", lambda places: dict.fromkeys(places, NoFolder.SILENT))


def grow_home(agent: Agent, _monkeypatch: pytest.MonkeyPatch) -> None:
    agent.home, agent.files = ROOTS, 2001


@pytest.mark.parametrize(
    ("prevent", "error"),
    [
        (lose_infiniband, InfinibandMissingError),
        (lose_mount, MountRefusedError),
        (grow_home, HomeTooLargeError),
    ],
)
def test_a_repair_with_a_fresh_home_that_is_refused_changes_nothing(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, prevent: Callable[..., None], error: type[Exception]
) -> None:
    agent.apply()
    (agent.folder / "precious").touch()
    with monkeypatch.context() as patch:
        prevent(agent, patch)
        agent.engine.calls.clear()
        with pytest.raises(error):
            agent.apply(fresh_home=True)
    assert agent.names == ["a", "precious"]
    assert agent.engine.calls == []
    agent.home = None
    agent.apply(fresh_home=True)
    assert agent.names == ["a"]


def test_a_home_is_replaced_when_nobody_uses_it_any_more(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    agent.apply()
    (agent.folder / "precious").touch()
    seen = []

    def watch(name: str) -> None:
        call = getattr(agent.engine, name)

        def watched(*arguments: Any, **options: Any) -> Any:
            seen.append((name, agent.names))
            return call(*arguments, **options)

        monkeypatch.setattr(agent.engine, name, watched)

    watch("remove_container")
    watch("create_container_from_config")
    agent.apply(fresh_home=True)
    assert seen[0] == ("remove_container", ["a", "precious"])
    assert seen[-1] == ("create_container_from_config", ["a"])
    assert agent.engine.calls[-2:] == [f"create {CONTAINER}", f"start id-{CONTAINER}"]
