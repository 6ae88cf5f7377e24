# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options of a session that users may give: from the specification of the role ``session``."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from .errors import CommandError

PREFIX = "session_"
MAX_NAME = 80

_MARKUP = re.compile(r"\b[CVOEMP]\(([^()]*)\)")
_TYPES: Mapping[str, Mapping[str, Any]] = {
    "str": {"type": ["string", "number"]},
    "path": {"type": "string"},
    "int": {"type": "integer"},
    "bool": {"type": "boolean"},
    "dict": {"type": "object"},
    "list": {"type": "array"},
    "raw": {},
}


@dataclasses.dataclass(frozen=True)
class Options:
    """The specification of each option by its full name; those of a session, and of a run, that users may give.

    ``removed`` and ``removed_values`` say what to use instead of options and values that there are no more.
    """

    specification: Mapping[str, Mapping[str, Any]]
    of_sessions: tuple[str, ...]
    of_runs: tuple[str, ...]
    removed: Mapping[str, str]
    removed_values: Mapping[str, Mapping[str, str]]

    def hint(self, word: str, allowed: Iterable[str]) -> str:
        """Return which of the allowed options may have been meant, else all of them, without their prefix.

        Of an option that was removed, return what to use instead.
        """
        instead = self.removed.get(f"{PREFIX}{word.removeprefix(PREFIX)}")
        if instead:
            return f"it was removed: {instead}."
        names = [name.removeprefix(PREFIX) for name in allowed]
        near = difflib.get_close_matches(word.removeprefix(PREFIX)[:MAX_NAME], names, 1)
        return f"did you mean {near[0]}?" if near else f"allowed are {', '.join(names)}."

    def removal(self, option: str, value: Any) -> str:
        """Return that a value of an option was removed, and what to use instead, as a phrase; empty if it was not."""
        instead = self.removed_values.get(option, {}).get(value) if isinstance(value, str) else None
        return f"was removed: {instead}" if instead else ""


def load_options(path: Path) -> Options:
    """Read the specification in the collection. Raises :class:`CommandError`."""
    try:
        main = _load(path)["argument_specs"]["main"]
        lists, removed = (_load(path.parents[1] / "vars" / f"{name}.yml") for name in ("main", "removed"))
        of_sessions, of_runs = (tuple(map(str, lists[f"__session_user_{name}"])) for name in ("options", "run_options"))
        gone = (removed[f"__session_removed_{name}"] for name in ("options", "values"))
        return Options(main["options"], of_sessions, of_runs, *gone)
    except (OSError, yaml.YAMLError, LookupError, TypeError) as error:
        raise CommandError(f"{path} cannot be read ({type(error).__name__}): install the manager again.") from None


def _load(path: Path) -> Any:
    return yaml.load(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def parse_time(value: object) -> int:
    """Return a time in seconds. Raises :class:`ValueError` with what is allowed."""
    # In the collection, which is found once the program has started, and without Ansible, which users need not have.
    from ansible_collections.backendai.cluster.plugins.module_utils._model.quantity import parse_seconds

    return parse_seconds(value)


def parse_gpus(value: object) -> int:
    """Return a number of GPUs. Raises :class:`ValueError` with what is allowed."""
    from ansible_collections.backendai.cluster.plugins.module_utils._model.quantity import parse_count

    return parse_count(value)


def build_schema(options: Options) -> dict[str, Any]:
    """Return the JSON Schema of a spec file, by which editors complete it."""
    properties = {name.removeprefix(PREFIX): _schema(options.specification[name]) for name in options.of_sessions}
    properties["mounts"] = {
        "type": "array",
        "items": {"type": "string"},
        "description": "The names of folders that the manager's policy offers.",
    }
    # The policy sets them.
    for name in ("uid", "gid"):
        properties.pop(name, None)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A session of backendai.cluster",
        "type": "object",
        "additionalProperties": False,
        "patternProperties": {f"^{PREFIX}": True},
        "properties": properties,
    }


def _schema(option: Mapping[str, Any]) -> dict[str, Any]:
    kind = option.get("type", "str")
    schema: dict[str, Any] = dict(_TYPES[kind])
    schema["description"] = _plain(option.get("description", ""))
    if "choices" in option:
        schema["enum"] = list(option["choices"])
    if "default" in option:
        schema["default"] = option["default"]
    if kind == "list":
        schema["items"] = _items(option)
    return schema


def _items(option: Mapping[str, Any]) -> dict[str, Any]:
    members = option.get("options")
    if not members:
        return dict(_TYPES[option.get("elements", "str")])
    mapping = {
        "type": "object",
        "additionalProperties": False,
        "properties": {name: _schema(member) for name, member in members.items()},
        "required": [name for name, member in members.items() if member.get("required")],
    }
    # Where entries may be anything, a word is the name of one.
    return {"anyOf": [{"type": "string"}, mapping]} if option.get("elements") == "raw" else mapping


def _plain(description: Any) -> str:
    """Return a description without Ansible's markup."""
    text = description if isinstance(description, str) else " ".join(map(str, description))
    return _MARKUP.sub(lambda match: match[1].removeprefix(PREFIX), text)


TEMPLATE = """\
# A session: backendai create FILE. Every word of it: backendai schema.
name: train-llm
image: registry.example.com/pytorch:2.3
cluster_size: 2                     # containers: main1, sub1 …
resources: {cpu: 1, mem: 1g}        # of each container; {cuda.device: 1} for a GPU, whose cores and memory follow
# env: {WANDB_MODE: offline}
# mounts: [data]                    # folders that the policy offers; without one, all files are lost with the session
# apps: [jupyter, terminal]         # backendai open train-llm jupyter
# command: exec python train.py     # a batch session: it ends with this command
# max_lifetime: 8h                  # ends after 8 hours; 90m, 7d, or a number of seconds
"""
"""A spec file to begin with."""
