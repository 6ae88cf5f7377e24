# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The reserved ports of an agent: those that sessions publish, until no gateway has a route to them any longer.

``ports/<port>@<session id>`` is an empty file for each port. It is created with the claim: ending a session must not
need space on the disk. Its modification time, in seconds since the epoch, is when the port is free; 0 means that
gateways may have a route to it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from .._model.session import is_session_id

DRAIN_SECONDS = 10
"""How long a request that a gateway forwarded before it removed the route may still try to connect: longer than its
``timeout connect``, twice, and the second between."""


class PortReservations:
    """The reserved ports in a folder, which need not exist; callers hold the agent's lock to change them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def reserve(self, session_id: str, ports: Iterable[int]) -> None:
        """Reserve ports for a session until :meth:`release`, and forget ports that are free."""
        now = time.time()
        for _port, _session, path, until in self._entries():
            if 0 < until <= now:
                path.unlink()
        paths = [self._folder / f"{port}@{session_id}" for port in ports]
        if not paths:
            return
        self._folder.mkdir(mode=0o700, exist_ok=True)
        for path in paths:
            path.touch(mode=0o600)
            os.utime(path, (0, 0))
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def release(self, session_id: str, seconds: int) -> None:
        """Make the ports of a session free in that many seconds."""
        until = time.time() + seconds
        for _port, session, path, before in self._entries():
            if session != session_id:
                continue
            if seconds == 0:
                path.unlink()
            elif before == 0:
                os.utime(path, (until, until))

    def in_use(self) -> set[int]:
        """Return the ports that are not free."""
        now = time.time()
        return {port for port, _session, _path, until in self._entries() if until == 0 or until > now}

    def routed(self) -> dict[str, tuple[int, ...]]:
        """Return the ports that gateways may have a route to, by session id."""
        found: dict[str, list[int]] = {}
        for port, session_id, _path, until in self._entries():
            if until == 0:
                found.setdefault(session_id, []).append(port)
        return {session_id: tuple(ports) for session_id, ports in found.items()}

    def _entries(self) -> Iterator[tuple[int, str, Path, float]]:
        """Yield port, session id, file and time of each reservation; other files are ignored."""
        for path in sorted(self._folder.glob("*@*")):
            port, _at, session_id = path.name.partition("@")
            if not (port.isdecimal() and is_session_id(session_id)):
                continue
            try:
                until = path.stat().st_mtime
            except FileNotFoundError:
                continue
            yield int(port), session_id, path, until
