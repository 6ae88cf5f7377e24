# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which times and durations hosts may report, and the timestamps of the engine."""

from __future__ import annotations

from datetime import datetime

LAST_SECOND = 253402300799
"""The end of the year 9999, in seconds since the epoch: what is later cannot be formatted."""

LONGEST_SECONDS = 1 << 32
"""The longest duration, about 136 years: added to a time, or subtracted from one, it leaves a time."""


def is_time(seconds: float | None) -> bool:
    """Return whether seconds since the epoch are a time from 1970 to 9999; ``None`` for no time is one."""
    return seconds is None or 0 <= seconds <= LAST_SECOND


def is_duration(seconds: float | None) -> bool:
    """Return whether seconds are a duration; ``None`` for an unknown one is one."""
    return seconds is None or 0 <= seconds <= LONGEST_SECONDS


def parse_timestamp(moment: str) -> int:
    """Parse a time such as ``2026-01-31T12:00:00.123456789Z`` to whole seconds since the epoch; its zone is ignored.

    Raises :class:`ValueError`.
    """
    if moment[10:11] != "T" or len(moment) < 19:
        raise ValueError(f"no timestamp: {moment[:19]!r}")
    return int(datetime.fromisoformat(f"{moment[:19]}+00:00").timestamp())
