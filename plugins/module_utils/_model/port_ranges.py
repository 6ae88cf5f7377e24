# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parse and format sets of port numbers such as ``22,80,8000-9000``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

LAST_PORT = 65535

# First and last port of each range, ascending, neither overlapping nor adjacent.
Ranges = tuple[tuple[int, int], ...]


def parse_ranges(text: str) -> Ranges:
    """Parse ranges. Raises :class:`ValueError` with the expected format."""
    return _merge_ranges(_parse_range(word.strip()) for word in text.split(","))


def ranges_of(ports: Iterable[int]) -> Ranges:
    """Return the ranges that contain exactly these ports."""
    return _merge_ranges((port, port) for port in ports)


def format_ranges(ranges: Iterable[tuple[int, int]]) -> str:
    """Format ranges as :func:`parse_ranges` reads them."""
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def count_ports(ranges: Ranges) -> int:
    """Return the total number of ports."""
    return sum(last - first + 1 for first, last in ranges)


def iter_ports(ranges: Ranges) -> Iterator[int]:
    """Yield every port, ascending."""
    return (port for first, last in ranges for port in range(first, last + 1))


def chunks(ranges: Ranges, size: int) -> list[Ranges]:
    """Split ranges into parts of at most ``size`` ports."""
    parts: list[list[tuple[int, int]]] = [[]]
    room = size
    for first, last in ranges:
        start = first
        while start <= last:
            if not room:
                parts.append([])
                room = size
            end = min(last, start + room - 1)
            parts[-1].append((start, end))
            room -= end - start + 1
            start = end + 1
    return [tuple(part) for part in parts]


def _parse_range(word: str) -> tuple[int, int]:
    first, dash, last = word.partition("-")
    numbers = [number.strip() for number in ((first, last) if dash else (first, first))]
    if not all(number.isascii() and number.isdigit() for number in numbers):
        raise ValueError("must be port numbers and ranges such as 22,80,8000-9000")
    low, high = int(numbers[0]), int(numbers[1])
    if not 1 <= low <= high <= LAST_PORT:
        raise ValueError(f"must be ports from 1 to {LAST_PORT}, ranges from low to high")
    return low, high


def _merge_ranges(ranges: Iterable[tuple[int, int]]) -> Ranges:
    joined: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(joined)
