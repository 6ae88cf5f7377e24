"""Reboots hosts and waits until they can be used."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.integration.internals import HEALTH
from tests.integration.laboratory import run_on


def reboot(host: str) -> Callable[[], bool]:
    """Reboot a host; return a function that tells whether it is up again and accepts logins."""
    before = _init_start_time(host)
    assert before
    run_on(host, "systemctl reboot", check=False)
    return lambda: _init_start_time(host) not in ("", before)


def _init_start_time(host: str) -> str:
    """Return the start time of a host's process 1, in ticks; empty if the host accepts no login."""
    ticks = run_on(host, "cut -d' ' -f22 /proc/1/stat", check=False).strip()
    return ticks if ticks.isdigit() else ""


def takes_sessions(agent: str) -> bool:
    """Tell whether a host accepts logins, its engine is active and no health check has failed."""
    state, *health = run_on(agent, f"systemctl is-active docker; cat {HEALTH}/health.json", check=False).split("\n", 1)
    return state == "active" and bool(health) and not json.loads(health[0])["problems"]
