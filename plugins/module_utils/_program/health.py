# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command of the systemd unit that checks the health of an agent.

It runs every minute, so it imports little: not what the other commands need.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from .._host.store import Store
from .._model.errors import EXPECTED, reason
from .._session.health import look_at_health
from .journal import log


def main(arguments: Sequence[str]) -> int:
    """Run the checks of a folder; changes and failures are written to the journal."""
    parser = argparse.ArgumentParser(prog="backendai-agent", description=__doc__)
    parser.add_argument("--state-path", required=True)
    parser.add_argument("--docker-host", required=True)
    parser.add_argument("--health", metavar="FOLDER", required=True, type=Path, help="the folder of the health checks")
    options = parser.parse_args(arguments)
    try:
        changes, failures = look_at_health(Store(options.state_path), options.docker_host, options.health)
    except EXPECTED as error:
        changes, failures = [], [reason(error)]
    return log(changes, failures)
