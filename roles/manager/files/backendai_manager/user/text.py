# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Text for terminals: what others wrote cannot control them."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Mapping

_MIB, _GIB = 1 << 20, 1 << 30
_BYTES = ("mem", "shmem")
_GPU = "cuda.device"


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
    """Return an amount of a slot, memory in GiB, or in MiB if it is less than one."""
    if slot not in _BYTES:
        return str(value)
    factor, unit = (_MIB, "MiB") if value > 0 and round(value / _MIB, 2) < 1024 else (_GIB, "GiB")
    return f"{round(value / factor, 2):.10g} {unit}"


def slots(values: Mapping[str, int]) -> str:
    """Return slots as one phrase, such as ``cpu 4, mem 8 GiB, 2 GPUs``."""
    return ", ".join(
        f"{value} GPU{'' if value == 1 else 's'}" if slot == _GPU else f"{slot} {amount(slot, value)}"
        for slot, value in values.items()
    )


def part(slot: str, some: int, of: str, total: int) -> str:
    """Return a part of an amount, in the unit of that, such as ``12/64 GiB`` if ``of`` is a slash."""
    if slot in _BYTES and total >= _GIB:
        return f"{round(some / _GIB, 2):.10g}{of}{amount(slot, total)}"
    return f"{amount(slot, some)}{of}{amount(slot, total)}"


def wrapped(line: str, width: int) -> list[str]:
    """Return a line as lines of a terminal, broken between words; what has no blank, such as a link, stays whole."""
    if len(line) <= width:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()))
    return textwrap.wrap(
        line.lstrip(),
        width,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def slot_name(slot: str) -> str:
    """Return the name of a slot as in the flags of ``create``."""
    return "gpu" if slot == _GPU else slot
