"""Judges requests to an engine by the published descriptions of its API: what they do not have is a problem."""

from __future__ import annotations

import functools
import json
import re
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any

from tests.unit.engine_api.derive import ANY, CALLS, DERIVED

#: The one call that names no version: it asks which one to name.
NEGOTIATION = "GET /_ping"


@functools.cache
def _derived() -> Mapping[str, Any]:
    derived: Mapping[str, Any] = json.loads(DERIVED.read_text())
    return derived


def described_versions() -> list[str]:
    """Return the versions of the API that the lists are of, the oldest first."""
    return [str(version) for version in _derived()["versions"]]


def call_of(method: str, path: str) -> str | None:
    """Return the call that a path without its version makes; ``None`` for one of which there is no list."""
    for call in CALLS:
        verb, pattern = call.split()
        if verb == method and re.fullmatch(re.sub(r"\{\w+\}", "(.+)", pattern), path):
            return call
    return None


@functools.cache
def _allowed(call: str, part: str, version: str) -> frozenset[str]:
    """Return the names that a part of a call, its ``query`` or its ``body``, has in a version."""
    versions, names = described_versions(), set[str]()
    at = versions.index(version)
    for span, listed in _derived()["calls"][call][part].items():
        first, last = span.split("-")
        if (versions.index(first) if first else 0) <= at <= (versions.index(last) if last else len(versions)):
            names.update(listed)
    return frozenset(names)


def problems_of(method: str, target: str, body: Any = None) -> list[str]:
    """Return what is wrong with a request, given its target with the version, and its body as data."""
    path, _mark, query = target.partition("?")
    found = re.fullmatch(r"/v(\d+\.\d+)(/.*)", path)
    if found is None:
        return [] if f"{method} {path}" == NEGOTIATION else [f"{method} {path} names no version of the API"]
    version, path = found.groups()
    call = call_of(method, urllib.parse.unquote(path))
    if version not in described_versions():
        return [f"{method} {path} names {version}, which is described nowhere"]
    if call is None:
        return [f"{method} {path} is a call without a list of its fields: derive one"]
    names = [*urllib.parse.parse_qs(query, keep_blank_values=True)]
    unknown = [f"the parameter {name}" for name in names if name not in _allowed(call, "query", version)]
    allowed = _allowed(call, "body", version)
    unknown += [f"the field {field}" for field in _fields(body, "", allowed) if field not in allowed]
    return [f"{call} has {what}, which API {version} does not have" for what in unknown]


def _fields(value: Any, prefix: str, allowed: frozenset[str]) -> Iterator[str]:
    """Yield the fields of a body as the lists name them; what is null is as good as left out."""
    if isinstance(value, list):
        for entry in value:
            yield from _fields(entry, prefix, allowed)
    if isinstance(value, dict):
        for name, inner in value.items():
            if inner is not None:
                field = f"{prefix}{ANY}" if f"{prefix}{ANY}" in allowed else f"{prefix}{name}"
                yield field
                yield from _fields(inner, f"{field}.", allowed)
