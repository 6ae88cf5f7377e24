"""Agents and gateways put their links and rules right by themselves: not while a test looks at a fault."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.integration.internals import HEAL_AGENT, RESTORE, TRIAL_TIMERS
from tests.integration.laboratory import everywhere


@contextmanager
def unhealed(*hosts: str, unit: str = HEAL_AGENT) -> Iterator[None]:
    """Keep hosts from healing for a while; afterwards they have healed.

    An engine that has just started, and the timer of a trial that is over, put rules right as well.
    """
    everywhere(f"systemctl stop {unit}.timer {unit}.service '{RESTORE}' '{TRIAL_TIMERS}'", hosts)
    try:
        yield
    finally:
        everywhere(f"systemctl start {unit}.timer {unit}.service", hosts)
