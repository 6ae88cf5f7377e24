"""Images as an engine has them, and what is said of those that it cannot get."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from docker.errors import APIError

from ansible_collections.backendai.cluster.plugins.module_utils._docker.images import (
    Image,
    ImageUnavailable,
    find_image,
    pull_image,
)
from tests.unit.builders import IMAGE
from tests.unit.engine import Engine


class Registry:
    """An engine whose pull gives these lines, or this error."""

    def __init__(self, lines: list[dict[str, str]] | None = None, error: APIError | None = None) -> None:
        self.lines, self.error = lines or [], error
        self.pulled: list[tuple[str, str]] = []

    def pull(self, repository: str, tag: str, *, stream: bool, decode: bool) -> Iterator[dict[str, str]]:
        assert stream, "the end of a pull is its last line"
        assert decode, "lines are read as mappings"
        self.pulled.append((repository, tag))
        if self.error:
            raise self.error
        return iter(self.lines)


def found(**inspected: Any) -> Image | None:
    client: Any = Engine({IMAGE: {"Id": "sha256:1", "Config": {"Env": []}, **inspected}})
    return find_image(client, IMAGE)


def test_an_image_that_the_engine_lacks_is_none() -> None:
    client: Any = Engine({})
    assert find_image(client, IMAGE) is None


@pytest.mark.parametrize(
    ("repo_digests", "digest"),
    [(["lab/python@sha256:2", "other@sha256:3"], "sha256:2"), ([], "sha256:1"), (None, "sha256:1")],
    ids=["from a registry", "loaded", "loaded by an old engine"],
)
def test_the_digest_is_the_registrys_where_there_is_one(repo_digests: list[str] | None, digest: str) -> None:
    assert found(RepoDigests=repo_digests) == Image(digest, {})


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
def test_an_image_brings_its_environment(env: list[str] | None, variables: dict[str, str]) -> None:
    assert found(Config={"Env": env}) == Image("sha256:1", variables)


@pytest.mark.parametrize(
    ("name", "pulled"),
    [
        ("lab/python:1", ("lab/python", "1")),
        ("lab/python", ("lab/python", "latest")),
        ("registry:5000/python", ("registry:5000/python", "latest")),
        ("registry:5000/lab/python:1", ("registry:5000/lab/python", "1")),
        ("lab/python@sha256:abc", ("lab/python", "sha256:abc")),
    ],
)
def test_exactly_the_named_image_is_pulled(name: str, pulled: tuple[str, str]) -> None:
    registry = Registry([{"status": "Pulling"}, {"status": "Done"}])
    client: Any = registry
    pull_image(client, name)
    assert registry.pulled == [pulled]


@pytest.mark.parametrize(
    ("registry", "reason"),
    [
        (Registry([{"status": "Pulling"}, {"error": "manifest unknown\n"}]), "manifest unknown"),
        (Registry(error=APIError("404", explanation="pull access denied")), "pull access denied"),
        (Registry(error=APIError("no route to host")), "no route to host"),
    ],
    ids=["while it streams", "by the engine", "on the way"],
)
def test_an_image_that_cannot_be_pulled_is_one_sentence(registry: Registry, reason: str) -> None:
    client: Any = registry
    with pytest.raises(ImageUnavailable) as refused:
        pull_image(client, IMAGE)
    assert str(refused.value) == (f"session_image: 'lab/python:1' is not on this host and cannot be pulled ({reason})")
