"""Kill -9 of what nobody chose, at moments that nobody chose; `python -m tests.integration.kills` does it at length."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.integration.kills import VICTIMS, Victim, lives
from tests.integration.laboratory import AGENTS

pytestmark = pytest.mark.long


def test_one_run_after_a_kill_makes_the_session_whole_or_takes_it_away(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    starting, ending = (Victim(kind, chance.choice(AGENTS)) for kind in chance.sample(VICTIMS, 2))
    for said in lives(starting, ending, chance, tmp_path):
        print(said)
