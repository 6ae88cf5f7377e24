"""Times and durations that hosts report, timestamps of the engine, and what is none."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.cordon import Cordon
from ansible_collections.backendai.cluster.plugins.module_utils._model.timestamp import (
    LAST_SECOND,
    LONGEST_SECONDS,
    parse_timestamp,
)
from ansible_collections.backendai.cluster.plugins.module_utils._model.use import MAX_CORES, Load, SessionUse
from tests.unit.builders import NOW, held_session, plan


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


HELD = held_session(plan({"agent1": 1}), "agent1")
BESIDE_TIME: list[float] = [-1, LAST_SECOND + 1, 1e300, -1e300]
BESIDE_DURATION: list[float] = [-1, LONGEST_SECONDS + 1, 1 << 62]


@pytest.mark.parametrize("moment", [0, NOW, LAST_SECOND])
def test_a_time_is_in_the_years_1970_to_9999(moment: float) -> None:
    assert Cordon("", "carol", moment, moment).description.startswith("cordoned by carol, its sessions end by ")
    assert dataclasses.replace(HELD, created_at=moment, lived=0, idle=LONGEST_SECONDS).created_at == moment


@pytest.mark.parametrize(
    ("valid", "changes"),
    [
        *((Cordon("", "carol", NOW), {name: time}) for name in ("since", "sessions_end_at") for time in BESIDE_TIME),
        *((HELD, {"created_at": time}) for time in BESIDE_TIME),
        *((HELD, {name: seconds}) for name in ("lived", "idle") for seconds in BESIDE_DURATION),
        *(
            (SessionUse("b", 1.0), {name: seconds})
            for name in ("uptime", "lived", "idle")
            for seconds in BESIDE_DURATION
        ),
        *((Load(1.5), {"cpu": cpu}) for cpu in (MAX_CORES + 1.0, -1e300, 1e300)),
    ],
    ids=str,
)
def test_what_cannot_be_formatted_or_added_to_a_time_is_refused(valid: Any, changes: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"out of range|not in the years 1970 to 9999"):
        dataclasses.replace(valid, **changes)
