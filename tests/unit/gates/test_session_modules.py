"""The options of the modules about sessions are those of the role."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.plugin_utils.session_options import specification
from tests.gates.session_modules import FRAGMENT, OTHERS, PASS, SESSION, options_in, updated
from tests.unit.builders import REPOSITORY


@pytest.fixture(autouse=True)
def _in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)


@pytest.mark.parametrize("path", [SESSION, FRAGMENT], ids=str)
def test_what_is_committed_is_generated(path: Path) -> None:
    assert path.read_text() == updated(path), "run make modules"


def test_options_are_those_of_the_role_by_their_short_names() -> None:
    own, common = options_in(SESSION), options_in(FRAGMENT)
    assert {f"session_{option}" for option in (*own, *common)} == {*specification()} - {f"session_{n}" for n in OTHERS}
    assert [*common] == [*PASS]
    assert {option: common[option]["type"] for option in ("queue_path", "claim_ttl", "registries")} == {
        "queue_path": "path",
        "claim_ttl": "str",
        "registries": "dict",
    }


def test_no_option_is_documented_twice() -> None:
    assert not {*options_in(SESSION)} & {*options_in(FRAGMENT)}


def test_a_reference_is_to_an_option_of_the_module_or_to_a_variable() -> None:
    options = options_in(FRAGMENT)
    text = " ".join(line for option in options.values() for line in option["description"])
    assert {*re.findall(r"\bO\((\w+)", text)} <= {*options}
    assert "C(session_failure_policy=terminate)" in text
