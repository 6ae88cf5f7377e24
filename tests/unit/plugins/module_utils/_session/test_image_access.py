"""Images that were pulled with a password: who may use them, asked of an engine with one registry."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from docker.errors import APIError
from requests import Response
from requests.exceptions import ReadTimeout

from ansible_collections.backendai.cluster.plugins.module_utils._host.registry_records import (
    ALLOWED_SECONDS,
    RegistryRecords,
)
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.images import Credential
from ansible_collections.backendai.cluster.plugins.module_utils._session import image_access
from ansible_collections.backendai.cluster.plugins.module_utils._session.image_access import (
    ImageAccess,
    ImageAccessError,
    require_image_access,
)
from tests.unit.builders import DIGEST, IMAGE
from tests.unit.fake_docker import FakeDocker

HOST = "registry.test:5000"
REPOSITORY = f"{HOST}/team/private"
NAME = f"{REPOSITORY}:1"
BY_DIGEST = f"{REPOSITORY}@{DIGEST}"
READER = Credential("reader", "hunter2")
LOGIN = {"username": "reader", "password": "hunter2"}


class Engine(FakeDocker):
    """An engine that finds images by their id and digests, too. ``asked_for`` are the questions to a registry.

    ``status`` is the registry's answer to the reader, and to everybody if the registry is ``public``. It does not have
    the ``missing`` references, and takes ``seconds`` for each answer.
    """

    def __init__(self, images: dict[str, dict[str, Any]]) -> None:
        super().__init__(images)
        self.asked_for: list[tuple[str, dict[str, Any]]] = []
        self.public, self.status, self.missing = False, 200, set[str]()
        self.seconds, self.timeout = 0.0, 60.0

    def inspect_image(self, name: str) -> dict[str, Any]:
        for image in self.images.values():
            image_id = str(image["Id"])
            ids = [image_id, image_id.partition(":")[2][:12]]
            if name in [*ids, *image.get("RepoDigests", []), *image.get("RepoTags", [])]:
                return image
        return super().inspect_image(name)

    def inspect_distribution(self, name: str, auth_config: dict[str, Any]) -> dict[str, Any]:
        self.asked_for.append((name, auth_config))
        time.sleep(min(self.seconds, self.timeout))
        if self.seconds > self.timeout:
            raise ReadTimeout("Read timed out")
        response = Response()
        known = self.public or {key: auth_config.get(key) for key in LOGIN} == LOGIN
        response.status_code = (404 if name in self.missing else self.status) if known else 401
        if response.status_code != 200:
            raise APIError("", response, f"answer {response.status_code}")
        return {}


@pytest.fixture
def engine() -> Any:
    """Return an engine that has the private image and a local one."""
    content: dict[str, Any] = {"Config": {"Env": []}}
    private = {"Id": f"sha256:{'1' * 64}", "RepoTags": [NAME], "RepoDigests": [BY_DIGEST]}
    local = {"Id": f"sha256:{'2' * 64}", "RepoTags": [IMAGE]}
    return Engine({NAME: {**private, **content}, IMAGE: {**local, **content}})


@pytest.fixture
def records(store: Store) -> RegistryRecords:
    """Return the records of an agent that pulled the image with a password."""
    records = RegistryRecords(store.registries_folder)
    records.begin_private(REPOSITORY).keep()
    return records


@pytest.fixture(autouse=True)
def docker_login(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Let root have a login on this agent; return its file."""
    path = tmp_path / "docker" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"auths": {HOST: {"auth": "cmVhZGVyOmh1bnRlcjI="}}}))
    monkeypatch.setenv("DOCKER_CONFIG", str(path.parent))
    return path


def access(login: Credential | None = READER, **settings: Any) -> ImageAccess:
    return ImageAccess({HOST: login} if login else {}, **settings)


def refusal(engine: Any, store: Store, access: ImageAccess, name: str = NAME) -> str:
    """Return why a session may not use an image."""
    with pytest.raises(ImageAccessError) as refused:
        require_image_access(engine, store, access, [name])
    return str(refused.value)


