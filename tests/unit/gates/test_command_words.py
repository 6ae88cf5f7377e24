"""What pages and sentences say of ``backendai`` that is not so, and what they leave out, is found."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from tests.gates.command_words import BEGIN, END, check, load_parser, table, table_faults, updated, words_of
from tests.unit.builders import REPOSITORY

OPTIONS = "argument_specs: {main: {options: {session_name: {description: The name.}}}}\n"
SESSIONS = "Its `session_name`.\n"
PROGRAM = "roles/manager/files/backendai_manager/a.py"


@pytest.fixture
def parser() -> argparse.ArgumentParser:
    """A command with a verb of each kind."""
    parser = argparse.ArgumentParser(prog="backendai")
    verbs = parser.add_subparsers(dest="verb")
    create = verbs.add_parser("create", help="create it")
    create.add_argument("spec", metavar="FILE", nargs="?")
    create.add_argument("-s", "--size", type=int, help="how many: %(type)s|all")
    create.add_argument("--wait", nargs="?", metavar="SECONDS", help="until 100 %% of it runs")
    create.add_argument("--old", help=argparse.SUPPRESS)
    verbs.add_parser("ssh", help="log in").usage = "backendai ssh NAME [-- COMMAND …]"
    verbs.add_parser("own", help=argparse.SUPPRESS)
    return parser


@pytest.fixture
def checkout(tmp_path: Path, parser: argparse.ArgumentParser) -> Path:
    files = {
        "docs/users.md": updated(f"# Users\n\n{BEGIN}{END}", parser),
        "docs/sessions.md": SESSIONS,
        "roles/session/meta/argument_specs.yml": OPTIONS,
        PROGRAM: "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def problems(checkout: Path, parser: argparse.ArgumentParser) -> list[str]:
    return [str(fault) for fault in check(checkout, parser)]


def test_the_table_has_every_verb_and_flag_that_has_not_been_hidden(parser: argparse.ArgumentParser) -> None:
    assert table(parser).splitlines()[2:] == [
        "| **every verb** | |",
        "| `-h, --help` | show this help message and exit |",
        "| **`create [FILE]`** | create it |",
        r"| `-s, --size SIZE` | how many: int\|all |",
        "| `--wait [SECONDS]` | until 100 % of it runs |",
        "| **`ssh NAME [-- COMMAND …]`** | log in |",
    ]


def test_the_table_of_this_checkout_is_that_of_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(REPOSITORY / "roles/manager/files")
    parser = load_parser(REPOSITORY)
    assert "--gpu" in words_of(parser)["create"]
    assert [*table_faults(REPOSITORY, parser)] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("```console\n$ backendai make --size 4\n```\n", "2: backendai has no verb make"),
        ("```console\n$ backendai create --sizes=4\n```\n", "2: backendai create has no flag --sizes"),
        ("Text,\nand `backendai -v`.\n", "2: backendai has no flag -v"),
        ("`sudo backendai create; backendai end x`", "1: backendai has no verb end"),
        ("`backendai create -n 4 | jq`", "1: backendai create has no flag -n"),
    ],
)
def test_a_wrong_word_of_a_page_is_found(
    checkout: Path, parser: argparse.ArgumentParser, text: str, expected: str
) -> None:
    (checkout / "README.md").write_text(text)
    assert problems(checkout, parser) == [f"README.md:{expected}"]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("--gpu 4", "backendai has no flag --gpu"),
        ("create [FILE] --gpu 4", "backendai create has no flag --gpu"),
        ("ssh -L 80:sub1:80 train", None),
        ("--size 4", None),
        ("create --size 4 --wait", None),
    ],
)
def test_the_page_of_users_leaves_the_command_out(
    checkout: Path, parser: argparse.ArgumentParser, code: str, expected: str | None
) -> None:
    page = checkout / "docs/users.md"
    page.write_text(f"`{code}`\n\n{page.read_text()}")
    assert problems(checkout, parser) == ([f"docs/users.md:1: {expected}"] if expected else [])


@pytest.mark.parametrize(
    "text",
    [
        "`backendai create -s 4 --wait && docker run --gpus all`, `backendai VERB --anything`, `-u backendai -i`",
        "`backendai ssh train -- ls --all`, `backendai own --help`, `backendai create --old 1`, `x/backendai any`",
        "```\naccount backendai ── SSH\nbackendai create starts one, backendai ssh NAME enters it.\n```\n",
    ],
)
def test_what_is_right_is_no_mistake(checkout: Path, parser: argparse.ArgumentParser, text: str) -> None:
    (checkout / "README.md").write_text(text)
    assert problems(checkout, parser) == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('x = "First do it; backendai ends it."', "backendai has no verb ends"),
        (
            'x = f"Log in with backendai ssh {x}; see backendai create --json {x}."',
            "backendai create has no flag --json",
        ),
        ("backendai = make = 1", None),
    ],
)
def test_a_wrong_word_of_a_sentence_is_found(
    checkout: Path, parser: argparse.ArgumentParser, line: str, expected: str | None
) -> None:
    (checkout / PROGRAM).write_text(f"\n{line}\n")
    assert problems(checkout, parser) == ([f"{PROGRAM}:2: {expected}"] if expected else [])


def test_a_flag_that_the_table_lacks_is_found(checkout: Path, parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--new", help="something new")
    assert problems(checkout, parser) == ["docs/users.md:1: the table of flags is an old one: run make flags"]


def test_words_without_help_are_found(checkout: Path, parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--new")
    assert problems(checkout, parser) == ["docs/users.md:1: --new has no help"]


def test_a_page_without_the_comments_is_found(checkout: Path, parser: argparse.ArgumentParser) -> None:
    (checkout / "docs/users.md").write_text("# Users\n")
    assert problems(checkout, parser) == [
        f"docs/users.md:1: the comments are missing: {BEGIN.strip()} and {END.strip()}"
    ]


def test_an_option_that_the_page_of_sessions_lacks_is_found(checkout: Path, parser: argparse.ArgumentParser) -> None:
    (checkout / "docs/sessions.md").write_text("Its `session_name_of`.\n")
    assert "docs/sessions.md:1: the option session_name is not named" in problems(checkout, parser)
