# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parses the timestamps of the engine."""

from __future__ import annotations

from datetime import datetime


def parse_timestamp(moment: str) -> int:
    """Parse a time such as ``2026-01-31T12:00:00.123456789Z`` to whole seconds since the epoch; its zone is ignored.

    Raises :class:`ValueError`.
    """
    if moment[10:11] != "T" or len(moment) < 19:
        raise ValueError(f"no timestamp: {moment[:19]!r}")
    return int(datetime.fromisoformat(f"{moment[:19]}+00:00").timestamp())
