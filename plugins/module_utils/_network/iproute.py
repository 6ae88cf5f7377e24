# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs ``ip`` and ``bridge`` of iproute2, with JSON output and batch input, also in a container's network namespace."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import subprocess
from collections.abc import Iterable, Sequence
from typing import Any

from .._model.change import Change
from .._model.errors import ClusterError, one_line


class NetworkError(ClusterError):
    """A command of iproute2 failed. The message contains the command and its error output."""


class ProcessExitedError(NetworkError):
    """The process has ended before its network namespace could be entered."""


@dataclasses.dataclass(frozen=True)
class LinkOperation:
    """A change, with its batch lines for ``ip`` and for ``bridge``.

    With ``pid``, the lines for ``ip`` run in the network namespace of that process.
    """

    change: Change
    ip: tuple[str, ...] = ()
    bridge: tuple[str, ...] = ()
    pid: int | None = None


class LinkState:
    """A snapshot of this host's links; each listing is read once, at its first use.

    All are by the link's name, forwarding entries and permanent neighbours too.
    """

    @functools.cached_property
    def links(self) -> dict[str, dict[str, Any]]:
        return {link["ifname"]: link for link in show("ip", "-j", "-d", "link", "show")}

    @functools.cached_property
    def addresses(self) -> dict[str, list[dict[str, Any]]]:
        return {link["ifname"]: link["addr_info"] for link in show("ip", "-j", "addr", "show")}

    @functools.cached_property
    def forwarding(self) -> dict[str, list[dict[str, Any]]]:
        return _group_by("ifname", show("bridge", "-j", "fdb", "show"))

    @functools.cached_property
    def neighbours(self) -> dict[str, list[dict[str, Any]]]:
        return _group_by("dev", show("ip", "-j", "neigh", "show", "nud", "permanent"))


def show(*command: str, pid: int | None = None) -> list[dict[str, Any]]:
    """Return the entries of a listing such as ``ip -j link show``; empty if the device does not exist.

    With ``pid``, the command runs in the network namespace of that process. Raises :class:`NetworkError`, or its
    subclass :class:`ProcessExitedError` if that process has ended.
    """
    result = subprocess.run([*_enter(pid), *command], capture_output=True, text=True, check=False)
    if result.returncode:
        if "does not exist" in result.stderr or "Cannot find device" in result.stderr:
            return []
        error_class = (
            ProcessExitedError if pid is not None and not os.path.exists(f"/proc/{pid}/ns/net") else NetworkError
        )
        raise error_class(f"{' '.join(command)}: {result.stderr.strip()}")
    return [entry for entry in json.loads(result.stdout or "[]") if entry]


def apply_operations(steps: Iterable[LinkOperation]) -> None:
    """Apply all operations: one batch for ``ip``, one for ``bridge``, and one for each container.

    Raises :class:`NetworkError`; the first line that fails ends its batch.
    """
    listed = list(steps)
    _batch("ip", [line for step in listed if step.pid is None for line in step.ip])
    _batch("bridge", [line for step in listed for line in step.bridge])
    for pid in dict.fromkeys(step.pid for step in listed if step.pid is not None):
        _batch("ip", [line for step in listed if step.pid == pid for line in step.ip], pid)


def _batch(tool: str, lines: Sequence[str], pid: int | None = None) -> None:
    if not lines:
        return
    text = "".join(f"{line}\n" for line in lines)
    command = [*_enter(pid), tool, "-batch", "-"]
    result = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if result.returncode:
        raise NetworkError(f"{tool} -batch: {one_line(result.stderr)}")


def _group_by(key: str, entries: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for entry in entries:
        groups.setdefault(entry[key], []).append(entry)
    return groups


def _enter(pid: int | None) -> list[str]:
    return [] if pid is None else ["nsenter", f"--target={pid}", "--net"]
