# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command of the systemd unit of a session that waits for its command to end, and keeps what that leaves.

There is one for each session with a command, so it imports little before it has to act.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path

from .._host.command_ends import await_ends

PAUSE_SECONDS = 1.0
"""How often the engine is asked about containers whose first process has ended."""


def main(arguments: Sequence[str]) -> int:
    """Wait until the commands of ``--output SESSION`` have ended on this agent; failures are written to the journal."""
    parser = argparse.ArgumentParser(prog="backendai-agent", description=__doc__)
    parser.add_argument("--state-path", required=True)
    parser.add_argument("--docker-host", required=True)
    parser.add_argument("--output", required=True, metavar="SESSION")
    options = parser.parse_args(arguments)
    state = Path(options.state_path)
    folder = state / "sessions" / options.output
    while ended := await_ends(folder, _homes(state, options.output)):
        failure = _keep(options.state_path, options.docker_host, options.output, ended)
        if failure:
            return failure
        time.sleep(PAUSE_SECONDS)
    return 0


def _homes(state: Path, session_id: str) -> Path:
    try:
        return Path(os.readlink(state / "homes")) / "sessions" / session_id
    except OSError:
        # Then only the ends of first processes are noticed.
        return state / "homes" / "sessions" / session_id


def _keep(state_path: str, docker_host: str, session_id: str, hostnames: Sequence[str]) -> int:
    from .._docker.client import connect
    from .._host.store import Store
    from .._model.errors import EXPECTED, reason
    from .._session.ended_commands import keep_ended
    from .journal import log

    try:
        keep_ended(connect(docker_host), Store(state_path), session_id, hostnames)
    except EXPECTED as error:
        return log([], [f"{session_id}: what its command left cannot be kept: {reason(error)}"])
    return 0
