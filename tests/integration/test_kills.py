"""Kill -9 of a run, of an engine and of an agent, at moments that nobody chose."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.integration.kills import Victim, lives
from tests.integration.laboratory import AGENTS


@pytest.mark.parametrize(("starting", "ending"), [("agent", "run"), ("run", "engine")])
def test_one_run_after_a_kill_makes_the_session_whole_or_takes_it_away(
    starting: str, ending: str, tmp_path: Path
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    victims = [Victim(kind, chance.choice(AGENTS)) for kind in (starting, ending)]
    for said in lives(*victims, chance, tmp_path):
        print(said)
