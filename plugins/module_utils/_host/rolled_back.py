# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The runs that have rolled back here, by the nonces of their claims: none of their requests claims anything any more.

A request goes on when its connection ends. One that has not claimed yet, because a mount or an ended session takes
long, would otherwise do so after the run has removed all that it found.
"""

from __future__ import annotations

import os
from pathlib import Path

from .deadline import read_uptime

FOLDER = Path("/run/backendai-rolled-back")
"""An empty file for each nonce; its modification time is the uptime until which it is kept."""

KEPT_SECONDS = 3600
"""Longer than a request takes before it claims."""


def note_rollback(nonce: str) -> None:
    """Refuse further claims with this nonce. The caller holds the agent's lock, as a claim does."""
    FOLDER.mkdir(mode=0o700, exist_ok=True)
    uptime = read_uptime()
    for path in FOLDER.iterdir():
        if path.stat().st_mtime < uptime:
            path.unlink()
    path = FOLDER / nonce
    path.touch(mode=0o600)
    os.utime(path, (uptime + KEPT_SECONDS, uptime + KEPT_SECONDS))


def has_rolled_back(nonce: str) -> bool:
    """Return whether the run has rolled back. The caller holds the agent's lock."""
    return (FOLDER / nonce).exists()
