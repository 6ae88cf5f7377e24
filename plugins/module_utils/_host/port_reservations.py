# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The reserved ports of an agent: those that sessions publish, until no gateway has a route to them any longer.

``ports/<port>@<session id>`` is an empty file for each port. It is created with the claim: ending a session must not
need space on the disk.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from .._model.session import is_session_id
from .deadline import read_uptime

DRAINING = Path("/run/backendai-ports")
"""An empty file for each port that was released; its modification time is the uptime at which it is free."""

DRAIN_SECONDS = 10
"""How long a request that a gateway forwarded before it removed the route may still try to connect: longer than its
``timeout connect``, twice, and the second between."""


class PortReservations:
    """The reserved ports in a folder, which need not exist; callers hold the agent's lock to change them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def reserve(self, session_id: str, ports: Iterable[int]) -> None:
        """Reserve ports for a session until :meth:`release`."""
        paths = [self._folder / f"{port}@{session_id}" for port in ports]
        if not paths:
            return
        self._folder.mkdir(mode=0o700, exist_ok=True)
        for path in paths:
            path.touch(mode=0o600)
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def release(self, session_id: str, *, drain: bool) -> None:
        """Make the ports of a session free: with ``drain``, after :data:`DRAIN_SECONDS`.

        One that cannot be drained, because the disk is full, stays reserved.
        """
        for port, session, path in self._entries():
            if session != session_id:
                continue
            with contextlib.suppress(OSError):
                if drain:
                    _drain(port)
                path.unlink()
        with contextlib.suppress(OSError):
            self._folder.rmdir()

    def in_use(self) -> set[int]:
        """Return the ports that are not free."""
        uptime = read_uptime()
        draining = {int(path.name) for path in DRAINING.glob("*") if path.stat().st_mtime > uptime}
        return draining | {port for port, _session, _path in self._entries()}

    def by_session(self) -> dict[str, tuple[int, ...]]:
        """Return the reserved ports by session id."""
        found: dict[str, list[int]] = {}
        for port, session_id, _path in self._entries():
            found.setdefault(session_id, []).append(port)
        return {session_id: tuple(ports) for session_id, ports in found.items()}

    def _entries(self) -> Iterator[tuple[int, str, Path]]:
        """Yield port, session id and file of each reservation; other files are ignored."""
        for path in sorted(self._folder.glob("*@*")):
            port, _at, session_id = path.name.partition("@")
            if port.isdecimal() and is_session_id(session_id):
                yield int(port), session_id, path


def _drain(port: int) -> None:
    DRAINING.mkdir(mode=0o700, exist_ok=True)
    path, until = DRAINING / str(port), read_uptime() + DRAIN_SECONDS
    path.touch(mode=0o600)
    os.utime(path, (until, until))
