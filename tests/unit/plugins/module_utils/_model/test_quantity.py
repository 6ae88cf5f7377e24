"""Tests for parsing and formatting amounts of slots."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.backendai.cluster.plugins.module_utils._model.quantity import (
    MAX_AMOUNT,
    describe_slot,
    format_size,
    format_slot,
    format_slots,
    parse_bytes,
    parse_count,
    parse_seconds,
    parse_slot,
)

SLOTS = st.sampled_from(["cpu", "mem", "shmem", "cuda.device"])


@pytest.mark.parametrize(
    ("written", "amount"),
    [
        (0, 0),
        (1073741824, 1 << 30),
        ("1073741824", 1 << 30),
        ("512m", 512 << 20),
        ("1g", 1 << 30),
        ("1.5g", 3 << 29),
        ("64k", 64 << 10),
        ("2T", 2 << 40),
        ("1GiB", 1 << 30),
        ("1gb", 1 << 30),
        ("100b", 100),
        (" 1 g ", 1 << 30),
        (1e9, 1_000_000_000),
    ],
)
def test_bytes_are_parsed_with_units(written: object, amount: int) -> None:
    assert parse_bytes(written) == amount


@pytest.mark.parametrize(
    "written", ["", "-1g", -1, "1e9", "1x", "g", "1 2", "0x10", "1,5g", True, None, [1], float("nan")]
)
def test_invalid_bytes_are_rejected(written: object) -> None:
    with pytest.raises(ValueError, match=r"^must be bytes, such as 1g, 512m or 1073741824$"):
        parse_bytes(written)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (0, 0),
        (3600, 3600),
        (" 3600 ", 3600),
        ("30s", 30),
        ("90m", 5400),
        ("12h", 43200),
        ("7d", 604800),
        ("1d12h", 129600),
        ("1h0m5s", 3605),
        ("0h", 0),
    ],
)
def test_times_are_parsed_with_units(written: object, seconds: int) -> None:
    assert parse_seconds(written) == seconds


@pytest.mark.parametrize(
    "written",
    [
        "",
        "7 weeks",
        "-1h",
        -1,
        1.5,
        "1.5",
        "1.5h",
        "h",
        "12x",
        "12h1d",
        "1d12",
        "1h1h",
        "1 h",
        True,
        None,
        [1],
        "9" * 19,
    ],
)
def test_what_is_no_time_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match=r"^must be whole seconds, or a time such as 30s, 90m, 12h, 7d or 1d12h$"):
        parse_seconds(written)


@pytest.mark.parametrize(("written", "count"), [(0, 0), (4, 4), ("4", 4), (" 4 ", 4), (4.0, 4), ("4.0", 4)])
def test_counts_are_parsed_from_numbers_or_text(written: object, count: int) -> None:
    assert parse_count(written) == count


@pytest.mark.parametrize("written", ["", "-1", -1, 1.5, "1.5", "four", "1e3", "1k", True, False, None, [1]])
def test_invalid_count_is_rejected(written: object) -> None:
    with pytest.raises(ValueError, match=r"^must be a whole number, zero or more$"):
        parse_count(written)


@pytest.mark.parametrize(
    ("slot", "amount", "written"),
    [
        ("mem", 1 << 30, "1g"),
        ("mem", 3 << 29, "1536m"),
        ("shmem", 1 << 20, "1m"),
        ("mem", 5 << 40, "5t"),
        ("mem", 2048, "2k"),
        ("mem", 1000, "1000"),
        ("mem", 0, "0"),
        ("cpu", 1024, "1024"),
        ("cuda.device", 2, "2"),
    ],
)
def test_amounts_are_formatted_in_their_largest_exact_unit(slot: str, amount: int, written: str) -> None:
    assert format_slot(slot, amount) == written


@given(SLOTS, st.integers(0, MAX_AMOUNT))
def test_formatted_amount_is_parsed_back_exactly(slot: str, amount: int) -> None:
    assert parse_slot(slot, format_slot(slot, amount)) == amount


@given(SLOTS, st.integers(0, MAX_AMOUNT))
def test_whole_numbers_are_parsed_unchanged(slot: str, amount: int) -> None:
    assert parse_slot(slot, amount) == parse_slot(slot, str(amount)) == amount


@given(SLOTS, st.one_of(st.text(), st.floats(), st.integers(), st.text("0123456789.", max_size=400)))
def test_any_other_value_is_an_amount_or_rejected(slot: str, written: object) -> None:
    try:
        amount = parse_slot(slot, written)
    except ValueError:
        return
    assert amount >= 0


@pytest.mark.parametrize(
    ("amount", "written"), [(0, "0.0 kB"), (1500, "1.5 kB"), (4_600_000_000, "4.6 GB"), (2 * 10**12, "2.0 TB")]
)
def test_sizes_are_written_for_people(amount: int, written: str) -> None:
    assert format_size(amount) == written


@pytest.mark.parametrize(
    ("slot", "amount", "described"),
    [
        ("cpu", 4, "4"),
        ("mem", 0, "0"),
        ("mem", 24_159_804 << 10, "23.04 GiB"),
        ("mem", 512 << 20, "512 MiB"),
        ("shmem", 1 << 40, "1024 GiB"),
    ],
)
def test_slots_are_described_for_people(slot: str, amount: int, described: str) -> None:
    assert describe_slot(slot, amount) == described


def test_slots_are_formatted_as_one_phrase() -> None:
    assert format_slots({"cpu": 4, "mem": 1 << 30, "cuda.device": 2}) == "cpu 4, mem 1g, cuda.device 2"


@pytest.mark.parametrize(
    ("slot", "written"),
    [("cpu", 1 << 63), ("cpu", 10**400), ("cpu", "9" * 5000), ("mem", "9223372036854775808"), ("mem", "8388608t")],
)
def test_amounts_beyond_63_bits_are_refused(slot: str, written: object) -> None:
    with pytest.raises(ValueError, match=r"^must be at most 9223372036854775807$"):
        parse_slot(slot, written)


def test_the_largest_amount_is_accepted() -> None:
    assert parse_slot("cpu", MAX_AMOUNT) == parse_slot("mem", "9223372036854775807") == MAX_AMOUNT
