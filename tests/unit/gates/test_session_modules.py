"""The options of the modules about sessions are those of the role."""

from __future__ import annotations

import importlib
import re

import pytest
import yaml

from ansible_collections.backendai.cluster.plugins.plugin_utils.session_options import specification
from tests.gates import session_modules
from tests.unit.builders import REPOSITORY


@pytest.fixture(autouse=True)
def _in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)


@pytest.mark.parametrize("module", ["session", "queue"])
def test_what_is_committed_is_generated(module: str) -> None:
    committed = (REPOSITORY / f"plugins/modules/{module}.py").read_text()
    assert committed == session_modules.updated(module), "run make modules"


@pytest.mark.parametrize("module", ["session", "queue"])
def test_options_are_those_of_the_role_by_their_short_names(module: str) -> None:
    name = f"ansible_collections.backendai.cluster.plugins.modules.{module}"
    options = yaml.safe_load(importlib.import_module(name).DOCUMENTATION)["options"]
    options.pop("state", None)
    assert {f"session_{option}" for option in options} <= {*specification()}
    assert {option: options[option]["type"] for option in ("queue_path", "claim_ttl", "registries")} == {
        "queue_path": "path",
        "claim_ttl": "str",
        "registries": "dict",
    }


def test_a_reference_is_to_an_option_of_the_module_or_to_a_variable() -> None:
    options = session_modules.options_of("queue")
    text = " ".join(line for option in options.values() for line in option["description"])
    assert {*re.findall(r"\bO\((\w+)", text)} <= {*options}
    assert "C(session_failure_policy=terminate)" in text


def test_options_that_one_session_has_no_use_for_are_left_out() -> None:
    assert not {"list_path", "logs_follow", "token_ttl", "request_path"} & {*session_modules.options_of("session")}
