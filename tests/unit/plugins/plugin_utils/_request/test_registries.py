"""Credentials of image registries, and passwords that must not be shown."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.images import (
    Credential,
    registry_of,
    repository_of,
)
from ansible_collections.backendai.cluster.plugins.module_utils._model.validation import ValidationErrors
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.registries import parse_registries

READER = {"username": "reader", "password": "hunter2"}


def parsed(value: Any) -> tuple[dict[str, Credential], str]:
    """Return the credentials and the problems."""
    problems = ValidationErrors()
    return parse_registries(problems, value), str(problems)


@pytest.mark.parametrize(
    ("image", "repository"),
    [
        ("busybox", "docker.io/library/busybox"),
        ("busybox:1.36", "docker.io/library/busybox"),
        ("lab/python:1", "docker.io/lab/python"),
        ("docker.io/busybox", "docker.io/library/busybox"),
        ("index.docker.io/lab/python", "docker.io/lab/python"),
        ("localhost/python:1", "localhost/python"),
        ("registry:5000/python", "registry:5000/python"),
        ("registry.example.com/a/b/python:1", "registry.example.com/a/b/python"),
        ("registry.example.com:5000/python@sha256:12", "registry.example.com:5000/python"),
        ("registry.example.com/python:1@sha256:12", "registry.example.com/python"),
        ("Registry/python", "Registry/python"),
        ("[::1]:5000/python:1", "[::1]:5000/python"),
    ],
)
def test_image_names_are_parsed_like_docker(image: str, repository: str) -> None:
    assert repository_of(image) == repository
    assert registry_of(image) == repository.partition("/")[0]


@pytest.mark.parametrize(
    "host", ["registry.example.com", "registry:5000", "127.0.0.1:5000", "[::1]:5000", "localhost", "docker.io"]
)
def test_a_registry_key_is_host_and_port(host: str) -> None:
    assert parsed({host: READER}) == ({host: Credential("reader", "hunter2")}, "")


def test_docker_hub_has_one_name() -> None:
    assert list(parsed({"index.docker.io": READER})[0]) == [registry_of("busybox")]


def test_registries_are_optional() -> None:
    assert parsed({}) == ({}, "")


def test_json_text_and_numbers_are_parsed() -> None:
    value = '{"localhost": {"username": "reader", "password": 1234}}'
    assert parsed(value) == ({"localhost": Credential("reader", "1234")}, "")


@pytest.mark.parametrize("host", ["https://registry.example.com", "registry/lab", "", "registry:port", "a b"])
def test_an_invalid_registry_host_is_rejected(host: str) -> None:
    assert parsed({host: READER})[1] == (
        f"session_registries: {host!r} is not a registry host, such as registry.example.com:5000."
    )


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (None, "session_registries must be a mapping of registries to username and password."),
        ("hunter2", "session_registries must be a mapping of registries to username and password."),
        (["hunter2"], "session_registries must be a mapping of registries to username and password."),
        ({"localhost": "hunter2"}, "session_registries.localhost must be a mapping of username and password."),
        (
            {"localhost": {**READER, "email": "hunter2"}},
            "session_registries.localhost.email is not known; allowed are username, password.",
        ),
        ({"localhost": {"username": "reader"}}, "session_registries.localhost.password must be one line of text."),
        ({"localhost": {"password": "hunter2"}}, "session_registries.localhost.username must be one line of text."),
        (
            {"localhost": {**READER, "password": "hunter2\n"}},
            "session_registries.localhost.password must be one line of text.",
        ),
        ({"localhost": {**READER, "password": ""}}, "session_registries.localhost.password must be one line of text."),
        (
            {"localhost": {**READER, "password": ["hunter2"]}},
            "session_registries.localhost.password must be one line of text.",
        ),
        (
            {"localhost": {**READER, "password": True}},
            "session_registries.localhost.password must be one line of text.",
        ),
    ],
)
def test_problems_contain_the_path_and_never_the_value(value: Any, sentence: str) -> None:
    assert parsed(value)[1] == sentence


def test_the_text_of_a_credential_has_no_password() -> None:
    assert "hunter2" not in f"{Credential('reader', 'hunter2')!r} {Credential('reader', 'hunter2')}"
