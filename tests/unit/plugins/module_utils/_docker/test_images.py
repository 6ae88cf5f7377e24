"""Tests for inspecting and pulling images, and for pull errors and progress."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import pytest
from docker.errors import APIError

from ansible_collections.backendai.cluster.plugins.module_utils._docker.images import (
    Image,
    ImagePullError,
    Progress,
    PullLayers,
    find_image,
    pull_image,
    remove_image,
)
from ansible_collections.backendai.cluster.plugins.module_utils._model.images import ImageIdentity
from tests.unit.builders import IMAGE
from tests.unit.fake_docker import FakeDocker

CONTENT = {"Id": "sha256:1", "Config": {"Env": []}}


def inspect(name: str = IMAGE, **inspected: Any) -> Image:
    client: Any = FakeDocker({name: {**CONTENT, **inspected}})
    image = find_image(client, name)
    assert image is not None
    return image


def pull(
    engine: FakeDocker, name: str = IMAGE, reference: str = "", login: Mapping[str, str] | None = None
) -> list[Mapping[str, Any]]:
    """Pull an image and return the lines of the engine's output."""
    client: Any = engine
    lines: list[Mapping[str, Any]] = []
    pull_image(client, name, reference or name, login or {}, lines.append)
    return lines


# ---- inspection


def test_missing_image_is_none() -> None:
    client: Any = FakeDocker({})
    assert find_image(client, IMAGE) is None


@pytest.mark.parametrize(
    ("name", "repo_digests", "digest", "reference"),
    [
        (IMAGE, ["lab/python@sha256:2"], "sha256:2", "lab/python@sha256:2"),
        (IMAGE, ["other@sha256:3", "lab/python@sha256:2"], "sha256:2", "lab/python@sha256:2"),
        (IMAGE, ["other@sha256:3"], "sha256:3", ""),
        ("docker.io/busybox:1", ["busybox@sha256:2"], "sha256:2", "busybox@sha256:2"),
        (IMAGE, [], "sha256:1", ""),
        (IMAGE, None, "sha256:1", ""),
    ],
    ids=["from a registry", "from two", "from another", "by its long name", "loaded", "loaded by an old engine"],
)
def test_image_digest_is_that_of_the_registry_if_any(
    name: str, repo_digests: list[str] | None, digest: str, reference: str
) -> None:
    assert inspect(name, RepoDigests=repo_digests).identity == ImageIdentity("sha256:1", digest, reference)


@pytest.mark.parametrize(
    ("env", "variables"),
    [
        (None, {}),
        ([], {}),
        (["PATH=/bin:/usr/bin", "EMPTY=", "OPTS=-a=b"], {"PATH": "/bin:/usr/bin", "EMPTY": "", "OPTS": "-a=b"}),
        (["TEXT=one\nTWO=2", "# LAST=3"], {"TEXT": "one\nTWO=2", "# LAST": "3"}),
    ],
    ids=["absent", "none", "some", "of several lines"],
)
def test_image_environment_is_read(env: list[str] | None, variables: dict[str, str]) -> None:
    assert inspect(Config={"Env": env}).environment == variables


@pytest.mark.parametrize(
    ("entrypoint", "command", "argv"),
    [
        (None, None, ()),
        (["/entry", "-x"], None, ("/entry", "-x")),
        (None, ["sh", "-c", "a b"], ("sh", "-c", "a b")),
        (["/entry"], ["run"], ("/entry", "run")),
    ],
)
def test_image_argv_is_its_entrypoint_with_its_command(
    entrypoint: list[str] | None, command: list[str] | None, argv: tuple[str, ...]
) -> None:
    assert inspect(Config={"Entrypoint": entrypoint, "Cmd": command}).argv == argv


def test_volumes_of_an_image_are_read_as_it_spells_them() -> None:
    assert inspect(Config={"Volumes": {"/b/": {}, "a/../b": {}}}).volumes == ("/b/", "a/../b")
    assert inspect(Config={"Volumes": None}).volumes == ()


