"""Images that were pulled with a password: who may use them, asked of a registry on loopback."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker import registry
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
from tests.unit.registry_server import REPOSITORY, RegistryServer, basic, reply, replying

READER = Credential("reader", "hunter2")


class Engine(FakeDocker):
    """An engine that finds images by their id and by their digests, too."""

    def info(self) -> dict[str, Any]:
        return {**super().info(), "RegistryConfig": {"InsecureRegistryCIDRs": ["127.0.0.0/8"]}}

    def inspect_image(self, name: str) -> dict[str, Any]:
        for image in self.images.values():
            image_id = str(image["Id"])
            ids = [image_id, image_id.partition(":")[2][:12]]
            if name in [*ids, *image.get("RepoDigests", []), *image.get("RepoTags", [])]:
                return image
        return super().inspect_image(name)


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    """Return a registry that requires a token, and has the image by its tag 1 and its digest."""
    with RegistryServer("Bearer").running() as running:
        running.references = {"1", DIGEST}
        yield running


@pytest.fixture
def name(server: RegistryServer) -> str:
    """Return the name of the private image."""
    return f"{server.repository}:1"


@pytest.fixture
def engine(name: str, server: RegistryServer) -> Any:
    """Return an engine that has the private image and a local one."""
    content: dict[str, Any] = {"Config": {"Env": []}}
    private = {"Id": f"sha256:{'1' * 64}", "RepoTags": [name], "RepoDigests": [f"{server.repository}@{DIGEST}"]}
    local = {"Id": f"sha256:{'2' * 64}", "RepoTags": [IMAGE]}
    return Engine({name: {**private, **content}, IMAGE: {**local, **content}})


@pytest.fixture
def records(store: Store, server: RegistryServer) -> RegistryRecords:
    """Return the records of an agent that pulled the image with a password."""
    records = RegistryRecords(store.registries_folder)
    records.begin_private(server.repository).keep()
    return records


@pytest.fixture(autouse=True)
def docker_login(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, server: RegistryServer) -> None:
    """Let root have a login on this agent."""
    login = {"auth": basic("reader", "hunter2").partition(" ")[2]}
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker" / "config.json").write_text(json.dumps({"auths": {server.host: login}}))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))


def access(server: RegistryServer, login: Credential | None = READER, **settings: Any) -> ImageAccess:
    return ImageAccess({server.host: login} if login else {}, **settings)


def refusal(engine: Any, store: Store, access: ImageAccess, name: str) -> str:
    """Return why a session may not use an image."""
    with pytest.raises(ImageAccessError) as refused:
        require_image_access(engine, store, access, [name])
    return str(refused.value)


# ---- private images


@pytest.mark.usefixtures("records")
def test_private_image_is_for_the_password(engine: Any, store: Store, server: RegistryServer, name: str) -> None:
    require_image_access(engine, store, access(server), [name])
    assert server.requests[-1].path == f"/v2/{REPOSITORY}/manifests/{DIGEST}"


@pytest.mark.usefixtures("records")
def test_private_image_is_not_for_users_without_a_password(
    engine: Any, store: Store, server: RegistryServer, name: str
) -> None:
    assert refusal(engine, store, access(server, None), name) == (
        f"session_image: {name!r} is private, and its registry {server.host} does not let this session read it without"
        f" a password: add {server.host} to session_registries"
    )


@pytest.mark.usefixtures("records")
def test_private_image_is_not_for_the_wrong_password(
    engine: Any, store: Store, server: RegistryServer, name: str
) -> None:
    sentence = refusal(engine, store, access(server, Credential("reader", "wrong-horse")), name)
    assert sentence == (
        f"session_image: {name!r} is private, and its registry {server.host} does not let the user 'reader' read it:"
        f" correct session_registries.{server.host}"
    )


@pytest.mark.parametrize("kind", ["digest", "tag and digest"])
@pytest.mark.usefixtures("records")
def test_private_image_is_private_under_all_its_names(
    engine: Any, store: Store, server: RegistryServer, name: str, kind: str
) -> None:
    names = {"digest": f"{server.repository}@{DIGEST}", "tag and digest": f"{name}@{DIGEST}"}
    engine.images[names["tag and digest"]] = engine.images[name]
    assert "is private" in refusal(engine, store, access(server, None), names[kind])
    require_image_access(engine, store, access(server), [names[kind]])
    assert server.requests[-1].path == f"/v2/{REPOSITORY}/manifests/{DIGEST}"


@pytest.mark.parametrize("image_id", [f"sha256:{'1' * 64}", "1" * 12])
@pytest.mark.usefixtures("records")
def test_private_image_is_not_used_by_its_id(engine: Any, store: Store, server: RegistryServer, image_id: str) -> None:
    for login in (None, READER):
        assert refusal(engine, store, access(server, login), image_id) == (
            f"session_image: {image_id!r} is the id of a private image: specify the image by its name"
        )
    assert server.requests == []


@pytest.mark.usefixtures("records")
def test_image_that_has_a_public_name_is_public(engine: Any, store: Store, server: RegistryServer, name: str) -> None:
    engine.images[name]["RepoTags"].append("python:3")
    for public in ("python:3", "1" * 12):
        require_image_access(engine, store, access(server, None), [public])
    assert server.requests == []
    assert "is private" in refusal(engine, store, access(server, None), name)


@pytest.mark.usefixtures("records")
def test_image_that_was_loaded_under_a_private_name_is_not_private(
    engine: Any, store: Store, server: RegistryServer, name: str
) -> None:
    del engine.images[name]["RepoDigests"]
    require_image_access(engine, store, access(server, None), [name])
    assert server.requests == []


def test_image_that_was_pulled_without_a_password_is_not_asked_about(
    engine: Any, store: Store, server: RegistryServer, name: str
) -> None:
    require_image_access(engine, store, access(server, None), [name, IMAGE])
    assert (server.requests, store.registries_folder.exists()) == ([], False)


@pytest.mark.usefixtures("records")
def test_local_and_missing_images_are_not_asked_about(engine: Any, store: Store, server: RegistryServer) -> None:
    require_image_access(engine, store, access(server, None), [IMAGE, "missing:1"])
    assert server.requests == []


@pytest.mark.usefixtures("records")
def test_every_image_of_a_session_is_asked_about(engine: Any, store: Store, server: RegistryServer, name: str) -> None:
    with pytest.raises(ImageAccessError):
        require_image_access(engine, store, access(server, None), [IMAGE, name])


@pytest.mark.usefixtures("records")
def test_repository_that_became_public_is_for_everybody(
    engine: Any, store: Store, server: RegistryServer, name: str
) -> None:
    server.scheme = ""
    require_image_access(engine, store, access(server, None), [name])


# ---- a registry that does not answer


def test_permission_holds_for_its_time_without_the_registry(
    engine: Any,
    store: Store,
    server: RegistryServer,
    name: str,
    records: RegistryRecords,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    require_image_access(engine, store, access(server), [name])
    asked = len(server.requests)
    server.special["/"] = replying(503)
    require_image_access(engine, store, access(server), [name])
    assert len(server.requests) == asked
    assert "is private" in refusal(engine, store, access(server, None), name)
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    monkeypatch.setattr(time, "clock_gettime", lambda _clock: now + ALLOWED_SECONDS + 1)
    assert refusal(engine, store, access(server), name) == (
        f"session_image: {name!r} is private, and whether this session may use it is not known: its registry"
        f" {server.host} answers with status 503; try again later"
    )
    assert not records.is_allowed(server.repository, READER)


def test_all_images_of_a_session_share_a_time_limit(
    engine: Any, store: Store, server: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer_slowly(handler: BaseHTTPRequestHandler) -> None:
        time.sleep(0.4)
        reply(handler, 200)

    monkeypatch.setattr(image_access, "SECONDS", 1)
    server.scheme = ""
    server.special["/v2/team/"] = answer_slowly
    names = [f"{server.host}/team/{number}:1" for number in range(5)]
    engine.images |= {name: {"Id": name, "RepoTags": [name], "Config": {}} for name in names}
    began = time.monotonic()
    with pytest.raises(ImageAccessError, match=r"does not answer within 0(\.\d)? seconds; try again later$"):
        require_image_access(engine, store, access(server, registry_check=["*"]), names)
    assert 1 <= time.monotonic() - began < 5


@pytest.mark.usefixtures("records")
def test_refusals_are_not_remembered(engine: Any, store: Store, server: RegistryServer, name: str) -> None:
    server.special["/token"] = replying(401)
    assert "does not let" in refusal(engine, store, access(server), name)
    server.special.clear()
    require_image_access(engine, store, access(server), [name])


# ---- the settings of the agent


@pytest.mark.parametrize("pattern", ["127.0.0.1:*", "*", "host"])
def test_images_of_checked_registries_are_always_asked_about(
    engine: Any, store: Store, server: RegistryServer, name: str, pattern: str
) -> None:
    checked = [server.host if pattern == "host" else pattern]
    assert "is private" in refusal(engine, store, access(server, None, registry_check=checked), name)
    require_image_access(engine, store, access(server, registry_check=checked), [name])


@pytest.mark.parametrize("checked", [["docker.io"], ["*"], ["DOCKER.IO"]])
def test_local_image_is_asked_about_if_docker_hub_is_checked(
    engine: Any, store: Store, server: RegistryServer, monkeypatch: pytest.MonkeyPatch, checked: list[str]
) -> None:
    monkeypatch.setattr(registry, "HUB_HOST", server.host)
    monkeypatch.setattr(engine, "info", lambda: {"RegistryConfig": {"IndexConfigs": {"docker.io": {"Secure": False}}}})
    assert "its registry docker.io does not let" in refusal(
        engine, store, access(server, None, registry_check=checked), IMAGE
    )


@pytest.mark.parametrize("checked", [["example.com"], ["127.0.0.1"], []])
def test_images_of_other_registries_are_not_asked_about(
    engine: Any, store: Store, server: RegistryServer, name: str, checked: list[str]
) -> None:
    require_image_access(engine, store, access(server, None, registry_check=checked), [name])
    assert server.requests == []


@pytest.mark.usefixtures("records")
def test_login_of_the_agent_is_used_only_if_allowed(
    engine: Any, store: Store, server: RegistryServer, name: str
) -> None:
    assert "without a password" in refusal(engine, store, access(server, None), name)
    assert {each.authorization for each in server.requests} == {""}
    require_image_access(engine, store, access(server, None, allow_registry_login=True), [name])
    # The permission of the agent's login is not that of users.
    assert "without a password" in refusal(engine, store, access(server, None), name)


@pytest.mark.usefixtures("records")
def test_login_of_the_agent_can_be_refused(
    engine: Any, store: Store, server: RegistryServer, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server.special["/token"] = replying(403)
    allowed = access(server, None, allow_registry_login=True)
    assert refusal(engine, store, allowed, name) == (
        f"session_image: {name!r} is private, and its registry {server.host} does not let the docker login of this"
        f" agent read it: add {server.host} to session_registries"
    )
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    (tmp_path / "config.json").write_text('{"auths": {"x": 1}}')
    assert "because the docker login of this host cannot be read; try" in refusal(engine, store, allowed, name)


@pytest.mark.usefixtures("records")
def test_own_password_comes_before_the_login_of_the_agent(
    engine: Any, store: Store, server: RegistryServer, name: str
) -> None:
    wrong = access(server, Credential("reader", "wrong"), allow_registry_login=True)
    assert "the user 'reader'" in refusal(engine, store, wrong, name)
