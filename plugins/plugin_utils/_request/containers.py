# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Validates resources and environment variables of containers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ...module_utils._model.devices import GpuRequest
from ...module_utils._model.environment import MASTER_PORT_VARIABLE, is_nvidia_switch, is_port
from ...module_utils._model.quantity import parse_bytes, parse_slot
from ...module_utils._model.validation import ValidationErrors
from .value_types import decode_value

DEFAULT_RESOURCES = {"cpu": 1, "mem": 1 << 30}
MIN_MEMORY = 16 << 20

MAX_VARIABLE = (128 << 10) - 1
"""How many bytes an environment variable may have with its name, for the kernel to start a program with it."""

MAX_ENVIRONMENT = 1 << 20
"""How many bytes all variables of a container may have: the kernel's limit is 2 MiB, arguments of programs included."""

_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._/-]{0,63}")
_SLOT = re.compile(r"[a-z][a-z0-9_-]*(\.[a-z0-9_-]+)*")
_SHELL_RESERVED = ("IFS", "OPTIND")
_FROM_OPTIONS = {
    "LOCAL_USER_ID": "session_uid",
    "LOCAL_GROUP_ID": "session_gid",
    "NVIDIA_VISIBLE_DEVICES": "session_resources",
}
_BY_LOGINS = ("HOME", "LOGNAME", "PWD", "SHELL", "TERM", "USER")
# Of bash, dash and busybox: what these names hold is not what they were given, or nobody gets it.
_BY_SHELLS = (
    *("_", "BASH", "BASHOPTS", "BASHPID", "BASH_ARGV0", "BASH_COMMAND", "BASH_EXECUTION_STRING", "BASH_SUBSHELL"),
    *("BASH_VERSINFO", "BASH_VERSION", "COMP_WORDBREAKS", "EPOCHREALTIME", "EPOCHSECONDS", "HISTCMD", "LINENO"),
    *("OLDPWD", "OPTERR", "PPID", "RANDOM", "SECONDS", "SHELLOPTS", "SHLVL", "SRANDOM"),
)
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def parse_mapping(
    problems: ValidationErrors, option: str, value: Any, description: str = "a mapping"
) -> dict[str, Any]:
    """Return ``value``, or the JSON text in it, as a mapping. Problems do not show it, because it may be secret."""
    decoded_value = decode_value({"type": "dict"}, value)
    if isinstance(decoded_value, Mapping):
        return {str(key): entry for key, entry in decoded_value.items()}
    problems.add(f"{option} must be {description}")
    return {}


def parse_resources(problems: ValidationErrors, option: str, value: Any) -> dict[str, int]:
    """Return the slots of one container; ``cpu`` and ``mem`` have defaults, slots of amount zero are removed."""
    slots = dict(DEFAULT_RESOURCES)
    for slot, amount in parse_mapping(problems, option, value).items():
        if not _SLOT.fullmatch(slot):
            problems.add(f"{option}: {slot!r} is not the name of a slot, such as cpu, mem, shmem or cuda.device")
            continue
        try:
            slots[slot] = parse_slot(slot, amount)
        except ValueError as error:
            problems.add_invalid(f"{option}.{slot}", amount, str(error))
    if slots["cpu"] < 1:
        problems.add_invalid(f"{option}.cpu", slots["cpu"], "must be at least 1")
    if slots["mem"] < MIN_MEMORY:
        problems.add_invalid(f"{option}.mem", slots["mem"], "must be at least 16m")
    return {slot: amount for slot, amount in slots.items() if amount}


def parse_gpu(problems: ValidationErrors, value: Any) -> GpuRequest:
    """Return what a session asks of its NVIDIA GPUs; without ``model`` and ``memory`` it is nothing."""
    option = "session_gpu"
    given = {"model": "", "memory": 0, **parse_mapping(problems, option, value)}
    for name in sorted(given.keys() - {"model", "memory"}):
        problems.add(f"{option}.{name} is not known; allowed are model, memory")
    model, memory = str(given["model"]).strip(), 0
    if model and not _MODEL.fullmatch(model):
        problems.add_invalid(f"{option}.model", model, "must be words of the name of a GPU, such as H100 or RTX 4090")
    try:
        memory = parse_bytes(given["memory"])
    except ValueError as error:
        problems.add_invalid(f"{option}.memory", given["memory"], str(error))
    return GpuRequest(model, memory)


def parse_environment(problems: ValidationErrors, option: str, value: Any) -> dict[str, str]:
    """Return environment variables as text; names that others set are rejected, so that each one has its effect."""
    variables = {}
    for key, content in parse_mapping(problems, option, value).items():
        if not _ENV_NAME.fullmatch(key):
            problems.add(f"{option}: {key!r} is not the name of an environment variable")
        elif key == MASTER_PORT_VARIABLE and not is_port(str(content)):
            problems.add(f"{option}.{key} must be a port number from 1 to 65535")
        elif problem := _find_name_problem(key):
            problems.add(f"{option}.{key}{problem}")
        elif not isinstance(content, (str, int, float, bool)) or any(mark in str(content) for mark in "\n\r\0"):
            problems.add(f"{option}.{key} must be one line of text")
        else:
            variables[key] = str(content).lower() if isinstance(content, bool) else str(content)
            size = environment_bytes({key: variables[key]}) - 1
            if size > MAX_VARIABLE:
                problems.add(
                    f"{option}.{key} has {size:,} bytes with its name, and a variable has at most {MAX_VARIABLE:,}: put"
                    " the value into a file"
                )
    return variables


def environment_bytes(variables: Mapping[str, str]) -> int:
    """Return how many bytes variables take in the environment of a program."""
    return sum(text_bytes(f"{name}={value}") + 1 for name, value in variables.items())


def text_bytes(text: str) -> int:
    """Return how many bytes a text has on a host, whatever it contains."""
    return len(text.encode(errors="surrogatepass"))


def _find_name_problem(name: str) -> str:
    """Return why a session cannot set a variable, as what follows its name in a sentence; empty if it can."""
    if name.startswith("BACKENDAI_") and name != MASTER_PORT_VARIABLE:
        return ": names that begin with BACKENDAI_ are reserved for the session"
    if name in _FROM_OPTIONS:
        return f" is set from {_FROM_OPTIONS[name]}"
    if name in _BY_LOGINS:
        remedy = "; for caches elsewhere, set the program's own variable, such as XDG_CACHE_HOME"
        return f" is set by each login of user work{remedy if name == 'HOME' else ''}"
    if name in _SHELL_RESERVED:
        return ": would break the shell of the container"
    if name in _BY_SHELLS:
        return " is set by each shell, whatever it is given"
    return ": no switch of NVIDIA's container runtime reaches it from a session" if is_nvidia_switch(name) else ""
