"""The request for a token."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.validation import (
    ValidationError,
    ValidationErrors,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.token import TokenRequest, parse_token_request
from tests.unit.builders import SESSION_ID


def token_request(args: dict[str, Any]) -> TokenRequest:
    """Return the request for a token with these options."""
    problems = ValidationErrors()
    request = parse_token_request(problems, args)
    problems.raise_if_any()
    return request


ASKED = {"name": "train-llm", "ttl": "60", "path": "x.token"}


def test_strings_are_parsed_and_the_lifetime_defaults_to_an_hour() -> None:
    assert token_request(ASKED) == TokenRequest("train-llm", "", 60, "x.token")
    by_id = {"session_id": SESSION_ID, "path": "x.token"}
    assert token_request(by_id) == TokenRequest("", SESSION_ID, 3600, "x.token")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"name": ""}, "session_name: '' must have 2 to 64 characters"),
        ({"name": "x"}, "session_name: 'x' must have 2 to 64 characters"),
        ({"session_id": "x"}, "session_id: 'x' must be the id of a session"),
        ({"ttl": 59}, "session_token_ttl: 59 must be a whole number from 60 to 2592000."),
        ({"ttl": 2592001}, "session_token_ttl: 2592001 must be a whole number from 60 to 2592000."),
        ({"path": ""}, "session_token_path is required."),
    ],
)
def test_each_invalid_option_has_one_message(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        token_request({**ASKED, **changes})
    assert str(refusal.value).startswith(sentence)
    assert "\n" not in str(refusal.value)
