"""What docs/testing.md lacks, names twice, or names although it does not exist, is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gates.promises import README, SECURITY, TESTING, check, read_promises

FILES = {
    README: """# Collection

It **runs** `docker. In code` and [links](docs/security.md). It
never stops; at version 1.2 it does.

- One of them. Another one?

```console
$ make nothing. Never.
```

| host | needs |
|---|---|
| agents | Debian. And `more` |
| [a](docs/a.md), [b](docs/b.md) | |

## Last

The end: 1.5 s.
""",
    SECURITY: """# Security

## Between

| from | to | | rule | test (`test_lab.py`) |
|---|---|---|---|---|
| a container | the world | open | none | `it_starts`, `…not[it]` |
| a container | an agent | dropped | `drop` | the same |

| set | what |
|---|---|
| a | b |

## From outside

| of | limit | test |
|---|---|---|
| a container | 1 | `test_lab.py`: `it_starts` (unit) |

It starts (`test_lab.py`: `it_starts_at_once`), unless `create_session_now` is
`a value` or `GONE_FOR_EVER` ([more](more.md),
`it_starts_at_once`).
""",
    TESTING: """# Tests

| command | what it runs |
|---|---|
| `make all` | anything |

## Promises

### README.md

| sentence | shown by |
|---|---|
| It runs `docker. In code` and links. | describes |
| It never… | `acceptance/test_lab.py::test_it_starts`, `molecule agent` |
| One of them. | `make docs` |
| Another one? | describes |
| agents → Debian… | `acceptance/test_lab.py::test_it_starts` |
| The end… | `acceptance/test_lab.py::test_it_starts` |

### docs/security.md: Between

| row | shown by |
|---|---|
| a container → the… | `acceptance/test_lab.py::test_it_starts` |
| a container → an agent → dropped → `drop` | `acceptance/test_lab.py::test_it_starts` |

### docs/security.md: From outside

| row | shown by |
|---|---|
| a container… | `acceptance/test_lab.py::test_it_starts` |

### playbooks

| playbook | shown by |
|---|---|
| `create_session` | `acceptance/test_lab.py::test_it_starts` |
| `create_session_now` | `acceptance/test_lab.py::test_it_starts` |
""",
    "Makefile": "docs:\n\ttrue\n",
    "extensions/molecule/agent/molecule.yml": "",
    "playbooks/create_session.yml": "",
    "playbooks/create_session_now.yml": "",
    "tests/acceptance/conftest.py": "def train():\n    pass\n\n\ndef test_of_none():\n    pass\n",
    "tests/acceptance/test_lab.py": (
        "def test_it_starts():\n    pass\n\n\ndef test_it_starts_at_once():\n    pass\n\n\n"
        "def it_ends():\n    pass\n\n\n'''\ndef test_in_a_text():\n'''\n"
    ),
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def faults(checkout: Path, page: str, old: str, new: str) -> list[str]:
    """Return what is wrong once a text of a page is replaced."""
    text = FILES[page]
    assert text.count(old) == 1
    (checkout / page).write_text(text.replace(old, new))
    return [str(fault) for fault in check(checkout)]


def test_a_checkout_whose_promises_are_shown_has_no_fault(checkout: Path) -> None:
    assert check(checkout) == []


def test_sentences_are_those_outside_of_headings_code_and_tables_of_links(checkout: Path) -> None:
    assert [(promise.line, promise.text) for promise in read_promises(checkout)[README]] == [
        (3, "It runs docker. In code and links."),
        (3, "It never stops; at version 1.2 it does."),
        (6, "One of them."),
        (6, "Another one?"),
        (19, "The end: 1.5 s."),
        (14, "agents → Debian. And more"),
    ]


SAY = "name tests in code, or say describes"
BETWEEN, OUTSIDE = "docs/security.md: Between", "docs/security.md: From outside"


@pytest.mark.parametrize(
    ("page", "old", "new", "expected"),
    [
        (README, "The end", "A new one. The end", "README.md:19: docs/testing.md has no rows"),
        (README, "The end:", "This end:", "docs/testing.md:18: none of 'README.md' begins with: The end…"),
        (README, "The end:", "The end. The end:", "docs/testing.md:18: 2 of 'README.md' begin with: The end…"),
        (TESTING, "| One of them. | `make docs` |\n", "", "README.md:6: docs/testing.md has no rows under 'README.md'"),
        (TESTING, "| Another one? |", "| One… | |\n| Another one? |", "README.md:6: docs/testing.md has 2 rows"),
        (SECURITY, "| an agent |", "| a gateway |", f"none of '{BETWEEN}' begins with: a container → an agent"),
        (SECURITY, "| a container | 1", "| an agent | 2 | |\n| a container | 1", f"under '{OUTSIDE}' for: an ag"),
        (SECURITY, "## From outside", "## From inside", f"none of '{OUTSIDE}' begins with: a container…"),
        (SECURITY, "`it_starts`, `…not[it]`", "`it_ends`", "docs/security.md:7: there is no test it_ends"),
        (SECURITY, "| `test_lab.py`: `it", "| `test_labs.py`: `it", "docs/security.md:18: there is no test test_labs."),
        (SECURITY, "(`test_lab.py`: `it", "(`test_labs.py`: `it", "docs/security.md:20: there is no test test_labs.py"),
        (SECURITY, "`create_session_now`", "`it_never_starts`", "docs/security.md:20: there is no test it_never_star"),
        (SECURITY, "\n`it_starts_at_once`", "\n`it_starts_later`", "docs/security.md:22: there is no test it_starts_l"),
        (SECURITY, "| `drop` |", "| `it_is_gone` |", "docs/security.md:8: there is no test it_is_gone"),
        (TESTING, "`create_session`", "`start_session`", "playbooks/create_session.yml:1: docs/testing.md has no rows"),
        (TESTING, "`make docs`", "`make doc`", "docs/testing.md:15: make doc does not exist"),
        (TESTING, "`molecule agent`", "`molecule host`", "docs/testing.md:14: molecule host does not exist"),
        (TESTING, "`make docs`", "no test", f"docs/testing.md:15: {SAY}: One of them."),
        (TESTING, "`make docs`", "`make docs` or so", f"docs/testing.md:15: {SAY}: One of them."),
        (TESTING, "`make docs`", "", f"docs/testing.md:15: {SAY}: One of them."),
        (TESTING, "| a container… |", "| a container… | describes |", "name tests in code: a container…"),
    ],
)  # fmt: skip
def test_a_mistake_is_found(checkout: Path, page: str, old: str, new: str, expected: str) -> None:
    found = faults(checkout, page, old, new)
    assert [fault for fault in found if expected in fault], found


@pytest.mark.parametrize(
    "gone",
    [
        "acceptance/test_lab.py::test_it_stops",
        "acceptance/test_lab.py::it_ends",
        "acceptance/test_lab.py::test_in_a_text",
        "acceptance/test_lab.py",
        "acceptance/test_labs.py::test_it_starts",
        "acceptance/conftest.py::test_of_none",
        "../tests/acceptance/test_lab.py::test_it_starts",
        "it_starts",
    ],
)
def test_a_test_that_is_gone_or_none_is_found(checkout: Path, gone: str) -> None:
    assert faults(checkout, TESTING, "`make docs`", f"`{gone}`") == [f"{TESTING}:15: {gone} does not exist"]


def test_a_new_playbook_needs_a_row(checkout: Path) -> None:
    (checkout / "playbooks/end_session.yml").write_text("")
    (fault,) = check(checkout)
    assert str(fault) == "playbooks/end_session.yml:1: docs/testing.md has no rows under 'playbooks' for: end_session"
