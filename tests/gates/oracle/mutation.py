"""Mutations of functions: a statement is found by its function and its text, and one thing in it is changed."""

from __future__ import annotations

import ast
import random
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"), ast.In: ("in", "not in"), ast.NotIn: (r"not\s+in", "in"), ast.Is: ("is", "is not"),
    ast.IsNot: (r"is\s+not", "is"),
}  # fmt: skip
OPERATORS: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: (r"\+", "-"), ast.Sub: ("-", "+"), ast.Mult: (r"\*", "//"), ast.FloorDiv: ("//", "*"),
    ast.Div: ("/", "*"), ast.Mod: ("%", "*"), ast.BitOr: (r"\|", "&"), ast.BitAnd: ("&", "|"),
}  # fmt: skip
# The parts of statements that are no statements themselves.
HEADS: dict[type[ast.stmt], tuple[str, ...]] = {
    ast.If: ("test",), ast.While: ("test",), ast.For: ("iter",), ast.With: ("items",), ast.Match: ("subject",),
    ast.Try: (), ast.AnnAssign: ("value",),
}  # fmt: skip
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Statement(NamedTuple):
    """A statement: its function, its text in a normal form, and how many of the same text are before it there."""

    function: str
    text: str
    number: int


class Found(NamedTuple):
    """A statement in a file, with its lines and its parts that do not belong to statements in it."""

    name: Statement
    lines: range
    node: ast.stmt
    parts: list[ast.AST]


class Edit(NamedTuple):
    """A change of bytes."""

    start: int
    end: int
    text: str
    what: str


def find_statements(source: str) -> list[Found]:
    """Return the statements of all functions."""
    seen: Counter[tuple[str, str]] = Counter()
    found = []
    for function, node in _walk(ast.parse(source), "", inside=False):
        parts = _own_parts(node)
        text = _text(node, parts)
        found.append(Found(Statement(function, text, seen[function, text]), _lines(node, parts), node, parts))
        seen[function, text] += 1
    return found


def _walk(parent: ast.AST, name: str, *, inside: bool) -> Iterator[tuple[str, ast.stmt]]:
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, DEFINITIONS):
            yield from _walk(node, f"{name}.{node.name}".lstrip("."), inside=not isinstance(node, ast.ClassDef))
        elif isinstance(node, ast.stmt):
            # A docstring, or something else that does nothing.
            if inside and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
                yield name, node
            yield from _walk(node, name, inside=inside)
        elif isinstance(node, ast.ExceptHandler | ast.match_case):
            yield from _walk(node, name, inside=inside)


def _own_parts(node: ast.stmt) -> list[ast.AST]:
    """Return the expressions of a statement, without those of statements in it."""
    if type(node) not in HEADS:
        return [node]
    heads = [getattr(node, name) for name in HEADS[type(node)]]
    return [part for head in heads for part in (head if isinstance(head, list) else [head]) if part]


def _text(node: ast.stmt, parts: list[ast.AST]) -> str:
    if parts == [node]:
        return ast.unparse(node)
    return f"{type(node).__name__.lower()} {', '.join(ast.unparse(part) for part in parts)}"


def _lines(node: ast.stmt, parts: list[ast.AST]) -> range:
    return range(node.lineno, 1 + max([node.lineno, *(getattr(part, "end_lineno", 0) for part in parts)]))


class _Source:
    """The bytes of a source, in which nodes have places."""

    def __init__(self, source: str) -> None:
        self._raw = source.encode()
        self._starts = [0]
        for line in self._raw.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Return where a node begins and ends."""
        place: Any = node
        start = self._starts[place.lineno - 1] + place.col_offset
        return start, self._starts[place.end_lineno - 1] + place.end_col_offset

    def whole(self, node: ast.AST, text: str, what: str) -> list[Edit]:
        return [Edit(*self.span(node), text, what)]

    def between(self, left: ast.AST, right: ast.AST, change: tuple[str, str]) -> list[Edit]:
        start, end = self.span(left)[1], self.span(right)[0]
        token = re.search(change[0], self._raw[start:end].decode())
        assert token
        return [Edit(start + token.start(), start + token.end(), change[1], f"{token[0]} → {change[1]}")]

    def negated(self, test: ast.AST) -> list[Edit]:
        start, end = self.span(test)
        return [Edit(start, end, f"(not ({self._raw[start:end].decode()}))", "condition negated")]


def _of_statement(node: ast.AST, source: _Source) -> list[Edit]:
    match node:
        case ast.If() | ast.While():
            return source.negated(node.test)
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
            return source.whole(value, "None", "returns None")
        case ast.Raise() | ast.Expr(value=ast.Call()):
            return source.whole(node, "pass", "left out")
        case ast.Continue() | ast.Break():
            other = "break" if isinstance(node, ast.Continue) else "continue"
            return source.whole(node, other, f"→ {other}")
        case ast.AugAssign(op=operation) if type(operation) in OPERATORS:
            token, other = OPERATORS[type(operation)]
            return source.between(node.target, node.value, (f"{token}=", f"{other}="))
    return []


def _of_condition(node: ast.AST, source: _Source) -> list[Edit]:
    match node:
        case ast.Compare(ops=[operation]) if type(operation) in COMPARISONS:
            return source.between(node.left, node.comparators[0], COMPARISONS[type(operation)])
        case ast.BoolOp():
            change = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
            return source.between(node.values[0], node.values[1], change)
        case ast.UnaryOp(op=ast.Not()):
            start = source.span(node)[0]
            return [Edit(start, start + len("not"), "", "without not")]
        case ast.IfExp():
            return source.negated(node.test)
        case ast.comprehension(ifs=[condition, *_others]):
            return source.negated(condition)
    return []


def _of_value(node: ast.AST, source: _Source) -> list[Edit]:
    match node:
        case ast.BinOp(op=operation) if type(operation) in OPERATORS:
            return source.between(node.left, node.right, OPERATORS[type(operation)])
        case ast.Constant(value=int(value)):
            other = not value if isinstance(value, bool) else value + 1
            return source.whole(node, str(other), f"{value} → {other}")
        case ast.Constant(value=str(value)):
            return source.whole(node, repr(f"{value}~"), f"{value[:20]!r} → …~")
    return []


def mutations(text: str, found: Found) -> list[Edit]:
    """Return what can be changed in a statement, in the order of the source."""
    source = _Source(text)
    edits = _of_statement(found.node, source)
    for part in found.parts:
        for node in _outside_texts(part):
            edits += _of_condition(node, source) + _of_value(node, source)
    return sorted(edits)


def _outside_texts(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and those in it; Python 3.11 does not know where the parts of a formatted text are."""
    if not isinstance(node, ast.JoinedStr):
        yield node
        for child in ast.iter_child_nodes(node):
            yield from _outside_texts(child)


def mutate(source: str, edit: Edit) -> str:
    """Return the source with a change."""
    raw = source.encode()
    return (raw[: edit.start] + edit.text.encode() + raw[edit.end :]).decode()


def choose(source: str, found: Found, seed: str) -> Edit | None:
    """Return the change of a statement that follows from a seed, the same one wherever it stands."""
    edits = mutations(source, found)
    return random.Random(f"{seed}-{found.name}").choice(edits) if edits else None
