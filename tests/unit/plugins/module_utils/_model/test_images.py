"""Tests for the identity of images on agents."""

from __future__ import annotations

import dataclasses

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.images import (
    ForeignReferenceError,
    ImageIdentity,
    full_name,
    image_mismatch,
    images_from_dict,
    is_image_name,
    pull_reference,
)
from tests.unit.builders import DIGEST, IMAGE, image_data

LOADED, OTHER = ImageIdentity("sha256:1", "sha256:1"), ImageIdentity("sha256:2", "sha256:2")
PULLED = ImageIdentity("sha256:1", DIGEST, f"lab/python@{DIGEST}")
BY_LONG_NAME = ImageIdentity("sha256:1", DIGEST, f"docker.io/lab/python@{DIGEST}")
OTHER_STORE = ImageIdentity(DIGEST, DIGEST, f"lab/python@{DIGEST}")


def test_images_are_parsed_from_plain_data() -> None:
    data = {"agent1": {IMAGE: image_data(registry="lab/python")}, "agent2": {}}
    assert images_from_dict(data) == {"agent1": {IMAGE: PULLED}, "agent2": {}}


@pytest.mark.parametrize(
    ("images_by_agent", "reference"),
    [
        ({}, IMAGE),
        ({"agent1": {}, "agent2": {"other:1": PULLED}}, IMAGE),
        ({"agent1": {IMAGE: LOADED}}, IMAGE),
        ({"agent1": {IMAGE: LOADED}, "agent2": {IMAGE: PULLED}}, f"lab/python@{DIGEST}"),
        ({"agent1": {IMAGE: BY_LONG_NAME}}, f"lab/python@{DIGEST}"),
    ],
    ids=["no agents", "none has it", "it was loaded", "it was pulled", "it was pulled by its long name"],
)
def test_pull_reference_is_that_of_another_agent(
    images_by_agent: dict[str, dict[str, ImageIdentity]], reference: str
) -> None:
    assert pull_reference(IMAGE, images_by_agent) == reference


@pytest.mark.parametrize(
    "reference",
    [
        f"lab/other@{DIGEST}",
        f"evil.example.com/lab/python@{DIGEST}",
        f"lab/python/extra@{DIGEST}",
        "lab/python:2",
        "lab/python@sha256:a",
        f"lab/python@{DIGEST}\n",
        f"lab/python@{DIGEST.upper()}",
        f"lab/python@md5:{'a' * 32}",
        f"lab/python@{DIGEST}@{DIGEST}",
    ],
)
def test_agent_names_no_other_repository_for_another_agent(reference: str) -> None:
    images_by_agent = {"agent1": {IMAGE: PULLED}, "agent2": {IMAGE: ImageIdentity("sha256:1", DIGEST, reference)}}
    with pytest.raises(ForeignReferenceError) as refused:
        pull_reference(IMAGE, images_by_agent)
    assert str(refused.value) == (
        f"session_image: agent2 has {reference!r} as 'lab/python:1', which is no sha256 digest in the repository"
        " docker.io/lab/python: check agent2, or specify the image by its digest"
    )


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("python", "docker.io/library/python:latest"),
        ("index.docker.io/lab/python:1", "docker.io/lab/python:1"),
        ("registry:5000/python", "registry:5000/python:latest"),
        (f"lab/python:1@{DIGEST}", f"docker.io/lab/python@{DIGEST}"),
    ],
)
def test_all_spellings_of_an_image_have_one_full_name(written: str, name: str) -> None:
    assert full_name(written) == full_name(name) == name


def test_name_with_a_digest_is_pulled_unchanged() -> None:
    name = "lab/python:1@sha256:b"
    assert pull_reference(name, {"agent1": {name: PULLED}}) == name


@pytest.mark.parametrize(
    "images",
    [[], [LOADED], [LOADED, LOADED], [LOADED, PULLED], [PULLED, OTHER_STORE]],
    ids=["none", "one", "loaded on both", "loaded and pulled", "kept in different ways"],
)
def test_equal_images_are_no_mismatch(images: list[ImageIdentity]) -> None:
    assert image_mismatch({f"agent{number}": {IMAGE: image} for number, image in enumerate(images)}) == ""


