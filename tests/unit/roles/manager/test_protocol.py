"""What the manager's part takes as a request, and what it refuses with a sentence."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backendai_manager.errors import RefusedError
from backendai_manager.protocol import (
    MAX_REQUEST,
    VERBS,
    Request,
    Result,
    event_line,
    parse_answer,
    parse_request,
    request_line,
    result_line,
)


def test_a_request_has_a_verb_and_its_fields_with_their_defaults() -> None:
    assert parse_request(b'{"verb": "end", "session": "train"}') == Request(
        "end", {"session": "train", "force": False, "confirmed": True}
    )
    assert parse_request(b'{"verb": "agents"}') == Request("agents", {})


def test_what_the_users_part_sends_is_what_the_other_reads() -> None:
    options = {"name": "train", "env": {"WORD": "naïve"}}
    line = request_line("create", {"options": options, "wait": 5})
    assert parse_request(line).fields == {
        "options": options,
        "dry_run": False,
        "wait": 5,
        "wait_for_hosts": False,
    }
    assert parse_answer(event_line("line", {"text": "\udcff"})) == {"event": "line", "text": "\udcff"}
    assert parse_answer(result_line(Result("done", "x", {"a": 1}))) == Result("done", "x", {"a": 1})


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b"\x00\xff\x80", "the request is not a line of JSON in UTF-8."),
        (b"", "the request is not a line of JSON in UTF-8."),
        (b'{"verb": "end", "session": "\\ud800abc"}', "the request is not a line of JSON in UTF-8."),
        (b"[" * 100_000, "the request is not a line of JSON in UTF-8."),
        (b'{"verb": "end", "session": NaN}', "the request is not a line of JSON in UTF-8."),
        (b"1" * 5000, "the request is not a line of JSON in UTF-8."),
        (b"[]", "the request is not a mapping."),
        (b" " * (MAX_REQUEST + 1), f"the request is larger than {MAX_REQUEST} bytes."),
        (
            b'{"verb": "end", "session": "train", "user": "bob"}',
            "end has no field 'user'; its fields are session, force, confirmed.",
        ),
        (b'{"verb": "agents", "session": "train"}', "agents has no field 'session'; its fields are none."),
    ],
)
def test_a_line_that_is_no_request_is_refused(line: bytes, sentence: str) -> None:
    with pytest.raises(RefusedError) as refusal:
        parse_request(line)
    assert str(refusal.value) == sentence


@pytest.mark.parametrize("verb", [None, 1, ["end"], {"end": 1}, "reboot", "__class__", ""])
def test_other_verbs_are_refused(verb: Any) -> None:
    with pytest.raises(RefusedError, match=r"the request has none of the verbs create, list"):
        parse_request(json.dumps({"verb": verb}).encode())


SESSIONS: list[Any] = [
    "../train",
    "train/../bob",
    "-rf",
    "a",
    "Train",
    "x" * 65,
    "train\n",
    "{{ 7 }}",
    "tra in",
    None,
    1,
    ["train"],
    True,
]
BAD_HOSTS: list[Any] = ["../main1", "Main1", "main1 --", None, 1, "x" * 80]
BAD_LINES: list[Any] = [0, -1, 100_001, "5", 1.5, True, None, []]
NO_MAPPINGS: list[Any] = ["{}", [], None, 1]
NO_FLAGS: list[Any] = [1, "yes", None]
BAD_FIELDS: list[tuple[str, str, Any]] = [
    *(("end", "session", value) for value in SESSIONS),
    *(("access", "session", value) for value in SESSIONS),
    *(("logs", "host", value) for value in BAD_HOSTS),
    *(("logs", "lines", value) for value in BAD_LINES),
    *(("create", "wait", value) for value in (-1, 10**9, "5", True)),
    *(("token", "seconds", value) for value in (59, 10**7, "60", None)),
    *(
        (verb, field, value)
        for verb, field in (("end", "force"), ("repair", "fresh_home"), ("list", "all"), ("list", "cached"))
        for value in NO_FLAGS
    ),
    *(("create", "options", value) for value in NO_MAPPINGS),
]


@pytest.mark.parametrize(("verb", "field", "value"), BAD_FIELDS)
def test_a_field_of_another_kind_is_refused_by_its_name(verb: str, field: str, value: Any) -> None:
    fields: dict[str, Any] = {"create": {"options": {}}, "list": {}}.get(verb, {"session": "train"})
    with pytest.raises(RefusedError, match=rf"{verb}: {field} must be"):
        parse_request(json.dumps({"verb": verb, **fields, field: value}).encode())


@given(
    st.binary(max_size=200)
    | st.dictionaries(
        st.sampled_from(["verb", *VERBS, "session", "options"]), st.sampled_from([*VERBS]) | st.text()
    ).map(lambda data: json.dumps(data).encode())
)
def test_any_line_is_a_request_or_is_refused(line: bytes) -> None:
    with contextlib.suppress(RefusedError):
        assert parse_request(line).verb in VERBS


@pytest.mark.parametrize("line", [b"Traceback (most recent call last):", b"[]", b"{}", b'{"event": 1}'])
def test_an_answer_of_another_kind_is_recognized(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"not a mapping|neither an event|Expecting value"):
        parse_answer(line)


def test_each_status_has_an_exit_code() -> None:
    assert [Result(status).exit_code for status in ("done", "failed", "refused", "pending", "?")] == [0, 1, 2, 3, 1]
