# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Convert dataclasses to plain data and back: their fields are the only schema of what is sent and stored.

The type of a field is ``str``, ``int``, ``float``, ``bool``, ``dict[str, Any]`` or a dataclass; a
``tuple[X, ...]``, ``list[X]``, ``frozenset[X]``, ``dict[str, X]`` or ``dict[int, X]`` of these; or one of them
``| None``. Whole numbers have 64 bits: Python adds larger ones up, and fails when it divides or formats them.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from .errors import ClusterError

T = TypeVar("T")

MAX_LEVELS = 20
"""How many levels a value of ``dict[str, Any]`` may have."""

MIN_WHOLE, MAX_WHOLE = -(1 << 63), (1 << 63) - 1
"""The least and the largest whole number."""

_EXACT = frozenset({str, int, float, bool, type(None)})
"""The Python types of values that need no conversion."""


class _Type(NamedTuple):
    """A type of plain data: the function that reads a value, and the Python types that need no conversion.

    These types are compared exactly, because Ansible's text is of a subclass of ``str``.
    """

    read: Callable[[Any], Any]
    exact: frozenset[type] = frozenset()


class DataError(ClusterError, ValueError):
    """Plain data does not match its dataclass; the message contains the field and the expected type, not the value."""


class _MismatchError(Exception):
    """The ``problem`` of one value; ``path`` leads to it from the value that is being read."""

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(problem)
        self.problem, self.path = problem, path

    def within(self, step: str) -> _MismatchError:
        """Return this error with ``step`` in front of its path."""
        self.path = f"{step}{self.path}"
        return self


