"""Checks that each part of the benchmark starts in an empty lab and restores it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from tests.bench import baselines, lab, sessions
from tests.bench.errors import BenchError


@contextlib.contextmanager
def clean_lab() -> Iterator[None]:
    """Remove everything of the benchmark, before and after, including leftovers of a killed run.

    Raises :class:`BenchError` if there are other sessions, or if something is left behind.
    """
    _clear()
    others = sorted({name for _id, name, _waiting in lab.live_sessions()})
    if others:
        raise BenchError(f"other sessions would be measured too: terminate {', '.join(others)} first")
    before, history = lab.agent_state(), lab.history()
    try:
        yield
    finally:
        _clear()
    lab.forget(lab.history() - history)
    differences = list(_differences(before, lab.agent_state()))
    if differences:
        raise BenchError("the agents were not restored:\n" + "\n".join(differences))


def _clear() -> None:
    sessions.end_all()
    baselines.remove_all(lab.AGENTS)


def _differences(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    for agent in before:
        lines = set(before[agent].splitlines()) ^ set(after[agent].splitlines())
        yield from (f"{agent}: {line}" for line in sorted(lines))
