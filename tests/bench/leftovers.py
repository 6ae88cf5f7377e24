"""A benchmark leaves the agents as they were."""

from __future__ import annotations

from collections.abc import Mapping

from tests.bench.measured import BenchError
from tests.integration import laboratory


def nothing_left(before: Mapping[str, str]) -> None:
    """Compare with what was there ``before``; raises :class:`BenchError` with the lines that differ."""
    after = laboratory.remains()
    lines = {agent: set(before[agent].splitlines()) ^ set(after[agent].splitlines()) for agent in before}
    differing = [f"{agent}: {line}" for agent, found in lines.items() for line in sorted(found)]
    if differing:
        raise BenchError("the agents are not as they were before:\n" + "\n".join(differing))