@pytest.mark.parametrize(
    ("written", "moment"),
    [
        ("1970-01-02T00:00:01.123456789Z", 86401),
        ("0001-01-01T00:00:00Z", None),
        ("", None),
        ("yesterday", None),
    ],
)
def test_size_and_last_tag_of_an_image_are_read(written: str, moment: int | None) -> None:
    image = inspect(Size=10, Metadata={"LastTagTime": written})
    assert (image.size, image.tagged_at) == (10, moment)
    assert (inspect().size, inspect().tagged_at) == (0, None)


class Removing(FakeDocker):
    """An engine that keeps the digests of an image when its tags go."""

    def remove_image(self, name: str) -> None:
        self.calls.append(f"remove {name}")
        image = self.images["sha256:1"]
        image["RepoTags"] = [each for each in image["RepoTags"] if each != name]
        image["RepoDigests"] = [each for each in image["RepoDigests"] if each != name]


def test_image_is_removed_with_all_of_its_names() -> None:
    engine: Any = Removing({"sha256:1": {**CONTENT, "RepoTags": [IMAGE, "a:1"], "RepoDigests": ["a@sha256:2"]}})
    image = find_image(engine, "sha256:1")
    assert image is not None
    remove_image(engine, image)
    assert engine.calls == [f"remove {IMAGE}", "remove a:1", "remove a@sha256:2"]


# ---- pulls


@pytest.mark.parametrize(
    ("name", "pulled"),
    [
        ("lab/python:1", "lab/python:1"),
        ("registry:5000/lab/python:1", "registry:5000/lab/python:1"),
        ("lab/python@sha256:abc", "lab/python@sha256:abc"),
    ],
)
def test_exactly_the_requested_image_is_pulled(name: str, pulled: str) -> None:
    engine = FakeDocker({})
    engine.registry = {pulled: CONTENT}
    pull(engine, name)
    assert engine.calls == [f"pull {pulled}"]
    assert inspect(name).id == "sha256:1"


def test_name_without_a_tag_is_pulled_as_latest() -> None:
    engine = FakeDocker({})
    engine.registry = {"registry:5000/python:latest": CONTENT}
    with pytest.raises(ImagePullError, match="without an error message"):
        # The fake engine does not resolve short names.
        pull(engine, "registry:5000/python")
    assert engine.calls == ["pull registry:5000/python:latest"]


@pytest.mark.parametrize(("name", "tagged"), [(IMAGE, "lab/python:1"), ("lab/python", "lab/python:latest")])
def test_image_pulled_by_digest_is_tagged_with_its_name(name: str, tagged: str) -> None:
    engine = FakeDocker({})
    engine.registry = {"lab/python@sha256:a": CONTENT}
    pull(engine, name, "lab/python@sha256:a")
    assert engine.calls == ["pull lab/python@sha256:a", f"tag lab/python@sha256:a {tagged}"]


def test_registry_credentials_are_sent() -> None:
    engine = FakeDocker({})
    engine.registry = {IMAGE: CONTENT}
    pull(engine, login={"username": "reader", "password": "hunter2"})
    assert engine.calls == [f"pull {IMAGE} as {{'username': 'reader', 'password': 'hunter2'}}"]


def test_all_names_of_an_image_are_read() -> None:
    image = inspect(RepoTags=[IMAGE, "other:1"], RepoDigests=["lab/python@sha256:2"])
    assert (image.tags, image.digests) == ((IMAGE, "other:1"), ("lab/python@sha256:2",))
    assert (inspect(RepoTags=None).tags, inspect(RepoTags=None).digests) == ((), ())


def test_all_lines_of_the_engine_are_passed_on() -> None:
    engine = FakeDocker({})
    lines = [{"status": "Pulling from lab/python", "id": "1"}, {"status": "Pull complete", "id": "a"}]
    engine.registry = {IMAGE: {"lines": lines, **CONTENT}}
    assert pull(engine) == lines


class Refusing(FakeDocker):
    """An engine that rejects every pull."""

    def __init__(self, error: APIError) -> None:
        super().__init__({})
        self.error = error

    def pull(self, *_what: Any, **_how: Any) -> Any:
        raise self.error


def streaming(error: str) -> FakeDocker:
    engine = FakeDocker({})
    engine.registry = {IMAGE: {"error": error, "lines": [{"status": "Pulling"}]}}
    return engine


