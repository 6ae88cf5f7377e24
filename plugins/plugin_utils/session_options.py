# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options of a session, with names, types, choices and defaults as specified by the role ``session``."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Container, Mapping, Sequence
from typing import Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.common.yaml import yaml_load
from ansible.module_utils.errors import UnsupportedError

from ..module_utils._model.quantity import parse_seconds
from ..module_utils._model.validation import ValidationErrors
from ._request.value_types import TIME_OPTIONS, decode_value, find_type_error
from .host_program import COLLECTION
from .removed_options import REMOVED_OPTIONS, describe_removed_value

SPECIFICATION = COLLECTION / "roles" / "session" / "meta" / "argument_specs.yml"
USER_OPTIONS = COLLECTION / "roles" / "session" / "vars" / "main.yml"
PREFIX = "session_"

MAX_NAME = 80
"""How many characters of an unknown option are looked at, and shown."""

_SURROGATE = re.compile("[\ud800-\udfff]")

# The comment of a public key may contain a comma.
SEPARATORS = {"session_authorized_keys": "\n"}


@functools.cache
def specification() -> Mapping[str, Mapping[str, Any]]:
    """Return the role's specification of each option, by the name of its variable."""
    options = yaml_load(SPECIFICATION.read_text())["argument_specs"]["main"]["options"]
    return {name: _with_string_paths(option) for name, option in options.items()}


@functools.cache
def _users() -> Mapping[str, Sequence[str]]:
    """Return the lists of options that users may give."""
    lists: Mapping[str, Sequence[str]] = yaml_load(USER_OPTIONS.read_text())
    return lists


def user_options() -> tuple[str, ...]:
    """Return the options of a session that users may give, by their variables' names."""
    return tuple(_users()["__session_user_options"])


def user_run_options() -> tuple[str, ...]:
    """Return the options of a run that users may give, by their variables' names."""
    return tuple(_users()["__session_user_run_options"])


def check_unknown_variables(problems: ValidationErrors, variables: Mapping[str, Any]) -> None:
    """Add a problem for every ``session_*`` variable that is no option, with the closest option as a hint."""
    names = [*specification()]
    for variable in sorted(set(variables) - set(names)):
        if variable.startswith(PREFIX):
            problems.add(f"{variable} is not an option of a session; {_hint(variable, names)}")


def check_user_options(problems: ValidationErrors, options: Mapping[str, Any], variables: Mapping[str, Any]) -> None:
    """Add a problem for every option that users may not give, or that is among the variables, too."""
    allowed = [*user_options(), *user_run_options()]
    for name in sorted(options):
        if name in variables and name in allowed:
            problems.add(f"{name} is both in session_request_path and a variable; remove one of them")
        elif name in specification() and name not in allowed:
            problems.add(f"{name} is an option of operators, and must not be in session_request_path")
        elif name not in allowed:
            problems.add(
                f"session_request_path: {_shorten(name)} is not an option of a session; {_hint(name, allowed)}"
            )


def _hint(name: str, allowed: Sequence[str]) -> str:
    """Return what to use instead of an unknown option: the closest one, else those with its word in them, else all."""
    if name in REMOVED_OPTIONS:
        return f"it was removed: {REMOVED_OPTIONS[name]}"
    short, word = [option.removeprefix(PREFIX) for option in allowed], name.removeprefix(PREFIX)[:MAX_NAME]
    near = difflib.get_close_matches(word, short, 1) or [option for option in short if word in option.split("_")]
    meant = " or ".join(f"{PREFIX}{option}" for option in near)
    return f"did you mean {meant}?" if near else f"allowed are {', '.join(allowed)}"


def _shorten(name: str) -> str:
    """Return an unknown name as in Python, cut to the length of a line."""
    return repr(name) if len(name) <= MAX_NAME else f"{name[:MAX_NAME]!r}…"


def parse_options(
    problems: ValidationErrors, variables: Mapping[str, Any], leave_out: Container[str] = ()
) -> dict[str, Any]:
    """Return the value of each option in its type, or its default, by name without ``session_``.

    Adds a sentence for each problem. An invalid option has its default, so that the others can still be checked, or
    ``None`` if there is no default. Options in ``leave_out`` are neither checked nor converted.
    """
    check_unknown_variables(problems, variables)
    values = {}
    for name, option in specification().items():
        default, short = option.get("default"), name.removeprefix(PREFIX)
        raw = variables.get(name, default)
        # Forms send an empty text for what was left out.
        raw = default if raw == "" and "default" in option else raw
        if short in leave_out:
            value = raw
        elif name in TIME_OPTIONS:
            value = _parse_time(problems, name, raw)
        elif _is_text(raw):
            value = _parse_value(problems, name, option, raw)
        else:
            problems.add(f"{name} has a character that UTF-8 does not have, such as a byte of another encoding")
            value = None
        values[short] = default if value is None else value
    return values


