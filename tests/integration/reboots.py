"""Reboots hosts and waits for their engines."""

from __future__ import annotations

from collections.abc import Callable

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


def engine_answers(agent: str) -> bool:
    """Tell whether a host accepts logins and its engine is active."""
    return run_on(agent, "systemctl is-active docker", check=False).strip() == "active"
