# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads the settings of a host's Docker engine from the command line that it really has, and from its file.

Units, drop-ins and ``/etc/default/docker`` all end in that command line. The engine does not start with the same
setting in both, but for lists.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .processes import PROC

FILE = "/etc/docker/daemon.json"
DATA_ROOT = "/var/lib/docker"

_PROGRAM = "dockerd"
_PID_FILE = Path("/run/docker.pid")
_FORMER_NAMES = {"-g": "--data-root", "--graph": "--data-root"}
# Options whose value may be the next word; a flag has its own after "=".
_WITH_VALUE = ("--config-file", "--data-root", "--dns")
# As Go reads them.
_FALSE = ("0", "f", "F", "false", "False", "FALSE")


class EngineSettings(NamedTuple):
    """The settings of an engine: whether it ``adds_rules`` with iptables, and the ``name_servers`` of containers."""

    adds_rules: bool = True
    data_root: str = DATA_ROOT
    name_servers: tuple[str, ...] = ()


def read_engine_settings() -> EngineSettings:
    """Return the settings of this host's engine; those of the file, and defaults, if it does not run."""
    return parse_engine_settings(engine_arguments())


def parse_engine_settings(arguments: Sequence[str]) -> EngineSettings:
    """Return the settings of an engine with this command line. A file that is missing or damaged has none."""
    given: dict[str, list[str]] = {}
    for name, value in _options(arguments):
        given.setdefault(name, []).append(value)
    configured = _read_file(given.get("--config-file", [FILE])[-1])
    iptables = given.get("--iptables", [configured.get("iptables", True)])[-1]
    data_root = given.get("--data-root", [configured.get("data-root") or configured.get("graph") or DATA_ROOT])[-1]
    servers = configured.get("dns", [])
    return EngineSettings(
        iptables is not False and iptables not in _FALSE,
        str(data_root),
        (*given.get("--dns", []), *(map(str, servers) if isinstance(servers, list) else ())),
    )


def _options(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    words = iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        name = _FORMER_NAMES.get(name, name)
        if not equals and name in _WITH_VALUE:
            value = next(words, "")
        if name.startswith("--"):
            yield name, value


def _read_file(path: str) -> Mapping[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        settings = json.loads(Path(path).read_text())
        return settings if isinstance(settings, dict) else {}
    return {}


def engine_arguments(processes: Path = PROC, pid_file: Path = _PID_FILE) -> list[str]:
    """Return the command line of this host's engine; empty if it does not run.

    Engines in containers of this host are others.
    """
    for pid in _candidates(processes, pid_file):
        with contextlib.suppress(OSError):
            folder = processes / pid
            # The file is left by an engine that was killed, and its number is another program's by now.
            if (folder / "comm").read_text().strip() == _PROGRAM and _is_on_host(folder, processes):
                return (folder / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    return []


def _candidates(processes: Path, pid_file: Path) -> Iterable[str]:
    with contextlib.suppress(OSError, ValueError):
        yield str(int(pid_file.read_text()))
    yield from sorted((path.name for path in processes.glob("[0-9]*")), key=int)


def _is_on_host(process: Path, processes: Path) -> bool:
    return os.readlink(process / "ns/pid") == os.readlink(processes / "self/ns/pid")
