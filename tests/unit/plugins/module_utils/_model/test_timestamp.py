"""Timestamps of the engine, and what is none."""

from __future__ import annotations

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.timestamp import parse_timestamp


@pytest.mark.parametrize(
    ("moment", "seconds"),
    [
        ("1970-01-01T00:01:00Z", 60),
        ("2026-01-31T12:00:00.123456789Z", 1769860800),
        ("2026-01-31T12:00:00.123456789+09:00", 1769860800),
        ("0001-01-01T00:00:00Z", -62135596800),
    ],
)
def test_a_timestamp_is_whole_seconds(moment: str, seconds: int) -> None:
    assert parse_timestamp(moment) == seconds


@pytest.mark.parametrize(
    "moment", ["", "soon", "2026-01-31", "20260131", "2026-01-31T12", "2026-01-31 12:00:00", "2026-02-30T00:00:00Z"]
)
def test_what_is_no_timestamp_is_an_error(moment: str) -> None:
    with pytest.raises(ValueError, match=r"^no timestamp: |^day is out of range"):
        parse_timestamp(moment)
