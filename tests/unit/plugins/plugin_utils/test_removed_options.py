"""A removed option or value is refused with one sentence that says what to use instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.backendai.cluster.plugins.module_utils._model.validation import ValidationErrors
from ansible_collections.backendai.cluster.plugins.plugin_utils import session_options
from ansible_collections.backendai.cluster.plugins.plugin_utils.removed_options import (
    REMOVED_OPTIONS,
    REMOVED_VALUES,
    describe_removed_options,
    describe_removed_value,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils.session_options import (
    check_unknown_variables,
    check_user_options,
    parse_options,
    specification,
)
from tests.unit.builders import REPOSITORY

DRIVER = "session_network_driver"


REMOVED = [(option, value) for option, values in REMOVED_VALUES.items() for value in values]


def test_every_removed_value_is_refused_with_what_to_use_instead() -> None:
    for option, value in REMOVED:
        problems, instead = ValidationErrors(), REMOVED_VALUES[option][value]
        parse_options(problems, {"session_name": "train", "session_image": "lab/python:1", option: value})
        assert str(problems) == f"{option}: {value!r} was removed: {instead}."


def role_options() -> dict[str, list[str]]:
    """Return the choices of each option of all roles, an empty list for one without."""
    texts = [path.read_text() for path in REPOSITORY.glob("roles/*/meta/argument_specs.yml")]
    options = [yaml.safe_load(text)["argument_specs"]["main"]["options"] for text in texts]
    return {name: option.get("choices", []) for role in options for name, option in role.items()}


def former_options() -> dict[str, list[str]]:
    """Return the same at commit 4a70437c, before the first was removed, from its list ``NAME`` or ``NAME=CHOICE|…``."""
    words = Path(__file__).with_name("former_options.txt").read_text().split()
    return {name: [*filter(None, choices.split("|"))] for name, _equals, choices in (w.partition("=") for w in words)}


def test_what_is_no_option_or_value_any_more_is_in_the_table_and_nothing_else() -> None:
    former = former_options()
    today = role_options()
    assert REMOVED_OPTIONS.keys() == former.keys() - today.keys()
    kept = {name: choices for name, choices in former.items() if today.get(name)}
    gone = {(name, value) for name, choices in kept.items() for value in {*choices} - {*today[name]}}
    assert {*REMOVED} == gone


def test_the_description_of_an_option_says_what_was_removed_for_ansible_names_only_what_is_allowed() -> None:
    for option, value in REMOVED:
        sentence = f"V({value}) was removed; {REMOVED_VALUES[option][value]}."
        assert sentence in specification()[option]["description"]


@pytest.mark.parametrize("value", ["vxlan", ["swarm"], None, {"swarm": 1}], ids=repr)
def test_other_values_were_not_removed(value: Any) -> None:
    assert describe_removed_value(DRIVER, value) == ""


def test_a_removed_option_is_described_with_what_to_use_instead() -> None:
    for option, instead in REMOVED_OPTIONS.items():
        assert describe_removed_options(["agent_labels", option]) == [f"{option} was removed: {instead}."]


def test_a_removed_option_of_a_session_is_refused_with_what_to_use_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_options, "REMOVED_OPTIONS", {"session_page": "use session_page_path"})
    variables, options = ValidationErrors(), ValidationErrors()
    check_unknown_variables(variables, {"session_page": "x"})
    check_user_options(options, {"session_page": "x"}, {})
    sentence = "is not an option of a session; it was removed: use session_page_path."
    assert str(variables) == f"session_page {sentence}"
    assert str(options) == f"session_request_path: 'session_page' {sentence}"
