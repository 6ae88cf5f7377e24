"""Every option of the argument specifications has a row, whose test exists, is run, and sets the option."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.options.row import Row
from tests.integration.options.rows import BUNDLES, ROWS
from tests.unit.builders import REPOSITORY

#: The options of the role host are set by the other roles alone, from their own.
SPECIFICATIONS = sorted(path for path in REPOSITORY.glob("roles/*/meta/argument_specs.yml") if path.parts[-3] != "host")
OWN = "integration/options/"
#: What all of them may take: about twelve minutes.
SESSIONS, PROVISIONINGS, PLANS = 15, 6, 10


def options_of(options: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the names of options, and of options in these as ``option.inner``."""
    for name, option in options.items():
        yield f"{prefix}{name}"
        yield from options_of(option.get("options", {}), f"{prefix}{name}.")


def all_options() -> set[str]:
    """Return the options of all entry points of all roles."""
    specifications = (yaml.safe_load(path.read_text())["argument_specs"] for path in SPECIFICATIONS)
    return {
        name
        for entries in specifications
        for entry in entries.values()
        for name in options_of(entry.get("options", {}))
    }


def claims(scenario: str) -> set[str]:
    """Return the claims of a scenario of Molecule."""
    plays = yaml.safe_load((REPOSITORY / "extensions/molecule" / scenario / "verify.yml").read_text())
    return {task["name"] for play in plays for task in play["tasks"] if "ansible.builtin.assert" in task}


def is_long(test: ast.FunctionDef) -> bool:
    """Tell whether ``make test-all`` leaves a test out."""
    return any(re.search(r"\bLONG$|\bmark\.long$", ast.unparse(mark)) for mark in test.decorator_list)


def names_option(option: str, text: str) -> bool:
    """Tell whether a text sets an option, by its whole name or without the name of its role."""
    name = option.rpartition(".")[2]
    short = name.partition("_")[2] if "." not in option else name
    return re.search(rf"(?<![a-z]){re.escape(short)}\b", text) is not None


def problems_of(option: str, row: Row) -> Iterator[str]:
    """Yield what is wrong with the row of an option."""
    file, _colons, name = row.test.partition("::")
    kind, _space, scenario = file.partition(" ")
    if not (row.value and row.seen):
        yield "says neither its value nor what is seen"
    if bool(row.plan) != file.startswith("unit/"):
        yield "says why there is a plan only, and names a unit test; or neither"
    if bool(row.bundle) != file.startswith(OWN) or (row.bundle and BUNDLES[row.bundle].file != file.removeprefix(OWN)):
        yield "names the bundle of its test, which is of this folder; or none"
    if kind == "molecule":
        if name not in claims(scenario):
            yield f"names no claim of {scenario}"
        source = REPOSITORY / "extensions/molecule" / scenario / "inventory/hosts.yml"
    else:
        source = REPOSITORY / "tests" / file
        body = ast.parse(source.read_text()).body if source.is_file() else []
        found = [each for each in body if isinstance(each, ast.FunctionDef) and each.name == name]
        if not found:
            yield f"names no test: {row.test}"
        if any(map(is_long, found)):
            yield "names a test that is left to `make soak`"
    source = REPOSITORY / row.set_in if row.set_in else source
    if not (source.is_file() and names_option(option, source.read_text())):
        yield f"{source.relative_to(REPOSITORY)} does not set it"


def test_every_option_has_a_row_and_every_row_an_option() -> None:
    assert len(SPECIFICATIONS) == 7
    options = all_options()
    assert sorted(options - ROWS.keys()) == [], "these options need a row in tests/integration/options"
    assert sorted(ROWS.keys() - options) == []


@pytest.mark.parametrize("option", ROWS)
def test_its_test_exists_is_run_and_sets_it(option: str) -> None:
    assert list(problems_of(option, ROWS[option])) == []


def test_bundles_are_few_and_only_what_nobody_can_cause_is_a_plan() -> None:
    used = Counter(row.bundle for row in ROWS.values() if row.bundle)
    assert used.keys() == BUNDLES.keys()
    assert sum(bundle.sessions for bundle in BUNDLES.values()) <= SESSIONS
    assert sum(bundle.provisionings for bundle in BUNDLES.values()) <= PROVISIONINGS
    assert sum(bool(row.plan) for row in ROWS.values()) <= PLANS


GOOD = ROWS["session_vni_pool"]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (GOOD._replace(test=f"{GOOD.test}_gone"), "names no test"),
        (GOOD._replace(test="integration/options/test_gone.py::test_gone"), "names no test"),
        (GOOD._replace(seen=""), "says neither its value nor what is seen"),
        (GOOD._replace(bundle="agent"), "names the bundle of its test"),
        (GOOD._replace(plan="why not"), "says why there is a plan only"),
        (GOOD._replace(test="molecule agent::Nothing of it", bundle=""), "names no claim of agent"),
        (GOOD._replace(set_in="tests/integration/waiting.py"), "does not set it"),
        (
            Row("x", "y", "integration/test_managers.py::test_the_timer_runs_as_the_account_and_is_optional"),
            "names a test that is left to `make soak`",
        ),
    ],
)
def test_a_row_that_shows_nothing_is_found(row: Row, problem: str) -> None:
    assert [found for found in problems_of("session_vni_pool", row) if problem in found] != []


def test_options_in_options_and_of_each_entry_point_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "argument_specs.yml"
    inner = {"type": "list", "options": {"ports": {"type": "list"}}}
    entries = {
        "main": {"options": {"x_rules": inner}},
        "absent": {"options": {"x_force": {"type": "bool"}}},
        "other": {},
    }
    path.write_text(yaml.safe_dump({"argument_specs": entries}))
    monkeypatch.setattr(f"{__name__}.SPECIFICATIONS", [path])
    assert all_options() == {"x_rules", "x_rules.ports", "x_force"}
