"""A removed option or value is refused with one sentence that says what to use instead."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.module_utils._model.validation import ValidationErrors
from ansible_collections.backendai.cluster.plugins.plugin_utils import session_options
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.removed_options import (
    REMOVED_OPTIONS,
    REMOVED_VALUES,
    describe_removed_options,
    describe_removed_value,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils.host_request import coerce_variables
from ansible_collections.backendai.cluster.plugins.plugin_utils.session_options import (
    check_unknown_variables,
    check_user_options,
    parse_options,
    specification,
)
from tests.unit.builders import REPOSITORY

DRIVER = "session_network_driver"


def test_every_removed_value_is_refused_with_what_to_use_instead() -> None:
    for (option, value), instead in REMOVED_VALUES.items():
        problems = ValidationErrors()
        parse_options(problems, {"session_name": "train", "session_image": "lab/python:1", option: value})
        assert str(problems) == f"{option}: {value!r} was removed: {instead}."


def role_options() -> set[str]:
    """Return the options of all roles."""
    texts = [path.read_text() for path in REPOSITORY.glob("roles/*/meta/argument_specs.yml")]
    return {name for text in texts for name in yaml.safe_load(text)["argument_specs"]["main"]["options"]}


def test_no_removed_option_or_value_is_one_that_is_there() -> None:
    assert REMOVED_OPTIONS.keys().isdisjoint(role_options())
    assert not [value for option, value in REMOVED_VALUES if value in specification()[option]["choices"]]


@pytest.mark.parametrize("value", ["vxlan", ["swarm"], None, {"swarm": 1}], ids=repr)
def test_other_values_were_not_removed(value: Any) -> None:
    assert describe_removed_value(DRIVER, value) == ""


@pytest.mark.parametrize("option", REMOVED_OPTIONS)
def test_a_removed_option_of_a_host_is_refused_with_what_to_use_instead(option: str) -> None:
    (sentence,) = describe_removed_options(["agent_labels", option, "session_name"])
    assert sentence == f"{option} was removed: {REMOVED_OPTIONS[option]}."
    prefix = f"{option.partition('_')[0]}_"
    with pytest.raises(AnsibleActionFail) as refused:
        coerce_variables({}, prefix, {option: "x"}, lambda value: value)
    assert str(refused.value) == sentence
    assert coerce_variables({}, "other_", {option: "x"}, lambda value: value) == {}


def test_a_removed_option_of_a_session_is_refused_with_what_to_use_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_options, "REMOVED_OPTIONS", {"session_page": "use session_page_path"})
    variables, options = ValidationErrors(), ValidationErrors()
    check_unknown_variables(variables, {"session_page": "x"})
    check_user_options(options, {"session_page": "x"}, {})
    sentence = "is not an option of a session; it was removed: use session_page_path."
    assert str(variables) == f"session_page {sentence}"
    assert str(options) == f"session_request_path: 'session_page' {sentence}"
