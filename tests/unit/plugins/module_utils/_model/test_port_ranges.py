"""Tests for parsing and formatting port ranges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.backendai.cluster.plugins.module_utils._model.port_ranges import (
    chunks,
    count_ports,
    format_ranges,
    iter_ports,
    parse_ranges,
    ranges_of,
)

PORTS = st.sets(st.integers(1, 65535), min_size=1, max_size=50)


@pytest.mark.parametrize(
    ("text", "ranges"),
    [
        ("22", ((22, 22),)),
        ("1-65535", ((1, 65535),)),
        (" 443 , 22,80-90", ((22, 22), (80, 90), (443, 443))),
        ("5-9,1-4,8-12", ((1, 12),)),
    ],
)
def test_numbers_and_ranges_are_sorted_and_joined(text: str, ranges: tuple[tuple[int, int], ...]) -> None:
    assert parse_ranges(text) == ranges


@pytest.mark.parametrize("text", ["", "22,", "ssh", "-1", "1-", "1-2-3", "²"])
def test_invalid_port_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be port numbers and ranges such as 22,80,8000-9000"):
        parse_ranges(text)


@pytest.mark.parametrize("text", ["0", "65536", "9-8", "1-65536"])
def test_port_out_of_range_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="must be ports from 1 to 65535, ranges from low to high"):
        parse_ranges(text)


@given(PORTS)
def test_formatted_ports_are_parsed_back(ports: set[int]) -> None:
    ranges = ranges_of(ports)
    assert parse_ranges(format_ranges(ranges)) == ranges
    assert list(iter_ports(ranges)) == sorted(ports)
    assert count_ports(ranges) == len(ports)


@given(PORTS, st.integers(1, 20))
def test_chunks_contain_all_ports_once_within_the_size(ports: set[int], size: int) -> None:
    parts = chunks(ranges_of(ports), size)
    assert [port for part in parts for port in iter_ports(part)] == sorted(ports)
    assert all(0 < count_ports(part) <= size for part in parts)
