# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ``ip`` and ``bridge`` commands of iproute2: JSON out, batches in."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from typing import Any


class NetworkError(Exception):
    """A command of iproute2 failed; the message holds the command and what it said."""


def show(*command: str) -> list[dict[str, Any]]:
    """Return what a listing such as ``ip -j link show`` holds; empty where the device is not there."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        if "does not exist" in done.stderr or "Cannot find device" in done.stderr:
            return []
        raise NetworkError(f"{' '.join(command)}: {done.stderr.strip()}")
    return [entry for entry in json.loads(done.stdout or "[]") if entry]


def batch(tool: str, lines: Sequence[str]) -> None:
    """Run the lines in one process of ``tool`` (``ip`` or ``bridge``); the first that fails ends the batch."""
    if not lines:
        return
    text = "".join(f"{line}\n" for line in lines)
    done = subprocess.run([tool, "-batch", "-"], input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NetworkError(f"{tool} -batch: {' '.join(done.stderr.split())}")