@pytest.mark.parametrize(
    ("engine", "reason"),
    [
        (streaming("manifest unknown\n"), "manifest unknown"),
        (streaming("write /var/lib/docker/tmp/x: no space left on device"), "write /var/lib/docker/tmp/x: no space"),
        (Refusing(APIError("404", explanation="pull access denied")), "pull access denied"),
        (Refusing(APIError("no route to host")), "no route to host"),
        (FakeDocker({}), "manifest for lab/python:1 not found"),
    ],
    ids=["while it streams", "disk full", "by the engine", "on the way", "unknown"],
)
def test_pull_error_is_one_sentence(engine: FakeDocker, reason: str) -> None:
    with pytest.raises(ImagePullError) as raised:
        pull(engine)
    sentence = f"session_image: 'lab/python:1' is not on this host and cannot be pulled ({reason}"
    assert str(raised.value).startswith(sentence)
    assert str(raised.value).endswith(")")
    assert "\n" not in str(raised.value)


def test_pull_without_the_sdk_fails_with_its_explanation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)
    with pytest.raises(ImagePullError, match=r"cannot be pulled \(the Docker SDK for Python cannot be imported by"):
        pull(FakeDocker({}))


def test_pull_error_contains_the_reference_of_other_agents() -> None:
    with pytest.raises(ImagePullError) as raised:
        pull(FakeDocker({}), reference="lab/python@sha256:a")
    assert str(raised.value) == (
        "session_image: 'lab/python:1' is not on this host and cannot be pulled as 'lab/python@sha256:a', which other"
        " agents have (manifest for lab/python@sha256:a not found; by its own name: manifest for lab/python:1 not"
        " found)"
    )


def test_pull_that_stops_without_an_error_message_fails() -> None:
    engine = FakeDocker({})
    engine.registry = {IMAGE: {}}
    with pytest.raises(ImagePullError, match=r"cannot be pulled \(the engine stopped without an error message\)$"):
        pull(engine)


# ---- progress


def line(layer: str, status: str, current: int = 0, total: int = 0) -> dict[str, Any]:
    return {"id": layer, "status": status, "progressDetail": {"current": current, "total": total} if total else {}}


@pytest.mark.parametrize(
    ("lines", "progress"),
    [
        ([], Progress()),
        ([{"id": "1", "status": "Pulling from lab/python"}, {"status": "Digest: sha256:a"}], Progress()),
        ([line("a", "Pulling fs layer"), line("b", "Waiting")], Progress(0, 0, 0, 2, more=True)),
        ([line("a", "Already exists")], Progress(0, 0, 1, 1)),
        ([line("a", "Downloading", 10, 30), line("b", "Waiting")], Progress(10, 30, 0, 2, more=True)),
        ([line("a", "Downloading", 10, 30), line("b", "Downloading", 5, 10)], Progress(15, 40, 0, 2)),
        ([line("a", "Downloading", 10, 30), line("a", "Verifying Checksum")], Progress(30, 30, 0, 1)),
        ([line("a", "Downloading", 10, 30), line("a", "Extracting", 1, 30)], Progress(30, 30, 0, 1)),
        ([line("a", "Downloading", 10, 30), line("a", "Pull complete")], Progress(30, 30, 1, 1)),
        ([line("a", "Downloading", 10, 30), line("a", "Downloading")], Progress(10, 30, 0, 1)),
        ([line("a", "Download complete"), line("a", "Pull complete")], Progress(0, 0, 1, 1)),
    ],
    ids=[
        "nothing yet",
        "lines of no layer",
        "none started",
        "already present",
        "one downloading",
        "two downloading",
        "one downloaded",
        "one extracting",
        "one complete",
        "a line without a size",
        "too small for a size",
    ],
)
def test_pull_progress_is_the_sum_of_the_layers(lines: list[dict[str, Any]], progress: Progress) -> None:
    layers = PullLayers()
    for line in lines:
        layers.update(line)
    assert layers.progress() == progress


def test_message_of_a_registry_is_safe_to_print_and_short() -> None:
    cause = "denied: \x1b[2J\x1b]0;owned\x07\nsecond line \u202e" + "x" * 5000
    sentence = str(ImagePullError.from_error("lab/x:1", "lab/x:1", cause))
    assert "(denied: \\x1b[2J\\x1b]0;owned\\x07 second line \\u202exxx" in sentence
    assert len(sentence) < 1200
