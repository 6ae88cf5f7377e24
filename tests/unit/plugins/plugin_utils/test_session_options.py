"""The options of a session, typed as specified by the role."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.validation import ValidationErrors
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.value_types import TIME_OPTIONS
from ansible_collections.backendai.cluster.plugins.plugin_utils.session_options import (
    check_unknown_variables,
    parse_options,
    specification,
)
from tests.unit.builders import DEFAULTS, options

SECRET = "hunter2"
TIME_RULE = "must be whole seconds, or a time such as 30s, 90m, 12h, 7d or 1d12h"


def test_what_is_not_given_has_the_roles_default() -> None:
    problems = ValidationErrors()
    values = parse_options(problems, {"session_name": "train-llm", "session_image": "x:1"})
    defaults = {name.removeprefix("session_"): value for name, value in DEFAULTS.items()}
    assert (values, str(problems)) == ({**defaults, "name": "train-llm", "image": "x:1"}, "")


def test_an_option_with_a_problem_has_its_default_and_a_required_one_none() -> None:
    problems, values = options(image=["x"], priority="high")
    assert (values["image"], values["priority"], len(str(problems).splitlines())) == (None, 10, 2)


def test_what_is_left_out_is_not_checked() -> None:
    problems = ValidationErrors()
    values = parse_options(problems, {"session_priority": "high"}, ["name", "image", "priority"])
    assert (values["name"], values["priority"], str(problems)) == (None, "high", "")


@pytest.mark.parametrize(
    ("option", "raw", "taken"),
    [
        ("cluster_size", " 4 ", 4),
        ("infiniband", "Yes", True),
        ("max_lifetime", "1d12h", 129600),
        ("idle_timeout", "90m", 5400),
        ("pending_timeout", "7d", 604800),
        ("stop_grace", "2m", 120),
        ("max_lifetime_limit", " 3600 ", 3600),
        ("idle_timeout_limit", "12h", 43200),
        ("resources", '{"cpu": 2}', {"cpu": 2}),
        ("designated_agents", "agent1,agent2", ["agent1", "agent2"]),
        ("designated_agents", '["agent1"]', ["agent1"]),
        ("authorized_keys", "ssh-ed25519 A a, b\nssh-ed25519 B", ["ssh-ed25519 A a, b", "ssh-ed25519 B"]),
        (
            "mounts",
            '[{"source": "/a", "target": "/b"}]',
            [{"source": "/a", "target": "/b", "read_only": False, "strict": False}],
        ),
        ("record_path", "~/$HOME", "~/$HOME"),
        ("architecture", None, ""),
    ],
)
def test_text_is_read_as_the_type_of_the_option(option: str, raw: Any, taken: Any) -> None:
    problems, values = options(**{option: raw})
    assert (values[option], str(problems)) == (taken, "")


@pytest.mark.parametrize(
    ("option", "raw", "sentence"),
    [
        ("cluster_size", 1.0, "session_cluster_size: 1.0 must be a whole number."),
        ("cluster_size", "1e2", "session_cluster_size: '1e2' must be a whole number."),
        ("cluster_size", True, "session_cluster_size: True must be a whole number."),
        *(
            ("max_lifetime", raw, f"session_max_lifetime: {raw!r} {TIME_RULE}.")
            for raw in ("7 weeks", "-1h", "1.5", "h", "12x", True, [60])
        ),
        ("infiniband", "y", "session_infiniband: 'y' must be true or false."),
        ("infiniband", 1.0, "session_infiniband: 1.0 must be true or false."),
        ("resources", "cpu=4", "session_resources: 'cpu=4' must be a mapping."),
        ("resources", "{'cpu': 4}", "session_resources: \"{'cpu': 4}\" must be a mapping."),
        ("resource_group", ["a"], "session_resource_group: ['a'] must be a line of text."),
        ("architecture", " ", "session_architecture: ' ' must be a line of text."),
        ("queue_policy", "fifo\n", "session_queue_policy: 'fifo\\n' must be a line of text."),
        ("designated_agents", 4, "session_designated_agents: 4 must be a list of texts."),
        ("mounts", "/a", "session_mounts: '/a' must be a list of mappings."),
    ],
)
def test_a_value_that_ansible_would_convert_wrongly_is_refused(option: str, raw: Any, sentence: str) -> None:
    assert str(options(**{option: raw})[0]) == sentence


@pytest.mark.parametrize("raw", [SECRET, [SECRET], f'{{"A": {SECRET}', 7, None, {"A": [SECRET]}, [{"port": SECRET}]])
@pytest.mark.parametrize("option", [name for name, option in specification().items() if option.get("no_log")])
def test_errors_show_no_secret_values(option: str, raw: Any) -> None:
    value = raw if option != "session_apps" else [{"name": "web", "port": 80, "command": raw}]
    message = str(options(**{option.removeprefix("session_"): value})[0])
    assert SECRET not in message
    assert message == "" or message.startswith(option)


@pytest.mark.parametrize("option", ["registries", "env", "roles", "command", "bootstrap_script", "apps"])
def test_what_may_be_secret_is_specified_as_that(option: str) -> None:
    assert specification()[f"session_{option}"]["no_log"] is True


def test_each_option_that_is_a_time_is_specified_as_text() -> None:
    assert {name: specification()[name]["type"] for name in TIME_OPTIONS} == dict.fromkeys(TIME_OPTIONS, "str")


def test_everything_is_plain_data() -> None:
    values = options(mounts=[{"source": "/a", "target": "/b"}])[1]
    assert json.loads(json.dumps(values)) == values


@pytest.mark.parametrize(
    ("variable", "sentence"),
    [
        ("session_token_tll", "session_token_tll is not an option of a session; did you mean session_token_ttl?"),
        ("session_zzz", f"session_zzz is not an option of a session; allowed are {', '.join(specification())}."),
        ("session_token_ttl", ""),
        ("token_tll", ""),
    ],
)
def test_an_unknown_variable_is_refused(variable: str, sentence: str) -> None:
    problems = ValidationErrors()
    check_unknown_variables(problems, {variable: 60})
    assert str(problems) == sentence


@pytest.mark.parametrize(
    "changes",
    [{"command": "\udc80"}, {"env": {"A": "\ud800"}}, {"env": {"\ud800": "A"}}, {"designated_agents": ["\udcff"]}],
)
def test_text_that_cannot_be_written_is_refused(changes: dict[str, Any]) -> None:
    (option,) = changes
    problems, _values = options(**changes)
    sentence = f"session_{option} has a character that UTF-8 does not have, such as a byte of another encoding."
    assert str(problems) == sentence


def test_empty_text_stands_for_the_default() -> None:
    cleared = dict.fromkeys([name for name in specification() if name not in ("session_name", "session_image")], "")
    problems, defaults = options()
    values = parse_options(problems, {**cleared, "session_name": "train-llm", "session_image": "lab/python:1"})
    assert (str(problems), values) == ("", defaults)
