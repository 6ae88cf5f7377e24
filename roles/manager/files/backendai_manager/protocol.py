# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the two parts say to each other.

The user's part writes one line of JSON, the request, and keeps the pipe open: its end cancels the command. The
manager's part answers in lines of JSON: events, and one result at last.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from .errors import RefusedError

MAX_REQUEST = 1 << 20
"""How many bytes a request may have."""

REQUEST_SECONDS = 10.0
"""How many seconds a request may take to arrive."""

READER_SECONDS = 60.0
"""How long the user's part may read nothing before it counts as gone."""

UNREAD = 75
"""The exit code of the manager's part in that case: no more lines, and no result, can be sent."""

EXIT_CODES = {"done": 0, "failed": 1, "refused": 2, "pending": 3}
"""The exit code of the command for each status of a result."""

MAX_SECONDS = 30 * 86400

_SESSION = re.compile(r"[a-z0-9][a-z0-9-]{0,62}[a-z0-9]")
_HOST = re.compile(r"([a-z][a-z0-9-]{0,62})?")


@dataclasses.dataclass(frozen=True)
class Request:
    """A valid request: what to do, and the value of each field of that verb."""

    verb: str
    fields: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Result:
    """How a command ended: a status, a text for people, which may be empty, and data for programs."""

    status: str
    message: str = ""
    data: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """The exit code of the command."""
        return EXIT_CODES.get(self.status, 1)


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError("must be true or false")


def _session(value: Any) -> str:
    if isinstance(value, str) and _SESSION.fullmatch(value):
        return value
    raise ValueError("must be the name or the id of a session: 2 to 64 characters of a-z, 0-9 and -")


def _host(value: Any) -> str:
    if isinstance(value, str) and _HOST.fullmatch(value):
        return value
    raise ValueError("must be the hostname of a container, such as main1 or sub1")


def _number(least: int, most: int) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        raise ValueError(f"must be a whole number from {least} to {most}")

    return parse


def _mapping(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise ValueError("must be a mapping")


@dataclasses.dataclass(frozen=True)
class _Field:
    """A field of a request: how its value is read, and its default; required if that is ``None``."""

    parse: Callable[[Any], Any]
    default: Any = None


_ONE = {"session": _Field(_session)}
VERBS: Mapping[str, Mapping[str, _Field]] = {
    "create": {
        "options": _Field(_mapping),
        "dry_run": _Field(_flag, False),
        "wait": _Field(_number(0, MAX_SECONDS), 0),
        "wait_for_hosts": _Field(_flag, False),
    },
    "list": {"all": _Field(_flag, False), "cached": _Field(_flag, False), "history": _Field(_flag, False)},
    "show": _ONE,
    "logs": {
        **_ONE,
        "host": _Field(_host, ""),
        "lines": _Field(_number(1, 100_000), 100),
        "follow": _Field(_flag, False),
    },
    "access": _ONE,
    "token": {**_ONE, "seconds": _Field(_number(60, MAX_SECONDS), 3600)},
    "end": {**_ONE, "force": _Field(_flag, False), "confirmed": _Field(_flag, True)},
    "repair": {**_ONE, "fresh_home": _Field(_flag, False)},
    "agents": {},
    "limits": {},
}
"""The verbs and their fields."""


def parse_request(line: bytes) -> Request:
    """Return the request in a line. Raises :class:`RefusedError`."""
    if len(line) > MAX_REQUEST:
        raise RefusedError(f"the request is larger than {MAX_REQUEST} bytes.")
    try:
        data = json.loads(line.decode())
        # Half of a character, or a number of thousands of digits, cannot be written again.
        json.dumps(data, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        raise RefusedError("the request is not a line of JSON in UTF-8.") from None
    if not isinstance(data, dict):
        raise RefusedError("the request is not a mapping.")
    verb = data.pop("verb", None)
    fields = VERBS.get(verb) if isinstance(verb, str) else None
    if fields is None or not isinstance(verb, str):
        raise RefusedError(f"the request has none of the verbs {', '.join(VERBS)}.")
    unknown = [name for name in data if name not in fields]
    if unknown:
        raise RefusedError(f"{verb} has no field {unknown[0][:40]!r}; its fields are {', '.join(fields) or 'none'}.")
    return Request(verb, {name: _read(verb, name, field, data) for name, field in fields.items()})


def _read(verb: str, name: str, field: _Field, data: Mapping[str, Any]) -> Any:
    if name not in data and field.default is not None:
        return field.default
    try:
        return field.parse(data.get(name))
    except ValueError as error:
        raise RefusedError(f"{verb}: {name} {error}.") from None


def request_line(verb: str, fields: Mapping[str, Any]) -> bytes:
    """Return a request as the line that the manager's part reads."""
    return json.dumps({"verb": verb, **fields}, ensure_ascii=False).encode() + b"\n"


def event_line(kind: str, fields: Mapping[str, Any]) -> bytes:
    """Return an event as a line."""
    return _line({"event": kind, **fields})


def result_line(result: Result) -> bytes:
    """Return a result as a line."""
    return _line({"result": result.status, "message": result.message, "data": result.data})


def _line(data: Mapping[str, Any]) -> bytes:
    # With escapes: what containers print may not be UTF-8.
    return json.dumps(data).encode() + b"\n"


def parse_answer(line: bytes) -> Result | dict[str, Any]:
    """Return the result, or the event, in a line of the manager's part. Raises :class:`ValueError`."""
    data = json.loads(line)
    if not isinstance(data, dict):
        raise ValueError("not a mapping")
    if "result" in data:
        return Result(str(data["result"]), str(data.get("message") or ""), dict(data.get("data") or {}))
    if not isinstance(data.get("event"), str):
        raise ValueError("neither an event nor a result")
    return data
