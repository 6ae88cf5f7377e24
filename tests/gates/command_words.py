"""Check what pages and printed sentences say of the command ``backendai``, and that pages leave nothing of it out.

docs/users.md has a table of all verbs and flags between two comments: ``make flags`` writes it from the parser.
docs/sessions.md names every option of a session.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from tests.gates.pages import Checkout, Fault, Page

PROGRAM = Path("roles/manager/files")
USERS, SESSIONS = "docs/users.md", "docs/sessions.md"
BEGIN = "<!-- flags: begin (written by make flags) -->\n"
END = "<!-- flags: end -->\n"
SENTENCES = ("roles/manager/files/**/*.py", "plugins/**/*.py")
"""Where sentences are that people read, beside pages."""
COMMAND = re.compile(r"(?<![\w./@-])(?<!-u )(?<!--user )backendai +(?=[a-z-])")
COMMAND_END = re.compile(r"[|;&>#`\n]|(?<!\S)--(?!\S)")
FLAG = re.compile(r"--?[a-z][a-z-]*")
AMBIGUOUS = ("ssh",)
"""Verbs that are programs, too: without ``backendai`` before it, the line is of the program."""

Words = Mapping[str, Collection[str]]
"""The flags of each verb; those of the command itself have the verb ``""``."""


def load_parser(root: Path) -> argparse.ArgumentParser:
    """Return the parser of a checkout."""
    sys.path.insert(0, str(root / PROGRAM))
    parser: argparse.ArgumentParser = importlib.import_module("backendai_manager.user.arguments").build_parser()
    return parser


def verbs_of(parser: argparse.ArgumentParser) -> dict[str, tuple[str | None, argparse.ArgumentParser]]:
    """Return the verbs with their helps and parsers."""
    (action,) = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    helps = {choice.dest: choice.help for choice in action._choices_actions}
    return {verb: (helps.get(verb), own) for verb, own in action.choices.items()}


def words_of(parser: argparse.ArgumentParser) -> Words:
    """Return the flags of each verb, and of the command."""
    parsers = {"": parser} | {verb: own for verb, (_help, own) in verbs_of(parser).items()}
    return {verb: {flag for each in own._actions for flag in each.option_strings} for verb, own in parsers.items()}


def table(parser: argparse.ArgumentParser) -> str:
    """Return the table of all verbs and flags. Raises :class:`ValueError` for those that their help leaves out."""
    common = {flag for action in parser._actions for flag in action.option_strings}
    rows = [("**every verb**", ""), *_rows(parser, ())]
    for verb, (text, own) in verbs_of(parser).items():
        if text == argparse.SUPPRESS:
            continue
        if not text:
            raise ValueError(f"{verb} has no help")
        usage = (own.usage or "").removeprefix(f"{parser.prog} ")
        operands = " ".join(_operand(action) for action in own._actions if not action.option_strings)
        rows.append((f"**`{usage or f'{verb} {operands}'.strip()}`**", text))
        rows += _rows(own, common)
    lines = (f"| {left} | {right} |".replace("|  |", "| |") for left, right in rows)
    return "\n".join(["| verb, flag | what it does |", "|---|---|", *lines, ""])


def _rows(parser: argparse.ArgumentParser, leave_out: Collection[str]) -> Iterator[tuple[str, str]]:
    formatter = parser._get_formatter()
    for action in parser._actions:
        flags = [flag for flag in action.option_strings if flag not in leave_out]
        if not flags or action.help == argparse.SUPPRESS:
            continue
        if not action.help:
            raise ValueError(f"{parser.prog.partition(' ')[2]} {flags[-1]} has no help".strip())
        value = f" {_operand(action)}" if action.nargs != 0 else ""
        yield f"`{', '.join(flags)}{value}`", formatter._expand_help(action).replace("|", "\\|")


def _operand(action: argparse.Action) -> str:
    name = str(action.metavar or action.dest.upper())
    return {"?": f"[{name}]", "*": f"[{name} …]", "+": f"{name} …"}.get(str(action.nargs), name)


def updated(text: str, parser: argparse.ArgumentParser) -> str:
    """Return the text of a page with the table of now."""
    before, begin, rest = text.partition(BEGIN)
    _old, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the comments are missing: {BEGIN.strip()} and {END.strip()}")
    return f"{before}{begin}\n{table(parser)}\n{end}{after}"


def command_problems(text: str, known: Words) -> Iterator[str]:
    """Yield a sentence for each verb, or flag of one, that a text names behind ``backendai`` and that there is not."""
    for rest in COMMAND.split(text)[1:]:
        words = [word.strip("[]()\"',.:?!") for word in COMMAND_END.split(rest)[0].split()]
        first = words[0] if words else ""
        if first.startswith("-"):
            yield from _flag_problems("", words[:1], known)
        elif re.fullmatch(r"[a-z][a-z-]*", first):
            yield from _flag_problems(first, words[1:], known)


def _flag_problems(verb: str, words: Collection[str], known: Words) -> Iterator[str]:
    if verb not in known:
        yield f"backendai has no verb {verb}"
        return
    for word in words:
        flag = FLAG.match(word)
        if flag and flag[0] not in {*known[verb], *known[""]}:
            yield f"{f'backendai {verb}'.strip()} has no flag {flag[0]}"


def short_problems(code: str, known: Words) -> Iterator[str]:
    """Yield the same for code in the page of users, where ``backendai``, or the verb, is left out."""
    words = [word.strip("[](),") for word in code.split()]
    if words and words[0] in known and words[0] not in AMBIGUOUS:
        yield from _flag_problems(words[0], words[1:], known)
    elif code.startswith("-"):
        everywhere = {"": {flag for flags in known.values() for flag in flags}}
        yield from _flag_problems("", words, everywhere)


def page_faults(checkout: Checkout, known: Words) -> Iterator[Fault]:
    """Yield what pages name and the command has not."""
    for path in checkout.pages:
        page, name = Page(path), str(path.relative_to(checkout.root))
        for first, _language, content in page.fences():
            for line, text in enumerate(content.split("\n"), first):
                yield from (Fault(name, line, problem) for problem in command_problems(text, known))
        for line, token in page.inline("code_inline"):
            problems = [*command_problems(token.content, known)]
            problems += short_problems(token.content, known) if name == USERS else []
            yield from (Fault(name, line, problem) for problem in problems)


def sentence_faults(root: Path, known: Words) -> Iterator[Fault]:
    """Yield what strings in programs name and the command has not."""
    for path in sorted({path for pattern in SENTENCES for path in root.glob(pattern)}):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                text = "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
            else:
                continue
            problems = command_problems(text, known)
            yield from (Fault(str(path.relative_to(root)), node.lineno, problem) for problem in problems)


def option_faults(checkout: Checkout) -> Iterator[Fault]:
    """Yield the options of sessions that the page of sessions does not name."""
    text = (checkout.root / SESSIONS).read_text()
    for name, option in checkout.options.items():
        if option.role == "session" and not re.search(rf"\b{name}\b", text):
            yield Fault(SESSIONS, 1, f"the option {name} is not named")


def table_faults(root: Path, parser: argparse.ArgumentParser) -> Iterator[Fault]:
    """Yield that the table of verbs and flags is not that of the parser, or cannot be written."""
    text = (root / USERS).read_text()
    try:
        if updated(text, parser) != text:
            yield Fault(USERS, 1, "the table of flags is an old one: run make flags")
    except ValueError as error:
        yield Fault(USERS, 1, str(error))


def check(root: Path, parser: argparse.ArgumentParser) -> list[Fault]:
    """Return what is wrong."""
    checkout, known = Checkout(root), words_of(parser)
    faults = [*page_faults(checkout, known), *sentence_faults(root, known), *option_faults(checkout)]
    return [*dict.fromkeys([*faults, *table_faults(root, parser)])]


def main() -> None:
    root = Path.cwd()
    parser = load_parser(root)
    if sys.argv[1:] == ["--write"]:
        page = root / USERS
        page.write_text(updated(page.read_text(), parser))
        return
    faults = check(root, parser)
    if faults:
        sys.exit("\n".join(str(fault) for fault in faults))
    print(f"words of the command: {USERS} has its {len(verbs_of(parser))} verbs, and all that is named exists")


if __name__ == "__main__":
    main()
