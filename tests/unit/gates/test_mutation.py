"""Mutations of source, by which the tests of two commits are compared."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from tests.gates.oracle.mutation import Found, Statement, choose, find_statements, mutate, mutations

SOURCE = dedent('''
    """Text of a module."""

    LIMIT = 3


    class Door:
        """Text of a class."""

        def open(self, key: str, times: int = 1) -> str | None:
            """Text of a function."""
            if key not in self.keys and times < LIMIT:  # says «no»
                raise ValueError(f"no key {key + 'x'}")
            for turn in range(times):
                if not turn:
                    continue
                self.turn(turn)
            return "open" if times == 1 else None

        def close(self) -> None:
            self.turn(1)
            self.turn(1)
''')


def statement(text: str, number: int = 0) -> Found:
    [found] = [each for each in find_statements(SOURCE) if (each.name.text, each.name.number) == (text, number)]
    return found


def mutated_lines(found: Found) -> list[str]:
    """Return the lines that differ from the source's, of all mutants of a statement."""
    lines = SOURCE.splitlines()
    mutants = [mutate(SOURCE, edit).splitlines() for edit in mutations(SOURCE, found)]
    return [after.strip() for mutant in mutants for before, after in zip(lines, mutant, strict=True) if before != after]


def test_statements_of_functions_are_found_by_function_text_and_number() -> None:
    names = [found.name for found in find_statements(SOURCE)]
    assert names[0] == Statement("Door.open", "if key not in self.keys and times < LIMIT", 0)
    assert [name for name in names if name.function == "Door.close"] == [
        Statement("Door.close", "self.turn(1)", 0),
        Statement("Door.close", "self.turn(1)", 1),
    ]
    assert not [name for name in names if "Text of" in name.text or "LIMIT = " in name.text]


def test_a_condition_is_mutated_without_the_statements_below_it() -> None:
    assert mutated_lines(statement("if key not in self.keys and times < LIMIT")) == [
        "if (not (key not in self.keys and times < LIMIT)):  # says «no»",
        "if key in self.keys and times < LIMIT:  # says «no»",
        "if key not in self.keys or times < LIMIT:  # says «no»",
        "if key not in self.keys and times <= LIMIT:  # says «no»",
    ]


@pytest.mark.parametrize(
    ("text", "mutants"),
    [
        ("raise ValueError(f\"no key {key + 'x'}\")", ["pass"]),
        ("for range(times)", []),
        ("if not turn", ["if (not (not turn)):", "if  turn:"]),
        ("continue", ["break"]),
        (
            "return 'open' if times == 1 else None",
            [
                "return None",
                "return 'open~' if times == 1 else None",
                'return "open" if (not (times == 1)) else None',
                'return "open" if times != 1 else None',
                'return "open" if times == 2 else None',
            ],
        ),
        ("self.turn(1)", ["pass", "self.turn(2)"]),
    ],
)
def test_each_kind_of_statement_has_its_mutants(text: str, mutants: list[str]) -> None:
    assert sorted(mutated_lines(statement(text))) == sorted(mutants)


def test_the_second_of_two_equal_statements_is_mutated_alone() -> None:
    edit = mutations(SOURCE, statement("self.turn(1)", 1))[0]
    assert mutate(SOURCE, edit).splitlines()[-2:] == ["        self.turn(1)", "        pass"]


def test_the_mutant_of_a_seed_is_the_same_one_wherever_the_statement_stands() -> None:
    moved = ast.unparse(ast.parse(SOURCE)) + "\n\ndef more() -> int:\n    return 1\n"
    chosen = set()
    for seed in "abcdefgh":
        for found in find_statements(SOURCE):
            [other] = [each for each in find_statements(moved) if each.name == found.name]
            edits = choose(SOURCE, found, seed), choose(moved, other, seed)
            assert [edit and edit.what for edit in edits] == [edits[0] and edits[0].what] * 2
            chosen.add((found.name, edits[0] and edits[0].what))
    assert len(chosen) > len(find_statements(SOURCE)), "another seed chooses another mutant"