def test_a_loaded_image_is_the_same_in_different_stores_by_its_content() -> None:
    own, other = (ImageIdentity(f"sha256:{digit}", f"sha256:{digit}", "", "layers") for digit in "12")
    assert image_mismatch({"agent1": {IMAGE: own}, "agent2": {IMAGE: other}}) == ""
    for content in ("", "others"):
        images = {"agent1": {IMAGE: own}, "agent2": {IMAGE: dataclasses.replace(other, content=content)}}
        assert "is not the same on all agents" in image_mismatch(images)
    unknown = {"agent1": dataclasses.replace(own, content=""), "agent2": dataclasses.replace(other, content="")}
    assert "is not the same" in image_mismatch({agent: {IMAGE: image} for agent, image in unknown.items()})


def test_a_digest_that_a_registry_has_is_pulled_rather_than_one_that_may_be_loaded() -> None:
    digests = [f"sha256:{digit * 64}" for digit in "12"]
    in_containerd = ImageIdentity(digests[0], digests[0], f"lab/python@{digests[0]}")
    pulled = ImageIdentity("sha256:9", digests[1], f"lab/python@{digests[1]}")
    assert (in_containerd.may_be_loaded, pulled.may_be_loaded) == (True, False)
    only = {"agent1": {IMAGE: in_containerd}}
    assert pull_reference(IMAGE, only) == in_containerd.reference
    assert pull_reference(IMAGE, {**only, "agent2": {IMAGE: pulled}}) == pulled.reference


def test_image_mismatch_lists_digests_and_agents() -> None:
    long = ImageIdentity("sha256:3", f"sha256:{'c' * 64}")
    images_by_agent = {"agent1": {IMAGE: LOADED}, "agent2": {IMAGE: long}, "agent3": {IMAGE: LOADED}, "agent4": {}}
    assert image_mismatch(images_by_agent) == (
        "session_image: 'lab/python:1' is not the same on all agents: sha256:1… on agent1 and agent3,"
        " sha256:cccccccccccc… on agent2; remove the outdated one (docker rmi) or specify the image by its digest"
    )


@pytest.mark.parametrize(
    "name",
    [
        "python",
        "python:3.12-slim",
        "lab/python:1",
        "registry.example.com/team/a_b.c__d--e:V1.0_x",
        "registry.example.com:5000/a",
        "localhost/a",
        "REGISTRY/a",
        "[2001:db8::1]:5000/a:1",
        f"python@sha256:{'a' * 64}",
        f"python:3@sha512:{'a' * 128}",
        f"sha256:{'a' * 64}",
        "a" * 255,
    ],
)
def test_name_that_registries_understand_is_one(name: str) -> None:
    assert is_image_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "Python",
        "lab/../python",
        "lab//python",
        "lab/python/",
        "/python",
        "python:",
        "python:a b",
        f"python:{'a' * 129}",
        "python:3:4",
        "python@sha256:abc",
        "python@latest",
        "registry.example.com:port/a",
        "registry.example.com/A",
        "-registry.example.com/a",
        "a?tag=x",
        "a%2fb",
        "a\n",
        "a" * 256,
        "a." * 100_000,
    ],
)
def test_any_other_text_is_no_name_of_an_image(name: str) -> None:
    assert not is_image_name(name)


def test_images_of_different_names_may_differ() -> None:
    assert image_mismatch({"agent1": {IMAGE: LOADED}, "agent2": {"other:1": OTHER}}) == ""


def test_every_image_name_is_compared() -> None:
    images_by_agent = {"agent1": {IMAGE: LOADED, "other:1": LOADED}, "agent2": {IMAGE: LOADED, "other:1": OTHER}}
    assert image_mismatch(images_by_agent).startswith("session_image: 'other:1' is not the same on all agents: ")
