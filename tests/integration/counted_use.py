"""How long a session has lived and was idle, as its agent counts it; tests age it, so that they need not wait."""

from __future__ import annotations

import json
import shlex
from typing import Any

from tests.integration.internals import RECONCILE_AGENT, SESSIONS
from tests.integration.laboratory import Kernel, run_on
from tests.integration.waiting import wait_until

HOUR = 3600


def use(kernel: Kernel, **changes: float) -> dict[str, Any]:
    """Change what the agent of main1 has counted of its session, and return what it had."""
    path = f"{SESSIONS}/{kernel['id']}/use.json"
    before = dict(json.loads(run_on(kernel["agent"], f"cat {path}")))
    if changes:
        run_on(kernel["agent"], f"printf %s {shlex.quote(json.dumps({**before, **changes}))} > {path}")
    return before


def look(kernel: Kernel) -> None:
    """Let the agent look at its sessions, as it does every 30 seconds."""
    run_on(kernel["agent"], f"systemctl start {RECONCILE_AGENT}.service")


def idle_after_look(kernel: Kernel) -> float:
    """Return the idle time after a look at a session that had been idle for two hours."""
    use(kernel, idle=2.0 * HOUR)
    look(kernel)
    return float(use(kernel)["idle"])


def await_idle(kernel: Kernel) -> None:
    """Wait until a look finds no use: what a test did before may still be seen."""
    wait_until(lambda: idle_after_look(kernel) >= 2 * HOUR, pause=2)
