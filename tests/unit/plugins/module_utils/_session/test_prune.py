"""Images of an agent that nothing needs are removed, and all others stay."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest
from docker.errors import APIError, ImageNotFound
from requests.exceptions import ReadTimeout

from ansible_collections.backendai.cluster.plugins.module_utils._host.image_records import ImageRecords
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._session import prune
from ansible_collections.backendai.cluster.plugins.module_utils._session.end import remove_containers
from ansible_collections.backendai.cluster.plugins.module_utils._session.prune import (
    DAY,
    Pruned,
    PruneRules,
    RemovedImage,
    UnknownNeedError,
    prune_images,
)
from tests.unit.builders import IMAGE, SESSION_ID, held, own_labels, plan
from tests.unit.fake_docker import FakeDocker

NOW = 1_800_000_000.0
GB = 10**9


class Engine:
    """An engine with images of one gigabyte each, on a disk of ten."""

    def __init__(self) -> None:
        self.there: dict[str, dict[str, Any]] = {}
        self.running: list[dict[str, Any]] = []
        self.locked = self.slow = ""
        self.removed: list[str] = []

    def add(self, name: str, *others: str, digest: str = "", tagged: str = "0001-01-01T00:00:00Z") -> str:
        """Add an image with these names, and return its id."""
        image_id = f"sha256:{len(self.there) + 1}"
        self.there[image_id] = {
            "Id": image_id,
            "Config": {},
            "RepoTags": [name, *others] if name else [],
            "RepoDigests": [digest] if digest else [],
            "Size": GB,
            "Metadata": {"LastTagTime": tagged},
        }
        return image_id

    @property
    def names(self) -> list[str]:
        return [name for image in self.there.values() for name in image["RepoTags"] + image["RepoDigests"]]

    def info(self) -> dict[str, Any]:
        return {"DockerRootDir": "/var/lib/docker"}

    def images(self, **_filters: Any) -> list[dict[str, Any]]:
        return [{"Id": image_id, "Size": image["Size"]} for image_id, image in self.there.items()]

    def containers(self, **_options: Any) -> list[dict[str, Any]]:
        return self.running

    def inspect_image(self, name: str) -> dict[str, Any]:
        for image_id, image in self.there.items():
            if name in (image_id, *image["RepoTags"], *image["RepoDigests"]):
                return image
        raise ImageNotFound(f"No such image: {name}")

    def remove_image(self, name: str) -> None:
        image = self.inspect_image(name)
        if self.slow in image["RepoTags"]:
            raise ReadTimeout("read timed out")
        if self.locked in image["RepoTags"]:
            raise APIError("409", explanation="conflict: it is in use")
        self.removed.append(name)
        names = [each for each in image["RepoTags"] if each != name]
        image["RepoTags"], image["RepoDigests"] = names, image["RepoDigests"] if names else []
        if not names:
            del self.there[image["Id"]]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    """Return an empty engine."""
    made = Engine()
    monkeypatch.setattr(prune, "free_bytes", lambda _folder: (10 - len(made.there)) * GB)
    return made


def came(engine: Engine, store: Store, name: str, days: float, **image: str) -> str:
    """Add an image that came with a session and was not needed for that long, and return its id."""
    image_id = engine.add(name, **image)
    ImageRecords(store.images_folder).add(image_id, f"docker.io/{name}" if name else f"docker.io/{image['digest']}")
    needed(store, image_id, days)
    return image_id


def needed(store: Store, image_id: str, days: float) -> None:
    """Let an image be needed last so many days ago."""
    records = ImageRecords(store.images_folder)
    records.touch([image_id])
    for path in store.images_folder.glob("*.json"):
        if f'"{image_id}"' in path.read_text():
            os.utime(path, (NOW - days * DAY, NOW - days * DAY))


def pruned(engine: Any, store: Store, *, check_mode: bool = False, **rules: Any) -> Pruned:
    return prune_images(engine, store, PruneRules(**{"unused_days": 30, **rules}), NOW, check_mode=check_mode)


def test_images_go_by_age(engine: Engine, store: Store) -> None:
    came(engine, store, "lab/old:1", 31)
    came(engine, store, "lab/new:1", 29)
    assert pruned(engine, store) == Pruned("/var/lib/docker", 8 * GB, 9 * GB, [RemovedImage("lab/old:1", GB, 31)])
    assert engine.names == ["lab/new:1"]
    assert len([*store.images_folder.glob("*.json")]) == 1


def test_images_go_until_there_is_room_the_longest_unneeded_first(engine: Engine, store: Store) -> None:
    for name, days in (("lab/b:1", 2), ("lab/a:1", 3), ("lab/c:1", 1)):
        came(engine, store, name, days)
    result = pruned(engine, store, unused_days=0, free_bytes=9 * GB)
    assert [image.name for image in result.removed] == ["lab/a:1", "lab/b:1"]
    assert (result.free_before, result.free) == (7 * GB, 9 * GB)


def test_an_image_that_cannot_be_read_stays_and_others_go(engine: Engine, store: Store) -> None:
    odd = came(engine, store, "lab/odd:1", 40)
    came(engine, store, "lab/old:1", 40)
    engine.there[odd]["Config"] = None
    assert [image.name for image in pruned(engine, store, needed=["lab/odd:1"]).removed] == ["lab/old:1"]
    assert engine.names == ["lab/odd:1"]


def test_without_a_rule_nothing_goes(engine: Engine, store: Store) -> None:
    came(engine, store, "lab/old:1", 1000)
    assert pruned(engine, store, unused_days=0).removed == []


def test_check_mode_changes_nothing(engine: Engine, store: Store) -> None:
    came(engine, store, "lab/old:1", 31)
    ImageRecords(store.images_folder).touch(["sha256:gone"])
    before = sorted((path.name, path.stat().st_mtime) for path in store.images_folder.iterdir())
    result = pruned(engine, store, check_mode=True)
    assert (len(result.removed), result.free, engine.names) == (1, 10 * GB, ["lab/old:1"])
    assert sorted((path.name, path.stat().st_mtime) for path in store.images_folder.iterdir()) == before


def test_what_something_needs_stays(engine: Engine, store: Store) -> None:
    store.save(held(plan({"agent1": 1})))
    came(engine, store, IMAGE, 99)
    came(engine, store, "lab/queued:1", 99)
    stopped = came(engine, store, "lab/stopped:1", 99)
    engine.running = [{"ImageID": stopped, "State": "exited"}]
    came(engine, store, "lab/looked-for:1", 0.02)
    result = pruned(engine, store, free_bytes=100 * GB, needed=["docker.io/lab/queued:1", "lab/queued:1"])
    assert (result.removed, engine.removed) == ([], [])


def test_image_of_an_agent_that_a_session_has_elsewhere_stays(engine: Engine, store: Store) -> None:
    """A repair may put the session's container of another agent there."""
    store.save(held(plan({"agent1": 1, "agent2": 1}), "agent2"))
    came(engine, store, IMAGE, 99)
    assert pruned(engine, store).removed == []


