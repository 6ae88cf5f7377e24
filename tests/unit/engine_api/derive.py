"""Derives what each call of ours may say, by version, from the published descriptions of the engine's API.

``python -m tests.unit.engine_api.derive FOLDER`` reads ``v1.41.yaml`` and later ones in the folder ``api/docs`` of
github.com/moby/moby, and writes ``requests.json`` beside this file: names of parameters and fields, and the versions
that have them. Nothing else of the descriptions is kept.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

DERIVED = Path(__file__).with_name("requests.json")

CALLS = (
    *("GET /_ping", "GET /version", "GET /info", "GET /volumes", "GET /distribution/{name}/json"),
    *("GET /images/json", "GET /images/{name}/json", "POST /images/create", "POST /images/{name}/tag"),
    *("DELETE /images/{name}", "GET /networks", "POST /networks/create", "POST /networks/{id}/connect"),
    *("DELETE /networks/{id}", "GET /containers/json", "GET /containers/{id}/json", "GET /containers/{id}/logs"),
    *("GET /containers/{id}/archive", "HEAD /containers/{id}/archive", "POST /containers/create"),
    *("POST /containers/{id}/start", "POST /containers/{id}/kill", "DELETE /containers/{id}"),
    *("POST /containers/{id}/exec", "POST /exec/{id}/start"),
)
"""The calls that the collection makes."""

ANY = "*"
"""A name that the caller chooses, such as that of a label."""


def fields_of(description: Mapping[str, Any], schema: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the fields of a schema, those of fields of fields after a point; those of lists are of their entries."""
    if "$ref" in schema:
        yield from fields_of(description, description["definitions"][schema["$ref"].rpartition("/")[2]], prefix)
    for part in schema.get("allOf", ()):
        yield from fields_of(description, part, prefix)
    for name, inner in schema.get("properties", {}).items():
        yield f"{prefix}{name}"
        yield from fields_of(description, inner, f"{prefix}{name}.")
    if isinstance(schema.get("items"), Mapping):
        yield from fields_of(description, schema["items"], prefix)
    if isinstance(schema.get("additionalProperties"), Mapping):
        yield f"{prefix}{ANY}"
        yield from fields_of(description, schema["additionalProperties"], f"{prefix}{ANY}.")


def read_call(description: Mapping[str, Any], call: str) -> tuple[set[str], set[str]]:
    """Return the parameters and the fields that a call may have."""
    method, path = call.split()
    operation = description["paths"][path][method.lower()]
    parameters = operation.get("parameters", ())
    query = {parameter["name"] for parameter in parameters if parameter["in"] == "query"}
    bodies = [parameter["schema"] for parameter in parameters if parameter["in"] == "body"]
    return query, {field for body in bodies for field in fields_of(description, body)}


def spans(present: Mapping[str, set[str]]) -> dict[str, list[str]]:
    """Return names by the versions that have them, ``FIRST-LAST``; nothing where it is the first or last of all."""
    versions, found = list(present), defaultdict(list)
    for name in sorted(set().union(*present.values())):
        having = [version for version in versions if name in present[version]]
        first, last = versions.index(having[0]), versions.index(having[-1])
        assert having == versions[first : last + 1], f"{name} comes and goes"
        begin, end = having[0] if first else "", having[-1] if last < len(versions) - 1 else ""
        found[f"{begin}-{end}"].append(name)
    return dict(found)


def main() -> None:
    """Read the descriptions, the oldest first, and write what is derived."""
    paths = sorted(Path(sys.argv[1]).glob("v1.*.yaml"), key=lambda path: int(path.stem.partition(".")[2]))
    descriptions = {path.stem[1:]: yaml.safe_load(path.read_text()) for path in paths if int(path.stem[3:]) >= 41}
    calls = {}
    for call in CALLS:
        read = {version: read_call(description, call) for version, description in descriptions.items()}
        query = spans({version: names for version, (names, _fields) in read.items()})
        body = spans({version: fields for version, (_names, fields) in read.items()})
        calls[call] = {"query": query, "body": body}
    derived = {"versions": list(descriptions), "calls": calls}
    DERIVED.write_text(json.dumps(derived, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
