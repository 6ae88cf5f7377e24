# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs ``ip``, ``bridge`` and ``nft`` with JSON output and batch input, also in a container's network namespace."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import subprocess
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from .._host.threads import in_threads
from .._model.change import Change
from .._model.errors import ClusterError, one_line

IN_USE_SECONDS = 15
"""How long the MAC of a container that was restarted may be in use: the kernel removes its former namespace later."""

PROGRAM_SECONDS = 60
"""The time limit of one program: what hangs must not keep the locks of a request."""

# An address for documentation (RFC 5737), to which no network has a route of its own.
_ELSEWHERE = "203.0.113.1"

_IN_USE = re.compile(r"Address already in use.*^Command failed .*:(\d+)$", re.DOTALL | re.MULTILINE)


class NetworkError(ClusterError):
    """``ip``, ``bridge`` or ``nft`` failed. The message contains the command and its error output."""


class ProcessExitedError(NetworkError):
    """The process has ended before its network namespace could be entered."""


class WayOut(NamedTuple):
    """How a host reaches other networks: the ``interface``, and the MTU of that way in bytes."""

    interface: str
    mtu: int


class LinkOperation(NamedTuple):
    """A change, with its batch lines for ``ip`` and for ``bridge``, and its input for ``nft``.

    With ``pid``, they run in the network namespace of that process.
    """

    change: Change
    ip: tuple[str, ...] = ()
    bridge: tuple[str, ...] = ()
    pid: int | None = None
    nft: str = ""


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

    @functools.cached_property
    def way_out(self) -> WayOut | None:
        """The way that policy and routes give to an address elsewhere, with the MTU of its route if it has one.

        Without a default route, it is the interface with the smallest MTU that is no container's.
        """
        try:
            route = next(iter(show("ip", "-j", "-4", "route", "get", _ELSEWHERE)), {})
        except NetworkError:
            route = {}
        if route.get("dev") in self.links:
            metrics = {name: value for metric in route.get("metrics", ()) for name, value in metric.items()}
            return WayOut(route["dev"], int(metrics.get("mtu") or self.links[route["dev"]]["mtu"]))
        ways = [WayOut(name, link["mtu"]) for name, link in self.links.items() if self._leads_out(name, link)]
        return min(ways, key=lambda way: way.mtu, default=None)

    def _leads_out(self, name: str, link: dict[str, Any]) -> bool:
        kind = link.get("linkinfo", {}).get("info_kind")
        inside = kind == "bridge" or "LOOPBACK" in link["flags"]
        return not inside and any(
            entry.get("family") == "inet" and entry["scope"] == "global" for entry in self.addresses.get(name, [])
        )


def show(*command: str, pid: int | None = None) -> list[dict[str, Any]]:
    """Return the entries of a listing such as ``ip -j link show``; empty if the device does not exist.

    With ``pid``, the command runs in the network namespace of that process. Raises :class:`NetworkError`, or its
    subclass :class:`ProcessExitedError` if that process has ended.
    """
    result = _run(command, "", pid)
    if result.returncode:
        if "does not exist" in result.stderr or "Cannot find device" in result.stderr:
            return []
        raise _error(command, result.stderr, pid)
    return [entry for entry in json.loads(result.stdout or "[]") if entry]


def show_inside(pid: int, *queries: str) -> list[list[dict[str, Any]]]:
    """Return the entries of each query, such as ``addr show``, in the network namespace of a process.

    Raises :class:`NetworkError`, or its subclass :class:`ProcessExitedError` if that process has ended.
    """
    command = ["ip", "-j", "-d", "-batch", "-"]
    text = "".join(f"{query}\n" for query in queries)
    result = _run(command, text, pid)
    if result.returncode:
        raise _error(command, result.stderr, pid)
    return [[entry for entry in json.loads(line) if entry] for line in result.stdout.splitlines() if line.strip()]


def apply_operations(steps: Iterable[LinkOperation]) -> None:
    """Apply all operations: those of this host first, then those of the containers side by side, rules before links.

    A container that has ended is skipped. Raises :class:`NetworkError`; the first line that fails ends its batch. A MAC
    in use is waited for.
    """
    by_pid: dict[int | None, list[LinkOperation]] = {None: []}
    for step in steps:
        by_pid.setdefault(step.pid, []).append(step)
    _apply_in(None, by_pid.pop(None))
    in_threads(_apply_in, by_pid.keys(), by_pid.values())


def _apply_in(pid: int | None, steps: Sequence[LinkOperation]) -> None:
    with contextlib.suppress(ProcessExitedError):
        _run_input(["nft", "--file", "-"], [step.nft for step in steps if step.nft], pid)
        _run_input(["ip", "-batch", "-"], [line for step in steps for line in step.ip], pid)
        _run_input(["bridge", "-batch", "-"], [line for step in steps for line in step.bridge], pid)


def remove_link(name: str) -> bool:
    """Remove a link and its entries, and return whether it existed."""
    exists = bool(show("ip", "-j", "link", "show", "dev", name))
    if exists:
        apply_operations([LinkOperation(Change(f"link {name}", "present", None), (f"link del dev {name}",))])
    return exists


def _run_input(command: Sequence[str], lines: Sequence[str], pid: int | None) -> None:
    until = time.monotonic() + IN_USE_SECONDS
    while lines:
        text = "".join(f"{line}\n" for line in lines)
        result = _run(command, text, pid)
        if not result.returncode:
            return
        in_use = _IN_USE.search(result.stderr)
        if not in_use or time.monotonic() > until:
            raise _error(command, result.stderr, pid)
        # The lines before it are done.
        lines = lines[int(in_use[1]) - 1 :]
        time.sleep(0.1)


def _run(command: Sequence[str], text: str, pid: int | None) -> subprocess.CompletedProcess[str]:
    """Run a program with this input; with ``pid``, in the network namespace of that process."""
    return subprocess.run(
        [*_enter(pid), *command], input=text, capture_output=True, text=True, check=False, timeout=PROGRAM_SECONDS
    )


def _error(command: Sequence[str], stderr: str, pid: int | None) -> NetworkError:
    ended = pid is not None and not os.path.exists(f"/proc/{pid}/ns/net")
    return (ProcessExitedError if ended else NetworkError)(f"{' '.join(command)}: {one_line(stderr)}")


def _group_by(key: str, entries: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for entry in entries:
        groups.setdefault(entry[key], []).append(entry)
    return groups


def _enter(pid: int | None) -> list[str]:
    return [] if pid is None else ["nsenter", f"--target={pid}", "--net"]