def test_session_that_began_meanwhile_keeps_its_image(
    engine: Engine, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    came(engine, store, IMAGE, 99)
    candidates = prune._candidates

    def begin(*looked: Any) -> Any:
        found = [*candidates(*looked)]
        store.save(held(plan({"agent1": 1})))
        return found

    monkeypatch.setattr(prune, "_candidates", begin)
    assert pruned(engine, store).removed == []


@pytest.mark.parametrize(
    "make",
    [
        lambda engine, _store: engine.add("lab/own:1", tagged="2020-01-01T00:00:00.5+02:00"),
        lambda engine, store: needed(store, engine.add("lab/own:1"), 99),
        lambda engine, store: engine.there[came(engine, store, "lab/own:1", 99)]["RepoTags"].append("mine:1"),
        lambda engine, store: engine.there[came(engine, store, "lab/own:1", 99)]["RepoDigests"].append("mine@sha256:1"),
    ],
    ids=["loaded", "used by sessions", "with a tag of others", "with a digest of others"],
)
def test_image_that_did_not_come_with_sessions_stays_unless_the_operator_says_so(
    engine: Engine, store: Store, make: Any
) -> None:
    make(engine, store)
    assert pruned(engine, store, free_bytes=100 * GB).removed == []
    assert [image.name for image in pruned(engine, store, others=True).removed] == ["lab/own:1"]
    assert engine.there == {}


def test_image_of_which_it_is_not_known_when_it_came_stays(engine: Engine, store: Store) -> None:
    engine.add("lab/own:1")
    assert pruned(engine, store, others=True, free_bytes=100 * GB).removed == []


def test_image_of_others_is_as_new_as_its_last_tag_or_use(engine: Engine, store: Store) -> None:
    needed(store, engine.add("lab/used:1", tagged="2020-01-01T00:00:00Z"), 2)
    engine.add("lab/unused:1", tagged="2020-01-01T00:00:00Z")
    assert [image.name for image in pruned(engine, store, others=True).removed] == ["lab/unused:1"]


def test_image_without_a_tag_goes_by_its_digest(engine: Engine, store: Store) -> None:
    came(engine, store, "", 40, digest="lab/python@sha256:a")
    assert [image.name for image in pruned(engine, store).removed] == ["lab/python@sha256:a"]


def test_what_the_engine_keeps_is_said_and_the_others_go(engine: Engine, store: Store) -> None:
    came(engine, store, "lab/base:1", 50)
    came(engine, store, "lab/old:1", 40)
    engine.locked = "lab/base:1"
    result = pruned(engine, store)
    assert result.kept == ["lab/base:1: the engine keeps it (conflict: it is in use)."]
    assert [image.name for image in result.removed] == ["lab/old:1"]


def test_an_image_whose_removal_takes_too_long_is_kept_and_the_others_go(engine: Engine, store: Store) -> None:
    came(engine, store, "lab/large:1", 50)
    came(engine, store, "lab/old:1", 40)
    engine.slow = "lab/large:1"
    result = pruned(engine, store)
    assert result.kept == ["lab/large:1: the engine keeps it (read timed out)."]
    assert [image.name for image in result.removed] == ["lab/old:1"]


def test_nothing_is_removed_if_a_session_cannot_be_read(engine: Engine, store: Store) -> None:
    came(engine, store, "lab/old:1", 40)
    folder = store.folder(SESSION_ID)
    folder.mkdir()
    (folder / "session.json").write_text("{")
    with pytest.raises(UnknownNeedError, match=r"^no image is removed, because it is not known .* is damaged"):
        pruned(engine, store)
    assert engine.names == ["lab/old:1"]


def test_session_needs_its_image_until_it_ends(store: Store) -> None:
    engine: Any = FakeDocker()
    bears = own_labels("main1")
    store.container_ids(SESSION_ID).folder.mkdir(parents=True)
    store.container_ids(SESSION_ID).record("main1", "x")
    engine.made = [{"Id": "x", "Names": ["/x"], "Labels": bears, "State": "exited", "ImageID": "sha256:1"}]
    remove_containers(engine, store, SESSION_ID, None, None)
    known = ImageRecords(store.images_folder).find("sha256:1")
    assert known is not None
    assert time.time() - known.needed_at < 60
