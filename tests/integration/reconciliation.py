"""Pauses the automatic reconciliation of hosts while a test looks at a fault."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.integration.internals import RECONCILE_AGENT, RESTORE, ROLLBACK_TIMERS
from tests.integration.laboratory import run_on_all


@contextmanager
def reconcile_paused(*hosts: str, unit: str = RECONCILE_AGENT) -> Iterator[None]:
    """Pause the reconciliation of hosts; afterwards it has run.

    The start of an engine and the rollback timer of a firewall trial restore rules as well.
    """
    run_on_all(f"systemctl stop {unit}.timer {unit}.service '{RESTORE}' '{ROLLBACK_TIMERS}'", hosts)
    try:
        yield
    finally:
        run_on_all(f"systemctl start {unit}.timer {unit}.service", hosts)
