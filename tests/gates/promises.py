"""Check that docs/testing.md names, for each promise, what shows it, and that this exists.

Promises are the sentences of README.md, the rows of tables of docs/security.md that have a column of tests, and the
playbooks. Tests that docs/security.md names itself, in a table or elsewhere, exist, too.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from markdown_it.token import Token

from tests.gates.pages import Checkout, Fault, Page

README, SECURITY, TESTING, PLAYBOOKS = "README.md", "docs/security.md", "docs/testing.md", "playbooks"
SECTION = "Promises"
"""The section of docs/testing.md with the tables; the heading above each of them says whose promises it has."""
DESCRIBES = "describes"
"""Stands for a test where a sentence of README.md promises nothing."""
HIDDEN_SPACE = "\N{NO-BREAK SPACE}"
TEST_FILE = re.compile(r"(\w+/)+test_\w+\.py")
SENTENCE_NAME = re.compile(r"[a-z0-9]+(_[a-z0-9]+){2,}")
"""A name of at least three words: that of a test is a sentence, wherever it stands."""
SENTENCE_END = re.compile(r"(?<=[.?!]) +")


@dataclass(frozen=True)
class Promise:
    page: str
    line: int
    text: str


@dataclass(frozen=True)
class Table:
    headings: tuple[str, ...]
    """The headings above it, from that of the page to that of its section."""
    header: Sequence[Token]
    rows: Sequence[Sequence[Token]]


@dataclass(frozen=True)
class Row:
    """A row of docs/testing.md: a promise, or its beginning, and what shows it."""

    line: int
    text: str
    evidence: Token

    def names(self, promise: Promise) -> bool:
        return promise.text.startswith(self.text[:-1]) if self.text.endswith("…") else promise.text == self.text


@dataclass(frozen=True)
class Tests:
    """The functions in files of tests, by file."""

    root: Path
    _functions: dict[Path, set[str]] = field(default_factory=dict)

    def has(self, file: str, name: str) -> bool:
        path = self.root / "tests" / file
        if not TEST_FILE.fullmatch(file) or not path.is_file():
            return False
        if path not in self._functions:
            body = ast.parse(path.read_text()).body
            self._functions[path] = {each.name for each in body if isinstance(each, ast.FunctionDef)}
        return name.startswith("test_") and name in self._functions[path]


def plain(inline: Token) -> str:
    """Return the text of a block without markup; spaces in code are such that no sentence ends there."""
    parts = []
    for token in inline.children or ():
        if token.type == "code_inline":
            parts.append(token.content.replace(" ", HIDDEN_SPACE))
        elif token.type != "html_inline":
            parts.append(" " if token.type.endswith("break") else token.content)
    return "".join(parts).strip()


def is_links(inline: Token) -> bool:
    """Whether a block has no word outside of links."""
    depth, outside = 0, ""
    for token in inline.children or ():
        depth += token.nesting if token.type.startswith("link_") else 0
        outside += "" if depth else token.content
    return not re.search(r"\w", outside)


def tables(page: Page) -> Iterator[Table]:
    """Yield each table of a page."""
    headings: dict[str, str] = {}
    rows: list[list[Token]] = []
    for token, before in zip(page.tokens[1:], page.tokens, strict=False):
        if before.type == "heading_open":
            headings = {tag: text for tag, text in headings.items() if tag < before.tag} | {before.tag: plain(token)}
        elif token.type == "table_open":
            rows = []
        elif token.type == "tr_open":
            rows.append([])
        elif before.type in ("th_open", "td_open"):
            rows[-1].append(token)
        elif token.type == "table_close":
            yield Table(tuple(headings.values()), rows[0], rows[1:])


def join(cells: Sequence[Token]) -> str:
    """Return the cells of a row that are not empty, as one text."""
    return " → ".join(filter(None, map(plain, cells))).replace(HIDDEN_SPACE, " ")


def line_of(inline: Token) -> int:
    return (inline.map or [0])[0] + 1


def sentences(page: Page) -> Iterator[Promise]:
    """Yield the sentences of README.md outside of headings and code; a row of a table is one, unless it is of links."""
    for before, token in zip(page.tokens, page.tokens[1:], strict=False):
        if before.type == "paragraph_open":
            for text in SENTENCE_END.split(plain(token)):
                yield Promise(README, line_of(token), text.replace(HIDDEN_SPACE, " "))
    for table in tables(page):
        for row in table.rows:
            if not all(map(is_links, row)):
                yield Promise(README, line_of(row[0]), join(row))


def security_rows(page: Page) -> Iterator[tuple[str, Promise, Token]]:
    """Yield the section, the text without tests, and the cell of tests of each row that has one."""
    for table in tables(page):
        columns = [number for number, cell in enumerate(table.header) if plain(cell).startswith("test")]
        for number in columns:
            for row in table.rows:
                promise = Promise(SECURITY, line_of(row[0]), join([*row[:number], *row[number + 1 :]]))
                yield table.headings[-1], promise, row[number]


def read_promises(root: Path) -> Mapping[str, list[Promise]]:
    """Return all promises by the heading that they have in docs/testing.md."""
    promises: dict[str, list[Promise]] = defaultdict(list)
    promises[README].extend(sentences(Page(root / README)))
    for section, promise, _tests in security_rows(Page(root / SECURITY)):
        promises[f"{SECURITY}: {section}"].append(promise)
    for path in sorted(root.glob("playbooks/*.yml")):
        promises[PLAYBOOKS].append(Promise(f"{PLAYBOOKS}/{path.name}", 1, path.stem))
    return promises


def evidence_problems(row: Row, tests: Tests, checkout: Checkout, *, describes: bool) -> Iterator[str]:
    """Yield a sentence for each thing in the second column that does not exist, or is no proof."""
    words = "".join(token.content for token in row.evidence.children or () if token.type == "text").strip(", ")
    codes = [token.content for token in row.evidence.children or () if token.type == "code_inline"]
    if describes and (words, codes) == (DESCRIBES, []):
        return
    if words.replace(",", "").strip() or not codes:
        yield f"name tests in code{f', or say {DESCRIBES}' if describes else ''}: {row.text}"
    for code in codes:
        kind, _space, name = code.partition(" ")
        file, _colons, function = code.partition("::")
        if kind == "make" and name:
            exists = name in checkout.targets
        elif kind == "molecule" and name:
            exists = (checkout.root / "extensions/molecule" / name).is_dir()
        else:
            exists = tests.has(file, function)
        if not exists:
            yield f"{code} does not exist"


def own_test_problems(cell: Token, checkout: Checkout) -> Iterator[str]:
    """Yield a sentence for each test, or file of tests, that docs/security.md names and that does not exist."""
    for token in cell.children or ():
        code = token.content
        if token.type != "code_inline" or code.startswith("…"):
            continue
        found = checkout.has_file(f"tests/**/{code}") if code.endswith(".py") else code in checkout.tests
        if re.fullmatch(r"\w+(\.py)?", code) and not found:
            yield f"there is no test {code}"


def named_test_faults(page: Page, checkout: Checkout) -> Iterator[Fault]:
    """Yield a fault for each test, or file of tests, that docs/security.md names anywhere and that is gone."""
    for line, token in page.inline("code_inline"):
        code = token.content
        is_gone = SENTENCE_NAME.fullmatch(code) and code not in checkout.names
        if is_gone or (re.fullmatch(r"test_\w+\.py", code) and not checkout.has_file(f"tests/**/{code}")):
            yield Fault(SECURITY, line, f"there is no test {code}")


def check(root: Path) -> list[Fault]:
    """Return each promise without a row, each row without a promise, and what rows name that does not exist."""
    checkout, tests, promises = Checkout(root), Tests(root), read_promises(root)
    security = Page(root / SECURITY)
    faults = [
        Fault(SECURITY, promise.line, problem)
        for _section, promise, cell in security_rows(security)
        for problem in own_test_problems(cell, checkout)
    ]
    # Those in cells for tests are in both.
    faults = [*dict.fromkeys([*faults, *named_test_faults(security, checkout)])]
    listed: dict[str, list[Row]] = defaultdict(list)
    for table in tables(Page(root / TESTING)):
        if SECTION in table.headings[:-1]:
            listed[table.headings[-1]] += [Row(line_of(row[0]), join(row[:1]), row[1]) for row in table.rows]
    for heading in {**promises, **listed}:
        made = promises.get(heading, [])
        for row in listed[heading]:
            problems = [*evidence_problems(row, tests, checkout, describes=heading == README)]
            named = sum(row.names(promise) for promise in made)
            if named != 1:
                problems.append(f"{named or 'none'} of '{heading}' begin{'' if named else 's'} with: {row.text}")
            faults += [Fault(TESTING, row.line, problem) for problem in problems]
        for promise in made:
            rows = sum(row.names(promise) for row in listed[heading])
            if rows != 1:
                problem = f"{TESTING} has {rows or 'no'} rows under '{heading}' for: {promise.text}"
                faults.append(Fault(promise.page, promise.line, problem))
    return faults


def main() -> None:
    faults = check(Path.cwd())
    if faults:
        sys.exit("\n".join(str(fault) for fault in faults))
    counts = {heading: len(promises) for heading, promises in read_promises(Path.cwd()).items()}
    security = sum(counts.values()) - counts[README] - counts[PLAYBOOKS]
    print(
        f"promises: {counts[README]} sentences of {README}, {security} rows of {SECURITY}, "
        f"{counts[PLAYBOOKS]} playbooks: each has its row in {TESTING}"
    )


if __name__ == "__main__":
    main()
