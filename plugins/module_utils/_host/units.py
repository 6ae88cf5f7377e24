# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Starts systemd units of this host, and does not wait for them."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Collection

OUTPUT = "backendai-output@{session_id}.service"
"""The unit that waits for the end of a session's command, and keeps what it leaves."""

SECONDS = 10.0


def start_units(names: Collection[str]) -> None:
    """Start units that do not run, as far as there are any of that name; the timer of the agent tries again."""
    if names:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            command = ["systemctl", "start", "--no-block", *names]
            subprocess.run(command, check=False, capture_output=True, timeout=SECONDS)
