"""Roles of a session: inherited defaults and contradictions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.plugin_utils._request.roles import Role, build_default_roles
from tests.unit.builders import GIB, IMAGE, refusal, spec

MAIN_ALONE: dict[str, Any] = {"main": {}}
NAME_RULE = "a role name has 1 to 32 characters a-z and 0-9, and begins and ends with a letter"


def test_role_defaults_come_from_the_session() -> None:
    request = spec(
        roles={"worker": {"replicas": 2}, "main": None},
        resources={"cpu": 2, "mem": "2g", "cuda.device": 1},
        env={"A": "1"},
    )
    inherited = (IMAGE, {"cpu": 2, "mem": 2 * GIB, "cuda.device": 1}, {"A": "1"})
    assert request.roles == (Role("main", 1, *inherited), Role("worker", 2, *inherited))


def test_a_role_has_its_own_image_slots_and_variables() -> None:
    options = {"image": " other:1 ", "resources": {"mem": "4g", "cuda.device": 2}, "env": {"B": 2, "A": True}}
    request = spec(roles={"main": {}, "worker": options}, resources={"cpu": 2}, env={"A": "1", "C": "3"})
    assert request.roles[1] == Role(
        "worker", 1, "other:1", {"cpu": 2, "mem": 4 * GIB, "cuda.device": 2}, {"A": "true", "B": "2", "C": "3"}
    )
    assert request.roles[0].env == {"A": "1", "C": "3"}
    assert request.images == [IMAGE, "other:1"]


def test_a_slot_of_zero_is_removed_from_a_role() -> None:
    roles = {"main": {"resources": {"cuda.device": 0}}, "worker": {}}
    main, worker = spec(roles=roles, resources={"cuda.device": "1"}).roles
    assert (main.resources, worker.resources) == ({"cpu": 1, "mem": GIB}, {"cpu": 1, "mem": GIB, "cuda.device": 1})


def test_main_is_first_and_others_keep_their_order() -> None:
    roles: dict[str, Any] = {"worker": {}, "ps": {}, "main": {}, "chief": {}}
    assert [role.name for role in spec(roles=roles).roles] == ["main", "worker", "ps", "chief"]


def test_roles_and_their_values_can_be_json() -> None:
    roles = {"main": {}, "worker": {"replicas": "3", "resources": '{"cpu": "2"}', "env": '{"A": 1}'}}
    assert spec(roles=json.dumps(roles)) == spec(roles=roles)
    assert [role.replicas for role in spec(roles=json.dumps(roles)).roles] == [1, 3]


@pytest.mark.parametrize("size", [1, "1", 4, "4"])
def test_the_size_is_the_sum_of_the_roles_or_omitted(size: Any) -> None:
    request = spec(roles={"main": {}, "worker": {"replicas": 3}}, cluster_size=size)
    assert (request.cluster_size, request.effective_roles) == (4, request.roles)


@pytest.mark.parametrize("name", ["a", "ps", "worker", "a1b", "a" * 32])
def test_a_valid_role_name_is_accepted(name: str) -> None:
    assert [role.name for role in spec(roles={"main": {}, name: {}}).roles] == ["main", name]


@pytest.mark.parametrize("name", ["", "1a", "worker1", "Worker", "a-b", "a_b", "a" * 33, "wörker", "worker\n", 7])
def test_a_role_name_with_ambiguous_hostnames_is_rejected(name: Any) -> None:
    assert refusal(roles={"main": {}, name: {}}) == f"session_roles.{name}: {NAME_RULE}."


@pytest.mark.parametrize(
    ("roles", "sentence"),
    [
        ("main", "session_roles must be a mapping."),
        (["main"], "session_roles must be a mapping."),
        (None, "session_roles is required."),
        ({"main": "big"}, "session_roles.main must be a mapping."),
        ({"worker": {}}, "session_roles has no 'main': every session needs one container of that role."),
        (
            {"main": {"replicas": 2}},
            "session_roles.main.replicas must be 1: users reach the one container main1.",
        ),
        ({"main": {"replicas": 0}}, "session_roles.main.replicas: 0 must be a whole number from 1 to 1024."),
        (
            {"main": {}, "worker": {"replicas": 0}},
            "session_roles.worker.replicas: 0 must be a whole number from 1 to 1024.",
        ),
        ({"main": {}, "worker": {"replicas": None}}, "session_roles.worker.replicas is required."),
        (
            {"main": {}, "worker": {"replicas": 1024}},
            "session_roles: 1025 containers are requested, a session has at most 1024.",
        ),
        (
            {"main": {"replica": 1, "cpu": 2}},
            (
                "session_roles.main.cpu is not known; allowed are replicas, image, resources, env.\n"
                "session_roles.main.replica is not known; allowed are replicas, image, resources, env."
            ),
        ),
        (
            {"main": {}, "worker": {"apps": [{"name": "jupyter", "port": 8888}]}},
            "session_roles.worker.apps: only main1 has apps; list them in session_apps.",
        ),
        (
            {"main": {"apps": [], "app": 1}},
            (
                "session_roles.main.apps: only main1 has apps; list them in session_apps.\n"
                "session_roles.main.app is not known; allowed are replicas, image, resources, env."
            ),
        ),
        ({"main": {"image": ["a"]}}, "session_roles.main.image: ['a'] must be a line of text."),
        ({"main": {"resources": "4"}}, "session_roles.main.resources must be a mapping."),
        ({"main": {"resources": {"cpu": 0}}}, "session_roles.main.resources.cpu: 0 must be at least 1."),
        (
            {"main": {"resources": {"cpu": 10**400}}},
            f"session_roles.main.resources.cpu: 1{'0' * 79}… must be at most 9223372036854775807.",
        ),
        ({"main": {"resources": {"mem": "1m"}}}, "session_roles.main.resources.mem: 1048576 must be at least 16m."),
        (
            {"main": {"resources": {"cuda.device": 0.5}}},
            "session_roles.main.resources.cuda.device: 0.5 must be a whole number, zero or more.",
        ),
        (
            {"main": {"resources": {"shmem": "2g"}}},
            "session_roles.main.resources.shmem is part of mem and must not be larger than mem.",
        ),
        ({"main": {"env": "A=hunter2"}}, "session_roles.main.env must be a mapping."),
        (
            {"main": {"env": {"BACKENDAI_X": "hunter2"}}},
            "session_roles.main.env.BACKENDAI_X: names that begin with BACKENDAI_ are reserved for the session.",
        ),
    ],
)
def test_each_invalid_role_has_one_message(roles: Any, sentence: str) -> None:
    assert refusal(roles=roles) == sentence


def test_a_size_that_contradicts_the_roles_is_rejected() -> None:
    assert refusal(roles={"main": {}, "worker": {"replicas": 3}}, cluster_size=3) == (
        "session_cluster_size: 3 contradicts session_roles with 4 containers; omit it."
    )


def test_a_missing_image_is_reported_once_with_any_roles() -> None:
    assert refusal(roles={"main": {}, "worker": {}}, image=None) == "session_image is required."


def test_identical_containers_are_one_main_and_subs() -> None:
    assert build_default_roles(1, IMAGE, {"cpu": 1}, {}) == (Role("main", 1, IMAGE, {"cpu": 1}, {}),)
    assert [(role.name, role.replicas) for role in build_default_roles(4, IMAGE, {}, {})] == [("main", 1), ("sub", 3)]
    assert spec(cluster_size=3).effective_roles == build_default_roles(3, IMAGE, {"cpu": 1, "mem": GIB}, {})


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"image": "lab/../python"}, "session_image: 'lab/../python'"),
        ({"roles": {"main": {"image": "lab//x"}}}, "session_roles.main.image: 'lab//x'"),
    ],
)
def test_image_without_a_name_is_refused_where_it_is_given(changes: dict[str, Any], where: str) -> None:
    assert refusal(**changes).startswith(f"{where} must be the name of an image such as registry.example.com/team/")
