# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parse and format quantities: counts, bytes with units, and times."""

from __future__ import annotations

import re

_FACTORS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_BYTES = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[kmgt]?)(?:i?b)?", re.IGNORECASE)
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_TIME = re.compile(r"\d{1,18}|(?=\d)(?:\d{1,9}d)?(?:\d{1,9}h)?(?:\d{1,9}m)?(?:\d{1,9}s)?")

# The largest amount of a slot: what is computed from amounts within it remains exact.
MAX_AMOUNT = (1 << 63) - 1

# Slots counted in bytes; every other slot is a count.
BYTE_SLOTS = frozenset({"mem", "shmem"})


def parse_bytes(value: object) -> int:
    """Parse a number of bytes: an integer, or text such as ``512m`` or ``1.5g`` (binary units).

    Raises :class:`ValueError` for anything else, negative numbers and those beyond :data:`MAX_AMOUNT` included.
    """
    match = _BYTES.fullmatch(str(value).strip())
    if isinstance(value, bool) or match is None:
        raise ValueError("must be bytes, such as 1g, 512m or 1073741824")
    return _whole(match["number"], _FACTORS[match["unit"].lower()])


def parse_count(value: object) -> int:
    """Parse a whole number, zero or more.

    Raises :class:`ValueError` for fractions, signs, amounts beyond :data:`MAX_AMOUNT` and what is not a number.
    """
    if isinstance(value, bool) or not re.fullmatch(r"\d+(\.0+)?", str(value).strip()):
        raise ValueError("must be a whole number, zero or more")
    return _whole(str(value), 1)


def parse_seconds(value: object) -> int:
    """Parse a time: whole seconds, or text such as ``90m``, ``12h`` or ``1d12h``, the longest unit first.

    Raises :class:`ValueError` for anything else, negative numbers and fractions included.
    """
    text = str(value).strip()
    if isinstance(value, bool) or not _TIME.fullmatch(text):
        raise ValueError("must be whole seconds, or a time such as 30s, 90m, 12h, 7d or 1d12h")
    return sum(int(number) * _SECONDS[unit] for number, unit in re.findall(r"(\d+)([smhd]?)", text))


def _whole(number: str, factor: int) -> int:
    whole, _point, fraction = number.strip().partition(".")
    # Python does not convert text of thousands of digits.
    amount = int(whole + fraction) * factor // 10 ** len(fraction) if len(number) < 1000 else MAX_AMOUNT + 1
    if amount > MAX_AMOUNT:
        raise ValueError(f"must be at most {MAX_AMOUNT}")
    return amount


def parse_slot(slot: str, value: object) -> int:
    """Parse an amount of ``slot``: bytes for :data:`BYTE_SLOTS`, a count for others."""
    return parse_bytes(value) if slot in BYTE_SLOTS else parse_count(value)


def format_slot(slot: str, amount: int) -> str:
    """Format ``amount`` of ``slot`` in its largest exact unit, as :func:`parse_slot` reads it."""
    if slot not in BYTE_SLOTS:
        return str(amount)
    for unit in ("t", "g", "m", "k"):
        if amount and amount % _FACTORS[unit] == 0:
            return f"{amount // _FACTORS[unit]}{unit}"
    return str(amount)


def describe_slot(slot: str, amount: int) -> str:
    """Describe ``amount`` of ``slot`` for people, such as ``23.04 GiB``; not to be parsed again."""
    if slot not in BYTE_SLOTS or not amount:
        return str(amount)
    gib = _FACTORS["g"]
    return f"{round(amount / gib, 2):.10g} GiB" if amount >= gib else f"{amount / _FACTORS['m']:.4g} MiB"


_DECIMAL = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


def decimal_unit(amount: int) -> tuple[int, str]:
    """Return the factor and the name of the decimal unit that suits a number of bytes, as engines show them."""
    return next((unit for unit in _DECIMAL if amount >= unit[0]), _DECIMAL[-1])


def format_size(amount: int) -> str:
    """Format a number of bytes for people, such as ``4.6 GB``."""
    factor, unit = decimal_unit(amount)
    return f"{amount / factor:.1f} {unit}"


def format_slots(slots: dict[str, int]) -> str:
    """Format slots as one phrase, such as ``cpu 4, mem 1g``."""
    return ", ".join(f"{slot} {format_slot(slot, amount)}" for slot, amount in slots.items())
