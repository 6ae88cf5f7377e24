"""Hosts that reboot, and engines that come back."""

from __future__ import annotations

from collections.abc import Callable

from tests.integration.laboratory import run_on


def reboot(host: str) -> Callable[[], bool]:
    """Reboot a host; return what tells whether it is up again and takes logins."""
    before = _init_start_time(host)
    assert before
    run_on(host, "systemctl reboot", check=False)
    return lambda: _init_start_time(host) not in ("", before)


def _init_start_time(host: str) -> str:
    """Return when a host's process 1 began, in ticks of the machine; empty where nobody can log in."""
    ticks = run_on(host, "cut -d' ' -f22 /proc/1/stat", check=False).strip()
    return ticks if ticks.isdigit() else ""


def engine_answers(agent: str) -> bool:
    """Tell whether a host takes logins and its engine is up."""
    return run_on(agent, "systemctl is-active docker", check=False).strip() == "active"
