# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Looks at the health of an agent, and tells its sessions what is new; they go on."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from pathlib import Path

from .._host.engine_settings import read_engine_settings
from .._host.health import find_checks, read_health, run_checks, write_health
from .._host.local_session import LocalSession
from .._host.store import Store
from .._model.change import Change
from .._model.health import HealthProblem


def look_at_health(store: Store, docker_host: str, folder: Path) -> tuple[list[Change], list[str]]:
    """Run the checks in a folder and store what they find; return what is new, and sentences for failures.

    These are about checks that are refused, and about what cannot be written.
    """
    before = read_health(store)
    checks, refused = find_checks(folder)
    environment = {
        "BACKENDAI_STATE_PATH": str(store.root),
        "BACKENDAI_DOCKER_HOST": docker_host,
        "BACKENDAI_PYTHON": sys.executable,
        "BACKENDAI_DATA_ROOT": read_engine_settings().data_root,
    }
    after = before.after(run_checks(checks, environment), refused, time.time())
    failures = write_health(store, after)
    problems = before.new_problems(after.problems)
    if problems:
        _tell_sessions(store, docker_host, problems)
    new = [change for change in after.history if change.at == after.checked_at]
    return [Change(f"health check {change.check}", None, change.reason or "healthy") for change in new], [
        *refused,
        *failures,
    ]


def _tell_sessions(store: Store, docker_host: str, problems: Iterable[HealthProblem]) -> None:
    # Needed only now: its import takes longer than everything else of a look.
    from .look import announce

    sessions = store.load_all()[0]
    for problem in problems:
        affected = [session for session in sessions if _is_affected(session, problem)]
        announce(
            docker_host, store, affected, f"the health check {problem.check} of this host failed: {problem.reason}"
        )


def _is_affected(session: LocalSession, problem: HealthProblem) -> bool:
    """Return whether a session uses what a check has found something of."""
    used = {device for pinned in session.pinned.values() for device in pinned.device_ids}
    return not problem.devices or not used.isdisjoint(problem.devices)