# ---- private images


@pytest.mark.usefixtures("records")
def test_private_image_is_for_the_password(engine: Any, store: Store) -> None:
    require_image_access(engine, store, access(), [NAME])
    assert engine.asked_for[-1] == (BY_DIGEST, LOGIN)


@pytest.mark.usefixtures("records")
def test_private_image_is_not_for_users_without_a_password(engine: Any, store: Store) -> None:
    assert refusal(engine, store, access(None)) == (
        f"session_image: {NAME!r} is private, and its registry {HOST} does not let this session read it without"
        f" a password: add {HOST} to session_registries"
    )


@pytest.mark.usefixtures("records")
def test_private_image_is_not_for_the_wrong_password(engine: Any, store: Store) -> None:
    sentence = refusal(engine, store, access(Credential("reader", "wrong-horse")), NAME)
    assert sentence == (
        f"session_image: {NAME!r} is private, and its registry {HOST} does not let the user 'reader' read it:"
        f" correct session_registries.{HOST}"
    )


@pytest.mark.parametrize("kind", ["digest", "tag and digest"])
@pytest.mark.usefixtures("records")
def test_private_image_is_private_under_all_its_names(engine: Any, store: Store, kind: str) -> None:
    names = {"digest": f"{REPOSITORY}@{DIGEST}", "tag and digest": f"{NAME}@{DIGEST}"}
    engine.images[names["tag and digest"]] = engine.images[NAME]
    assert "is private" in refusal(engine, store, access(None), names[kind])
    require_image_access(engine, store, access(), [names[kind]])
    assert engine.asked_for[-1] == (BY_DIGEST, LOGIN)


@pytest.mark.parametrize("image_id", [f"sha256:{'1' * 64}", "1" * 12])
@pytest.mark.usefixtures("records")
def test_private_image_is_not_used_by_its_id(engine: Any, store: Store, image_id: str) -> None:
    for login in (None, READER):
        assert refusal(engine, store, access(login), image_id) == (
            f"session_image: {image_id!r} is the id of a private image: specify the image by its name"
        )
    assert engine.asked_for == []


@pytest.mark.usefixtures("records")
def test_image_that_has_a_public_name_is_public(engine: Any, store: Store) -> None:
    engine.images[NAME]["RepoTags"].append("python:3")
    for public in ("python:3", "1" * 12):
        require_image_access(engine, store, access(None), [public])
    assert engine.asked_for == []
    assert "is private" in refusal(engine, store, access(None), NAME)


@pytest.mark.usefixtures("records")
def test_image_that_was_loaded_under_a_private_name_is_not_private(engine: Any, store: Store) -> None:
    del engine.images[NAME]["RepoDigests"]
    require_image_access(engine, store, access(None), [NAME])
    assert engine.asked_for == []


def test_image_that_was_pulled_without_a_password_is_not_asked_about(engine: Any, store: Store) -> None:
    require_image_access(engine, store, access(None), [NAME, IMAGE])
    assert (engine.asked_for, store.registries_folder.exists()) == ([], False)


@pytest.mark.usefixtures("records")
def test_local_and_missing_images_are_not_asked_about(engine: Any, store: Store) -> None:
    require_image_access(engine, store, access(None), [IMAGE, "missing:1"])
    assert engine.asked_for == []


@pytest.mark.usefixtures("records")
def test_every_image_of_a_session_is_asked_about(engine: Any, store: Store) -> None:
    with pytest.raises(ImageAccessError):
        require_image_access(engine, store, access(None), [IMAGE, NAME])


@pytest.mark.usefixtures("records")
def test_repository_that_became_public_is_for_everybody(engine: Any, store: Store) -> None:
    engine.public = True
    require_image_access(engine, store, access(None), [NAME])


# ---- a registry that does not answer


