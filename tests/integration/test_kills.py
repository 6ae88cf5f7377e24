"""Random kills of runs, engines and agents."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.kills import kill_at_start_and_end

pytestmark = [pytest.mark.faults, pytest.mark.soak]


def test_one_run_after_a_kill_repairs_or_removes_the_session(rounds: Iterator[random.Random], tmp_path: Path) -> None:
    for rng in rounds:
        for description in kill_at_start_and_end(rng, tmp_path):
            print(description, flush=True)
