# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads, compares and changes the maps of the running HAProxy.

HAProxy reads map files when it starts; maps in memory are changed through its admin socket. Routes are added and
removed without a reload, and connections stay open.
"""

from __future__ import annotations

import dataclasses
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from .._model.change import Change
from .._model.errors import ClusterError
from .model import GatewayError

SOCKET = "/run/backendai-gateway/admin.sock"
# Seconds for one answer of HAProxy.
TIMEOUT = 10.0

Entry = tuple[str, str]


class HaproxyNotRunningError(ClusterError):
    """HAProxy does not run on this host."""


@dataclasses.dataclass(frozen=True)
class MapChange:
    """Keys to remove from the map of a file, and entries to add afterwards."""

    path: Path
    remove: tuple[str, ...]
    add: tuple[Entry, ...]


class Haproxy:
    """Client of an admin socket. Methods raise :class:`HaproxyNotRunningError` or :class:`GatewayError`."""

    def __init__(self, address: str = SOCKET) -> None:
        self._address = address

    def read(self, path: Path) -> list[Entry]:
        """Return the keys and values of the map of a file; a key can occur more than once."""
        lines = [line.split(" ", 2) for line in self._run(f"show map {path}").splitlines() if line]
        malformed = next((line for line in lines if len(line) != 3 or not line[0].startswith("0x")), None)
        if malformed is not None:
            raise _haproxy_error(" ".join(malformed))
        return [(key, value) for _pointer, key, value in lines]

    def plan(self, path: Path, desired: Mapping[str, str]) -> tuple[MapChange, Change] | None:
        """Return how the map of a file differs from ``desired``; ``None`` if it does not."""
        entries = self.read(path)
        counts = Counter(key for key, _value in entries)
        unchanged = {key for key, value in entries if desired.get(key) == value and counts[key] == 1}
        remove = tuple(key for key in counts if key not in unchanged)
        add = tuple((key, value) for key, value in desired.items() if key not in unchanged)
        if not remove and not add:
            return None
        before = [f"{key} {value}" for key, value in entries if key not in unchanged]
        after = [f"{key} {value}" for key, value in add]
        change = Change(f"HAProxy's {path.name}", "; ".join(before) or None, "; ".join(after) or None)
        return MapChange(path, remove, add), change

    def apply(self, changes: Sequence[MapChange]) -> None:
        """Change maps, all removals first, so that a name never leads to another session."""
        removals = [f"del map {change.path} {key}" for change in changes for key in change.remove]
        additions = [f"add map {change.path} {key} {value}" for change in changes for key, value in change.add]
        for command in [*removals, *additions]:
            message = self._run(command)
            if message:
                raise _haproxy_error(message)

    def _run(self, command: str) -> str:
        """Run one command of HAProxy and return its answer."""
        answer = b""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(TIMEOUT)
            try:
                connection.connect(self._address)
            except (FileNotFoundError, ConnectionRefusedError) as error:
                raise HaproxyNotRunningError from error
            connection.sendall(f"{command}\n".encode())
            while part := connection.recv(1 << 16):
                answer += part
        return answer.decode().strip()


def _haproxy_error(message: str) -> GatewayError:
    return GatewayError(
        f"HAProxy rejected the command: {message.rstrip('.')}. Run backendai.cluster.provision_gateways on this host"
        " if its configuration is outdated."
    )
