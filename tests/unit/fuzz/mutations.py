"""Damaged documents: a valid one, with values replaced, removed and added at random."""

from __future__ import annotations

import copy
import json
import math
import os
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

# `FUZZ_EXAMPLES=20000 .venv/bin/pytest tests/unit/fuzz` tries as many documents of each kind, others in each run.
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "0"))
fuzz = settings(max_examples=EXAMPLES or 40, derandomize=not EXAMPLES, database=None, deadline=None)

_TEXTS = st.sampled_from(
    [
        *("", " ", "x", "-", "0", "-1", "1e9", "nan", "true", "null", "..", "../../etc/passwd", "a/b", "/", "//x"),
        *("\n", "a\nb", "\0", "\x1b[2J", "\ud800", "é", "💥", "x" * 300, "[1]", '{"a": 1}', "{{ 1 }}", "%s", "{name}"),
        *("main1", "agent1", "running", "5f0c6a52-3c0e-4f5e-9d0a-0f3c1d2e4b6a", "192.0.2.1:5000", "10.0.0.0/8", "::1"),
    ]
)
_NUMBERS = st.sampled_from(
    [
        *(0, 1, -1, 2, 7, 22, 65536, 1 << 31, 1 << 63, 1 << 64, 10**30, -(10**30), 10**400, -(10**400)),
        *(0.5, -0.0, 1e11, 1e12, 1e18, 1e300, -1e300, math.nan, math.inf, -math.inf),
    ]
)
_DEEP: Any = 0
for _level in range(150):
    _DEEP = [_DEEP]
_LEAVES = st.none() | st.booleans() | _NUMBERS | _TEXTS
JUNK = _LEAVES | st.sampled_from([[], {}, [[]], [None], {"": None}, {"a": {"b": 1}}, _DEEP])


@st.composite
def damaged(draw: st.DrawFn, document: Any, most: int = 3) -> Any:
    """Return a document with up to ``most`` changes."""
    holder = {"": copy.deepcopy(document)}
    for _change in range(draw(st.integers(0, most))):
        _change_one(draw, holder)
    return holder[""]


def _change_one(draw: st.DrawFn, holder: dict[str, Any]) -> None:
    """Replace, remove or add one value, somewhere."""
    parent: Any = holder
    key: Any = ""
    while isinstance(parent[key], (dict, list)) and parent[key] and draw(st.integers(0, 5)):
        parent = parent[key]
        key = draw(st.sampled_from(sorted(parent, key=str) if isinstance(parent, dict) else range(len(parent))))
    action = draw(st.sampled_from(["replace", "alike", "alike", "remove", "add"]))
    value = parent[key]
    if action == "remove" and parent is not holder:
        del parent[key]
    elif action == "add" and isinstance(value, list):
        again = bool(value) and draw(st.booleans())
        item: st.SearchStrategy[Any] = st.sampled_from(value) if again else JUNK
        value.append(copy.deepcopy(draw(item)))
    elif action == "add" and isinstance(value, dict):
        value[draw(_TEXTS)] = copy.deepcopy(draw(JUNK))
    elif action == "alike" and isinstance(value, str):
        parent[key] = draw(_TEXTS)
    elif action == "alike" and isinstance(value, (int, float)) and not isinstance(value, bool):
        parent[key] = draw(_NUMBERS)
    else:
        parent[key] = copy.deepcopy(draw(JUNK))


@st.composite
def damaged_text(draw: st.DrawFn, document: Any) -> bytes:
    """Return a damaged document as the content of a file; now and then the text itself is damaged, too."""
    content = json.dumps(draw(damaged(document))).encode()
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return content[: draw(st.integers(0, len(content)))]
    if kind == 1:
        at = draw(st.integers(0, len(content) - 1))
        return content[:at] + draw(st.binary(min_size=1, max_size=4)) + content[at + 1 :]
    return content


def assert_sentence(error: BaseException | str) -> None:
    """Fail unless an error is text for the operator: no name of a Python class or object, no control character."""
    text = str(error)
    assert text.strip(), repr(error)
    for trace in ("Traceback", "object at 0x", "NoneType", "unhashable", "<class", "argument(s)", "__init__"):
        assert trace not in text, text