def to_plain(value: Any) -> Any:
    """Convert a value to JSON types: a dataclass to a mapping, tuples to lists, sets to sorted lists, keys to text."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, dict):
        return {str(key): _plain_item(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return list(value) if _EXACT.issuperset(map(type, value)) else [_plain_item(item) for item in value]
    if isinstance(value, frozenset):
        return sorted(value)
    return {field.name: _plain_item(getattr(value, field.name)) for field in dataclasses.fields(value) if field.init}


def _plain_item(value: Any) -> Any:
    return value if type(value) in _EXACT else to_plain(value)


def from_plain(kind: type[T], data: object, prefix: str) -> T:
    """Convert the result of :func:`to_plain` back to the dataclass ``kind``.

    Raises :class:`DataError`, one sentence that begins with ``prefix``, if a field has another type, is not known, or
    is missing and has no default, and if a dataclass refuses its values with a :class:`ValueError`. A dataclass with a
    true ``extensible`` ignores fields that are not known.
    """
    try:
        value: T = _type_of(kind).read(data)
    except _MismatchError as error:
        raise DataError(f"{prefix}: {error.path.lstrip('.') or 'the data'} {error.problem}") from None
    return value


_DATACLASSES: dict[type[Any], _Type] = {}


def _type_of(kind: type[Any]) -> _Type:
    """Return the type of a dataclass; cached, because the facts of a cluster have a million values."""
    if kind not in _DATACLASSES:
        scope = vars(sys.modules[kind.__module__])
        fields = [
            (field.name, _type(ast.parse(str(field.type), mode="eval").body, scope), _is_required(field))
            for field in dataclasses.fields(kind)
            if field.init
        ]
        _DATACLASSES[kind] = _Type(functools.partial(_read_dataclass, kind, fields))
    return _DATACLASSES[kind]


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _type(hint: ast.expr, scope: Mapping[str, Any]) -> _Type:
    """Return the type of an annotation, from its text: Python 3.9 cannot evaluate ``X | None``."""
    name = ast.unparse(hint)
    if name in _LEAVES:
        return _LEAVES[name]
    if isinstance(hint, ast.BinOp):
        inner = _type(hint.left, scope)
        return _Type(functools.partial(_read_optional, inner.read), inner.exact | {type(None)})
    if isinstance(hint, ast.Subscript):
        outer = ast.unparse(hint.value)
        args = hint.slice.elts if isinstance(hint.slice, ast.Tuple) else [hint.slice]
        if outer == "dict":
            return _Type(functools.partial(_read_dict, _KEYS[ast.unparse(args[0])], _type(args[1], scope)))
        return _Type(functools.partial(_read_list, _LISTS[outer], _type(args[0], scope)))
    return _type_of(scope[name])


def _read_dataclass(kind: type[Any], fields: list[tuple[str, _Type, bool]], data: Any) -> Any:
    """Return the dataclass of a mapping; ``fields`` have their names, types, and whether they are required."""
    if not isinstance(data, dict):
        raise _MismatchError("must be a mapping")
    values = {}
    name = ""
    try:
        for name, (read, exact), required in fields:
            if name in data:
                value = data[name]
                values[name] = value if type(value) in exact else read(value)
            elif required:
                raise _MismatchError("is missing")
    except _MismatchError as error:
        raise error.within(f".{name}") from None
    if len(values) < len(data) and not getattr(kind, "extensible", False):
        raise _MismatchError("is not known").within(_path_step(next(key for key in data if key not in values)))
    try:
        return kind(**values)
    except ValueError as error:
        raise _MismatchError(f"is invalid, because {error}") from None


def _read_optional(read: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else read(value)


def _read_list(make: Callable[[Iterable[Any]], Any], item: _Type, value: Any) -> Any:
    if not isinstance(value, (list, tuple)):
        raise _MismatchError("must be a list")
    if item.exact.issuperset(map(type, value)):
        return make(value)
    return make(_read_each(item, enumerate(value), "[{}]".format))


def _read_dict(key: _Type, item: _Type, value: Any) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise _MismatchError("must be a mapping")
    if key.exact.issuperset(map(type, value)) and item.exact.issuperset(map(type, value.values())):
        return dict(value)
    return dict(zip(map(key.read, value), _read_each(item, value.items(), _path_step)))


def _read_each(item: _Type, pairs: Iterable[tuple[Any, Any]], step: Callable[[Any], str]) -> Iterator[Any]:
    pair = (None, None)
    try:
        for pair in pairs:
            yield item.read(pair[1])
    except _MismatchError as error:
        raise error.within(step(pair[0])) from None


def _path_step(key: object) -> str:
    """Return the path step for a key of a mapping; keys that are no identifiers are quoted and truncated."""
    text = str(key)
    return f".{text}" if text.isidentifier() and len(text) <= 40 else f"[{text[:40]!r}]"


def _read_str(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise _MismatchError("must be text")


def _read_int(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _MismatchError("must be a whole number")
    if not MIN_WHOLE <= value <= MAX_WHOLE:
        raise _MismatchError("must be a whole number of 64 bits")
    return value


def _read_float(value: Any) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max:
        return float(value)
    raise _MismatchError("must be a number")


def _read_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise _MismatchError("must be true or false")


def _read_number(key: Any) -> int:
    """Parse a number that is the key of a JSON object, and so text."""
    try:
        return _read_int(int(str(key)))
    except (ValueError, _MismatchError):
        raise _MismatchError("must have whole numbers of 64 bits as keys") from None


def _read_json(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _MismatchError("must be a mapping")
    _check_levels(value, MAX_LEVELS)
    return dict(value)


def _check_levels(value: Any, levels: int) -> None:
    if not levels:
        raise _MismatchError(f"has more than {MAX_LEVELS} levels")
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, (dict, list, tuple)):
            _check_levels(item, levels - 1)


_LEAVES: dict[str, _Type] = {
    "dict[str, Any]": _Type(_read_json),
    "bool": _Type(_read_bool, frozenset({bool})),
    "float": _Type(_read_float),
    "int": _Type(_read_int),
    "str": _Type(_read_str, frozenset({str})),
}
_KEYS: dict[str, _Type] = {"str": _LEAVES["str"], "int": _Type(_read_number)}
_LISTS: dict[str, Callable[[Iterable[Any]], Any]] = {"frozenset": frozenset, "list": list, "tuple": tuple}