def test_permission_holds_for_its_time_without_the_registry(
    engine: Any,
    store: Store,
    records: RegistryRecords,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    require_image_access(engine, store, access(), [NAME])
    asked = len(engine.asked_for)
    engine.status, engine.public = 503, True
    require_image_access(engine, store, access(), [NAME])
    assert len(engine.asked_for) == asked
    assert "is private" in refusal(engine, store, access(None), NAME)
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    monkeypatch.setattr(time, "clock_gettime", lambda _clock: now + ALLOWED_SECONDS + 1)
    assert refusal(engine, store, access()) == (
        f"session_image: {NAME!r} is private, and whether this session may use it is not known: its registry"
        f" {HOST} cannot be asked (answer 503); try again later"
    )
    assert not records.is_allowed(REPOSITORY, LOGIN)


def test_all_images_of_a_session_share_a_time_limit(engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_access, "SECONDS", 1)
    engine.public = True
    engine.seconds = 0.4
    names = [f"{HOST}/team/{number}:1" for number in range(5)]
    engine.images |= {name: {"Id": name, "RepoTags": [name], "Config": {}} for name in names}
    began = time.monotonic()
    with pytest.raises(ImageAccessError, match=r"does not answer in time; try again later$"):
        require_image_access(engine, store, access(registry_check=["*"]), names)
    assert time.monotonic() - began >= 1


@pytest.mark.usefixtures("records")
def test_refusals_are_not_remembered(engine: Any, store: Store) -> None:
    engine.status = 401
    assert "does not let" in refusal(engine, store, access(), NAME)
    engine.status = 200
    require_image_access(engine, store, access(), [NAME])


# ---- the settings of the agent


@pytest.mark.parametrize("checked", [["registry.test:*"], ["*"], [HOST], ["REGISTRY.*"]])
def test_images_of_checked_registries_are_always_asked_about(engine: Any, store: Store, checked: list[str]) -> None:
    assert "is private" in refusal(engine, store, access(None, registry_check=checked), NAME)
    require_image_access(engine, store, access(registry_check=checked), [NAME])


@pytest.mark.parametrize("checked", [["docker.io"], ["*"], ["DOCKER.IO"]])
def test_local_image_is_asked_about_if_docker_hub_is_checked(engine: Any, store: Store, checked: list[str]) -> None:
    assert "its registry docker.io does not let" in refusal(engine, store, access(None, registry_check=checked), IMAGE)


@pytest.mark.parametrize("checked", [["example.com"], ["registry.test"], []])
def test_images_of_other_registries_are_not_asked_about(engine: Any, store: Store, checked: list[str]) -> None:
    require_image_access(engine, store, access(None, registry_check=checked), [NAME])
    assert engine.asked_for == []


@pytest.mark.usefixtures("records")
def test_login_of_the_agent_is_used_only_if_allowed(engine: Any, store: Store) -> None:
    assert "without a password" in refusal(engine, store, access(None), NAME)
    assert [login for _name, login in engine.asked_for] == [{}, {}]
    require_image_access(engine, store, access(None, allow_registry_login=True), [NAME])
    # The permission of the agent's login is not that of users.
    assert "without a password" in refusal(engine, store, access(None), NAME)


@pytest.mark.usefixtures("records")
def test_login_of_the_agent_can_be_refused(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    engine.status = 403
    allowed = access(None, allow_registry_login=True)
    assert refusal(engine, store, allowed) == (
        f"session_image: {NAME!r} is private, and its registry {HOST} does not let the docker login of this"
        f" agent read it: add {HOST} to session_registries"
    )
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    (tmp_path / "config.json").write_text('{"auths": {"x": 1}}')
    assert "because the docker login of this host cannot be read (~/.docker/config.json of root); try" in refusal(
        engine, store, allowed, NAME
    )


@pytest.mark.usefixtures("records")
def test_own_password_comes_before_the_login_of_the_agent(engine: Any, store: Store) -> None:
    wrong = access(Credential("reader", "wrong"), allow_registry_login=True)
    assert "the user 'reader'" in refusal(engine, store, wrong, NAME)
