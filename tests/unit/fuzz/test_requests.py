"""Whatever the variables of a run are, they are a request or refused, and no host is contacted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.backendai.cluster.plugins.module_utils._model.validation import (
    ValidationError,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils import run_request
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.spec import (
    changed_options,
    check_designated_agents,
    check_spec,
    spec_from_dict,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils.public_keys import check_public_keys
from tests.unit.builders import variables
from tests.unit.fuzz.mutations import JUNK, assert_sentence, damaged, fuzz

WHOLE = variables(
    cluster_size=3,
    cluster_mode="multi-node",
    resources={"cpu": 2, "mem": "2g", "shmem": "1g", "cuda.device": 1},
    roles={"main": {"resources": {"shmem": 0}}, "worker": {"replicas": 2, "image": "lab/busybox:1", "env": {"A": "b"}}},
    env={"TOKEN": "hunter2", "N": 1},
    mounts=[{"source": "/srv/data", "target": "/data", "read_only": True}],
    apps=[{"name": "web", "port": 8080, "protocol": "http", "command": "python -m http.server"}],
    command="true",
    authorized_keys=["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGpl8Ya1H0qJWlaQxb8J5o8zR6dhQ0jzJ1E1gJ0cV7cR me"],
    designated_agents=["agent1"],
    registries={"registry.example.org": {"username": "me", "password": "hunter2"}},
)


@fuzz
@given(damaged(WHOLE), st.sampled_from(["create", "terminate", "verify", "logs", "schedule"]))
def test_any_variables_are_a_request_or_refused(given_variables: Any, purpose: str) -> None:
    listed = given_variables if isinstance(given_variables, dict) else {}
    try:
        spec, _run, _pools = run_request.parse_request(listed, purpose)
        if spec is not None:
            check_public_keys(spec.authorized_keys)
            check_designated_agents(spec, ["agent1"])
    except ValidationError as error:
        assert_sentence(error)
        return
    if spec is not None:
        stored = spec_from_dict(run_request.dataclasses.asdict(spec))
        assert stored == spec
        check_spec(stored)
        assert changed_options(spec, spec) == []


@pytest.mark.parametrize("name", sorted(WHOLE))
@settings(fuzz, max_examples=max(10, fuzz.max_examples // 20))
@given(value=JUNK)
def test_any_value_of_one_option_is_parsed_or_refused(name: str, value: Any) -> None:
    try:
        run_request.parse_request({**WHOLE, name: value}, "create")
    except ValidationError as error:
        assert_sentence(error)
