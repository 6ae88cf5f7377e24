# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Dataclasses as plain data, and back: their fields are the only schema of what is sent and stored of them.

The type of a field is ``str``, ``int``, ``float``, ``bool``, ``Any`` or another dataclass; a ``tuple[X, ...]``,
``frozenset[X]``, ``dict[str, X]`` or ``dict[int, X]`` of these; or one of them ``| None``.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from ansible_collections.backendai.cluster.plugins.module_utils._model.errors import ClusterError

T = TypeVar("T")
Reader = Callable[[Any], Any]


class DataError(ClusterError, ValueError):
    """Plain data is not of its dataclass; the message names the field and says what it must be, never what it is."""


class _Mismatch(Exception):
    """What is ``wrong`` with one value; ``path`` leads to it from the value that is read at the moment."""

    def __init__(self, wrong: str, path: str = "") -> None:
        super().__init__(wrong)
        self.wrong, self.path = wrong, path

    def within(self, step: str) -> _Mismatch:
        """Return this, seen from the value that has the present one at ``step``."""
        self.path = f"{step}{self.path}"
        return self


def to_plain(value: Any) -> Any:
    """Return a value as JSON has it: a dataclass as a mapping, tuples as lists, sets as sorted lists, keys as text."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, dict):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if isinstance(value, frozenset):
        return sorted(value)
    return {name: to_plain(getattr(value, name)) for name in value.__dataclass_fields__}


def from_plain(kind: type[T], data: object, what: str) -> T:
    """Return the dataclass of that ``kind`` from which :func:`to_plain` made ``data``.

    Raises :class:`DataError`, one sentence that begins with ``what``, where a field is of another type, is not known,
    or is missing and has no default.
    """
    try:
        made: T = _reader_of(kind)(data)
    except _Mismatch as error:
        raise DataError(f"{what}: {error.path.lstrip('.') or 'all of it'} {error.wrong}") from None
    return made


_READERS: dict[type[Any], Reader] = {}


def _reader_of(kind: type[Any]) -> Reader:
    """Return what reads a dataclass: made once for each, because the facts of a cluster have a million values."""
    if kind not in _READERS:
        scope = vars(sys.modules[kind.__module__])
        hints = {field.name: ast.parse(str(field.type), mode="eval").body for field in dataclasses.fields(kind)}
        fields = [
            (field.name, _EXACT.get(str(field.type)), _reader(hints[field.name], scope), _is_required(field))
            for field in dataclasses.fields(kind)
        ]
        _READERS[kind] = functools.partial(_read_dataclass, kind, fields)
    return _READERS[kind]


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _reader(hint: ast.expr, scope: Mapping[str, Any]) -> Reader:
    """Return what reads values of a type, given as its text: Python 3.9 cannot evaluate ``X | None``."""
    if isinstance(hint, ast.BinOp):
        return functools.partial(_read_optional, _reader(hint.left, scope))
    if isinstance(hint, ast.Subscript):
        outer = ast.unparse(hint.value)
        inner = hint.slice.elts if isinstance(hint.slice, ast.Tuple) else [hint.slice]
        if outer == "dict":
            return functools.partial(_read_dict, _KEYS[ast.unparse(inner[0])], _reader(inner[1], scope))
        return functools.partial(_read_list, _LISTS[outer], _reader(inner[0], scope))
    name = ast.unparse(hint)
    return _LEAVES.get(name) or _reader_of(scope[name])


def _read_dataclass(kind: type[Any], fields: Iterable[tuple[str, type[Any] | None, Reader, bool]], data: Any) -> Any:
    if not isinstance(data, dict):
        raise _Mismatch("must be a mapping")
    values = {}
    name = ""
    try:
        for name, exact, read, required in fields:
            if name in data:
                value = data[name]
                values[name] = value if type(value) is exact else read(value)
            elif required:
                raise _Mismatch("is missing")
    except _Mismatch as error:
        raise error.within(f".{name}") from None
    if len(values) < len(data):
        raise _Mismatch("is not known").within(_step(next(key for key in data if key not in values)))
    return kind(**values)


def _read_optional(read: Reader, value: Any) -> Any:
    return None if value is None else read(value)


def _read_list(make: Callable[[Iterator[Any]], Any], read: Reader, value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return make(_read_each(read, enumerate(value), "[{}]".format))
    raise _Mismatch("must be a list")


def _read_dict(read_key: Reader, read: Reader, value: Any) -> dict[Any, Any]:
    if isinstance(value, dict):
        return dict(zip(map(read_key, value), _read_each(read, value.items(), _step)))
    raise _Mismatch("must be a mapping")


def _read_each(read: Reader, items: Iterable[tuple[Any, Any]], step: Callable[[Any], str]) -> Iterator[Any]:
    pair = (None, None)
    try:
        for pair in items:
            yield read(pair[1])
    except _Mismatch as error:
        raise error.within(step(pair[0])) from None


def _step(key: object) -> str:
    """Return the step to what a mapping has at a key, which may be anything, and as long as it likes."""
    text = str(key)
    return f".{text}" if text.isidentifier() and len(text) <= 40 else f"[{text[:40]!r}]"


def _read_str(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise _Mismatch("must be text")


def _read_int(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise _Mismatch("must be a whole number")


def _read_float(value: Any) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max:
        return float(value)
    raise _Mismatch("must be a number")


def _read_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise _Mismatch("must be true or false")


def _read_number(key: Any) -> int:
    """Return the number that JSON has as the text of a key."""
    try:
        return int(str(key))
    except ValueError:
        raise _Mismatch("must have whole numbers as keys") from None


def _read_any(value: Any) -> Any:
    return value


_EXACT: dict[str, type[Any]] = {"bool": bool, "int": int, "str": str}
"""Types of which an instance needs no further look; others may be of a subclass, as Ansible has them of text."""

_KEYS: dict[str, Reader] = {"str": _read_str, "int": _read_number}
_LISTS: dict[str, Callable[[Iterator[Any]], Any]] = {"frozenset": frozenset, "tuple": tuple}
_LEAVES: dict[str, Reader] = {
    "Any": _read_any,
    "bool": _read_bool,
    "float": _read_float,
    "int": _read_int,
    "str": _read_str,
}
