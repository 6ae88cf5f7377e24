# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Text for terminals: what others wrote cannot control them."""

from __future__ import annotations

import time
from collections.abc import Mapping

_FACTORS = {"t": 1 << 40, "g": 1 << 30, "m": 1 << 20, "k": 1 << 10}
BYTES = ("mem", "shmem")


def printable(text: str) -> str:
    """Return a text on one line, with characters that control terminals escaped."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape", "replace").decode() for char in text)


def age(since: float | None, now: float | None = None) -> str:
    """Return the time since a moment, in its two largest units."""
    return "-" if since is None else duration((time.time() if now is None else now) - since)


def remaining(until: float | None, now: float | None = None) -> str:
    """Return the time until a moment."""
    return "-" if until is None else duration(until - (time.time() if now is None else now))


def duration(seconds: float) -> str:
    """Return a number of seconds in its two largest units, such as ``2h05m``."""
    whole = max(0, int(seconds))
    days, hours, minutes = whole // 86400, whole // 3600 % 24, whole // 60 % 60
    if days:
        return f"{days}d{hours:02}h"
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m" if minutes else f"{whole}s"


def clock(moment: float) -> str:
    """Return a moment as the time of the day, with the day unless that is today."""
    today, day = (time.strftime("%Y-%m-%d", time.localtime(when)) for when in (time.time(), moment))
    return f"{'' if day == today else f'{day} '}{time.strftime('%H:%M', time.localtime(moment))}"


def amount(slot: str, value: int) -> str:
    """Return an amount of a slot, memory in its largest exact unit."""
    if slot in BYTES:
        for unit, factor in _FACTORS.items():
            if value and value % factor == 0:
                return f"{value // factor}{unit}"
    return str(value)


def slots(values: Mapping[str, int]) -> str:
    """Return slots as one phrase."""
    return ", ".join(f"{name} {amount(name, value)}" for name, value in values.items())
