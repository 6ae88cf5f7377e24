"""Text from hosts and containers, as a terminal may get it."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.printable import (
    printable,
    printable_data,
    printable_line,
)

UNSAFE = {
    "\x1b[2J\x1b[31m": "\\x1b[2J\\x1b[31m",
    "\x1b]0;owned\x07": "\\x1b]0;owned\\x07",
    "\x1b]8;;http://x\x1b\\here": "\\x1b]8;;http://x\\x1b\\here",
    "10%\r20%\b\x00\x7f": "10%\\r20%\\x08\\x00\\x7f",
    "\x9b31m\x85\x90": "\\x9b31m\\x85\\x90",
    "\u202etxt.exe\u2066\u2069\u200f\u061c": "\\u202etxt.exe\\u2066\\u2069\\u200f\\u061c",
    "\u2028\u2029\ufeff\ud800": "\\u2028\\u2029\\ufeff\\ud800",
    "\U000e0041": "\\U000e0041",
}
SAFE = "caf\u00e9 \u65e5\u672c \U0001f469\u200d\U0001f4bb\u00a0…\n\tnext \\x1b"


@pytest.mark.parametrize(("text", "shown"), UNSAFE.items())
def test_unsafe_characters_are_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable_data({text: [{"a": text}]}) == {shown: [{"a": shown}]}


def test_a_line_stays_one() -> None:
    assert printable_line("a\tb\nc\rd\x1b\r") == "a\tb\\nc\\rd\\x1b"


def test_all_other_text_remains() -> None:
    assert printable(SAFE) == SAFE


def test_no_character_that_a_terminal_obeys_remains() -> None:
    text = printable("".join(map(chr, range(sys.maxunicode + 1))))
    text.encode()
    assert not {*map(chr, range(32)), *map(chr, range(127, 160))} - {"\n", "\t"} & {*text}


def test_other_values_remain() -> None:
    data: dict[str, Any] = {"a": [1, 1.5, None, True, {"b": []}]}
    assert printable_data(data) == data


def test_what_a_user_gave_for_a_plan_remains() -> None:
    given = "printf '\x1b[1m'"
    plan: dict[str, Any] = {
        "command": given,
        "apps": [{"name": "\x1b", "command": given}],
        "mounts": [{"source": "\r"}],
    }
    kept = {"command": given, "apps": [{"name": "\\x1b", "command": given}], "mounts": [{"source": "\r"}]}
    assert printable_data({"plan": plan, "command": given}) == {"plan": kept, "command": "printf '\\x1b[1m'"}


@pytest.mark.parametrize("text", [*UNSAFE, *map(chr, range(32)), "\x7f", "\x80", "\ufeff"])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_json_text_with_something_unsafe_is_noticed(text: str, ascii_only: bool) -> None:
    raw = json.dumps([text], ensure_ascii=ascii_only)
    assert printable_data(json.loads(raw), raw) == [printable(text)]


def test_data_whose_json_is_safe_is_not_copied() -> None:
    data = {"a": ['safe "text"\n\t\\']}
    assert printable_data(data, json.dumps(data)) is data
