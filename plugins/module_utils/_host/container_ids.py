# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ids of the containers that this agent has made for a session: a file for each, written before it starts.

With them, a container that only has the labels of a session, such as one of an image that was made of a container of
it, is told from the session's own.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from .._model.files import write_atomically

FOLDER = "containers"
"""Beside the folders of containers, whose names end with a digit."""


class ContainerIds(NamedTuple):
    """The recorded ids of the containers of a session, in a folder of its own."""

    folder: Path

    def read(self) -> dict[str, str]:
        """Return the ids by hostname; empty if there are none."""
        try:
            return {path.name: path.read_text() for path in self.folder.iterdir() if not path.name.startswith(".")}
        except FileNotFoundError:
            return {}

    def record(self, hostname: str, container_id: str) -> None:
        """Record an id durably: it is on the disk before its container starts."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        write_atomically(self.folder / hostname, container_id)
        self._sync()

    def forget(self, hostname: str) -> None:
        """Remove an id, whose container is gone, before another one is created."""
        path = self.folder / hostname
        if path.exists():
            path.unlink()
            self._sync()

    def _sync(self) -> None:
        """Have the names of the files on the disk, too."""
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
