# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The engine of a host that is given back: an earlier removal, which was interrupted, may have stopped it."""

from __future__ import annotations

import shutil
from pathlib import Path

from .._host.host_record import RECORD, read_record
from .client import DockerUnavailableError, connect
from .sdk import docker


def connect_unless_removed(docker_host: str, record_path: Path = RECORD) -> docker.APIClient | None:
    """Return a client of the engine; ``None`` if there is none, or if a removal has begun to take it away.

    Raises :class:`DockerUnavailableError` if another engine does not answer, and :class:`DamagedRecordError`.
    """
    if shutil.which("dockerd") is None:
        return None
    try:
        return connect(docker_host)
    except DockerUnavailableError:
        record = read_record(record_path)
        if record and record.engine_folder:
            return None
        raise
