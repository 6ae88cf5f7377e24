"""Versions of state files: newer and damaged ones are refused."""

from __future__ import annotations

import dataclasses
import json

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.state_format import StateFormat
from ansible_collections.backendai.cluster.plugins.module_utils._model.strict_json import parse_json


@dataclasses.dataclass(frozen=True)
class Content:
    """The content of a file."""

    seconds: int


FORMAT = StateFormat("the content", Content)


def test_a_file_has_a_version_and_comes_back_as_it_was_written() -> None:
    text = FORMAT.dump(Content(7))
    assert json.loads(text) == {"version": 3, "seconds": 7}
    assert FORMAT.load(text) == FORMAT.load(text.encode()) == Content(7)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"version": 4, "seconds": 7}', "written by a newer release, with state version 4: update backendai.cluster"),
        ('{"version": 2, "seconds": 7}', "written before 0.2.0: see the changelog"),
        ('{"seconds": 7}', "written before 0.2.0: see the changelog"),
        ('{"version": true, "seconds": 7}', "its version is not a number from 1"),
        ('{"version": -1}', "its version is not a number from 1"),
        ('{"version": 3}', "the content: seconds is missing"),
        ("[]", "the content is not a mapping"),
        ("[" * 100_000, "it has too many levels"),
        ("\ufeff{}", "Unexpected UTF-8 BOM"),
        ('{"seconds": NaN}', "NaN is not a number of JSON"),
        ('{"seconds": -Infinity}', "-Infinity is not a number of JSON"),
        ('{"seconds": 1e999}', "a number is too large"),
        ('{"\\ud800": 1}', "it contains half of a surrogate pair"),
    ],
)
def test_other_content_is_refused_in_one_phrase(text: str, problem: str) -> None:
    for content in (text, text.encode()):
        with pytest.raises(ValueError, match=r"\w") as refused:
            FORMAT.load(content)
        assert str(refused.value).startswith(problem)


@pytest.mark.parametrize("text", [b"\xed\xa0\x80", "{}".encode("utf-16"), '"\ud800"'])
def test_only_utf_8_is_read(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_json(text)
    assert parse_json('"\\ud83d\\udca5"') == "\U0001f4a5"