def _parse_time(problems: ValidationErrors, where: str, raw: Any) -> int | None:
    """Return a time in seconds; ``None``, with a problem added, if it is invalid."""
    try:
        return parse_seconds(raw)
    except ValueError as error:
        problems.add_invalid(where, raw, str(error))
        return None


def _is_text(value: Any) -> bool:
    """Return whether all texts in a value can be written to files and sent to hosts."""
    if isinstance(value, Mapping):
        return all(map(_is_text, [*value, *value.values()]))
    if isinstance(value, (list, tuple)):
        return all(map(_is_text, value))
    return not isinstance(value, str) or not _SURROGATE.search(value)


def _with_string_paths(option: Mapping[str, Any]) -> dict[str, Any]:
    """Return a specification with paths as strings: most are paths on other hosts, where ``~`` differs."""
    kind = {"path": "str"}.get(option["type"], option["type"])
    members = {name: _with_string_paths(member) for name, member in option.get("options", {}).items()}
    return {**option, "type": kind, **({"options": members} if members else {})}


def _parse_value(problems: ValidationErrors, where: str, option: Mapping[str, Any], raw: Any) -> Any:
    """Return a value in its option's type; ``None``, with a problem added, if it is invalid."""
    value = decode_value(option, raw, SEPARATORS.get(where, ","))
    if value is None:
        if option.get("default") == "" and not option.get("no_log"):
            return ""
        problems.add(f"{where} is required")
        return None
    reason = describe_removed_value(where, value) or find_type_error(option, value)
    if reason and option.get("no_log"):
        problems.add(f"{where} {reason}")
    elif reason:
        problems.add_invalid(where, value, reason)
    if reason:
        return None
    if option["type"] == "list":
        return _parse_elements(problems, where, option, value)
    validated = _validate(problems, "", {where: option}, {where: value})
    return validated and validated[where]


def _parse_elements(problems: ValidationErrors, where: str, option: Mapping[str, Any], listed: Any) -> list[Any] | None:
    """Return the entries of a list in their type; ``None`` if one is invalid."""
    entries = [(f"{where}[{index}]", raw) for index, raw in enumerate(listed)]
    if "options" in option:
        values = [_parse_members(problems, place, option, raw) for place, raw in entries]
    else:
        values = [_parse_value(problems, place, {"type": option["elements"]}, raw) for place, raw in entries]
    return None if None in values else values


def _parse_members(
    problems: ValidationErrors, where: str, option: Mapping[str, Any], raw: Any
) -> dict[str, Any] | None:
    """Return a mapping with its members in their types, completed with defaults; ``None`` if one is invalid.

    Where entries may be ``raw``, a word is the name of one.
    """
    options = option["options"]
    if option["elements"] == "raw" and isinstance(raw, str):
        raw = {"name": raw}
    if not isinstance(raw, Mapping):
        problems.add(f"{where} must be a mapping of {', '.join(options)}")
        return None
    recognized = {name: value for name, value in raw.items() if name in options}
    coerced = {
        name: _parse_value(problems, f"{where}.{name}", options[name], value) for name, value in recognized.items()
    }
    failed = {name for name, value in coerced.items() if value is None}
    specified = {name: option for name, option in options.items() if name not in failed}
    good = {name: value for name, value in {**raw, **coerced}.items() if name not in failed}
    members = _validate(problems, where, specified, good)
    return None if failed else members


def _validate(
    problems: ValidationErrors, where: str, options: Mapping[str, Any], values: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return values as validated by Ansible against a specification; ``None`` if any is invalid."""
    result = ArgumentSpecValidator(dict(options)).validate({str(name): value for name, value in values.items()})
    for error in result.errors:
        if not isinstance(error, UnsupportedError):
            problems.add(f"{where}: {error.msg}" if where else error.msg)
    for name in sorted(result.unsupported_parameters):
        problems.add(f"{where}.{name} is not known; allowed are {', '.join(options)}")
    return None if result.error_messages else dict(result.validated_parameters)
