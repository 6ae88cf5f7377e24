"""Versions of state files: older ones are migrated, newer and damaged ones refused."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.state_format import StateFormat
from ansible_collections.backendai.cluster.plugins.module_utils._model.strict_json import parse_json


@dataclasses.dataclass(frozen=True)
class Content:
    """The newest content: version 1 had the number as text, version 2 called it ``wait``."""

    seconds: int


def _to_number(data: dict[str, Any]) -> dict[str, Any]:
    return {"wait": int(data["seconds"])}


def _rename(data: dict[str, Any]) -> dict[str, Any]:
    return {"seconds": data["wait"]}


FORMAT = StateFormat("the content", Content, (_to_number, _rename))


@pytest.mark.parametrize(
    "data",
    [{"seconds": "7"}, {"version": 1, "seconds": "7"}, {"version": 2, "wait": 7}, {"version": 3, "seconds": 7}],
    ids=["unversioned", "first", "second", "newest"],
)
def test_older_versions_are_migrated(data: dict[str, Any]) -> None:
    assert FORMAT.load(json.dumps(data)) == FORMAT.load(json.dumps(data).encode()) == Content(7)


def test_a_file_has_the_newest_version_unless_an_older_one_will_do() -> None:
    assert json.loads(FORMAT.dump(Content(7))) == {"version": 3, "seconds": 7}
    assert json.loads(FORMAT.dump(Content(7), 2))["version"] == 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"version": 4, "seconds": 7}', "written by a newer release, with state version 4: update backendai.cluster"),
        ('{"version": true, "seconds": 7}', "its version is not a number from 1"),
        ('{"version": -1}', "its version is not a number from 1"),
        ('{"version": 2}', "it does not match its version, 2"),
        ('{"version": 1, "seconds": null}', "it does not match its version, 1"),
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
