# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What no request may claim here any more: what a run has rolled back, by its nonce, and sessions that ended, by id.

A request goes on when its connection ends. One that has not claimed yet, because a mount or an ended session takes
long, would otherwise do so after all that was found has been removed.
"""

from __future__ import annotations

import os
from pathlib import Path

from .deadline import read_uptime

FOLDER = Path("/run/backendai-withdrawn")
"""An empty file for each nonce and id; its modification time is the uptime until which it is kept."""

KEPT_SECONDS = 3600
"""Longer than a request takes before it claims."""


def withdraw(key: str) -> None:
    """Refuse further claims with a nonce, or of a session. The caller holds the agent's lock, as a claim does."""
    FOLDER.mkdir(mode=0o700, exist_ok=True)
    uptime = read_uptime()
    for path in FOLDER.iterdir():
        if path.stat().st_mtime < uptime:
            path.unlink()
    path = FOLDER / key
    path.touch(mode=0o600)
    os.utime(path, (uptime + KEPT_SECONDS, uptime + KEPT_SECONDS))


def is_withdrawn(key: str) -> bool:
    """Return whether claims with this nonce, or of this session, are refused. The caller holds the agent's lock."""
    path = FOLDER / key
    return path.exists() and path.stat().st_mtime >= read_uptime()
