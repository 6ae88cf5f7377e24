# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the manager's timer runs, as its account: the queue, the list for ``--cached``, the end of ownerless sessions.

The arguments are those of ``ansible-playbook``, which runs ``schedule_sessions`` in the middle of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .errors import CommandError
from .manager.identity import Accounts
from .manager.ownership import KnownSession
from .manager.queue import PENDING, Queue
from .manager.queue_check import find_due, find_orphans, judge_queue
from .manager.runs import Runs, clean_environment
from .manager.settings import Settings, load_settings
from .paths import Paths

LIST = "session_list_path"
GONE, MISSING = "orphans.json", "missing.json"

Playbook = Callable[[Mapping[str, Any]], int]
"""Runs the playbook with more variables, and returns its exit code."""


def main() -> int:
    """Do what is due. The exit code is that of the playbook, or 1 if something else has failed."""
    paths = Paths()
    clean_environment(paths.home)
    sys.path.append(str(paths.collections))
    try:
        settings = load_settings(paths.manager_settings)
        runs = Runs(paths, settings.inventory, settings.queue, lambda: False, "timer")
        return schedule(paths, settings, Accounts(), runs, lambda more: _run_playbook(paths, runs, sys.argv[1:], more))
    except CommandError as error:
        _say(str(error))
        return 1


def schedule(paths: Paths, settings: Settings, accounts: Accounts, runs: Runs, playbook: Playbook) -> int:
    """End what may not start any more, run the playbook, write the list, and end what nobody owns any more."""
    failures, held = _end_disallowed(paths, settings, accounts, runs)
    code = playbook(held)
    outcome = runs.run("list_sessions", reports=[LIST])
    records = outcome.reports[LIST]
    if not outcome.done or not isinstance(records, list):
        _say(f"the sessions could not be listed: {outcome.reason}")
        return code or 1
    _write(paths.seen_sessions, json.dumps(records))
    live = [known for record in records if (known := KnownSession.from_record(record)) and known.live]
    failures += _end_orphans(paths, settings, accounts, runs, live)
    return code or (1 if failures else 0)


def _run_playbook(paths: Paths, runs: Runs, arguments: Sequence[str], more: Mapping[str, Any]) -> int:
    """Run ``ansible-playbook``, whose output is for the journal."""
    with runs.environment() as environment:
        # In a file: the argument of a program has at most 128 KiB.
        variables = Path(environment["ANSIBLE_LOCAL_TEMP"]) / "variables.json"
        variables.write_text(json.dumps(more))
        command = [str(Path(sys.executable).parent / "ansible-playbook"), *arguments, "-e", f"@{variables}"]
        return subprocess.run(command, env={**os.environ, **environment}, cwd=paths.home, check=False).returncode


def _end_disallowed(paths: Paths, settings: Settings, accounts: Accounts, runs: Runs) -> tuple[int, Mapping[str, Any]]:
    """Cancel the users' sessions that wait and may not start any more.

    Return how much has failed, and the variables of runs that start none of those, nor what may not start now.
    """
    judged = judge_queue(paths, settings, accounts)
    if judged.problem:
        _say(judged.problem)
    path = paths.home / MISSING
    noted, due = find_due(judged.disallowed, _read(path), time.time())
    _write(path, json.dumps(noted))
    for session_id, (_since, count) in noted.items():
        if count == 1:
            reason = judged.disallowed[session_id].reason
            _say(f"session {session_id} does not start, and is ended if that stays so: {reason}")
    queue, failures = Queue(settings.queue), 0 if judged.valid else 1
    for session_id in due:
        if (queue.entry(session_id) or {}).get("state") == PENDING:
            failures += _end(runs, session_id, judged.disallowed[session_id].reason, judged.variables)
    return failures, judged.variables


def _end_orphans(paths: Paths, settings: Settings, accounts: Accounts, runs: Runs, live: Sequence[KnownSession]) -> int:
    """End the sessions whose owners have been gone for long enough, and return how many could not be."""
    path = paths.home / GONE
    since, due = find_orphans(live, accounts, _read(path), time.time(), settings.orphan_after)
    _write(path, json.dumps(since))
    return sum(
        _end(
            runs,
            session.id,
            f"the account of its owner, {session.user}, is gone",
            judge_queue(paths, settings, accounts).variables,
        )
        for session in due
    )


def _end(runs: Runs, session_id: str, reason: str, held: Mapping[str, Any]) -> bool:
    """End a session, and return whether that has failed."""
    outcome = runs.run("terminate_session", {"session_id": session_id}, held)
    _say(f"session {session_id} {'was ended' if outcome.done else 'could not be ended'}: {reason}")
    if not outcome.done:
        _say(outcome.reason)
    return not outcome.done


def _read(path: Path) -> dict[str, Any]:
    """Return what the last run has written; nothing if there is none, or it is damaged."""
    with contextlib.suppress(OSError, ValueError):
        content = json.loads(path.read_bytes())
        return content if isinstance(content, dict) else {}
    return {}


def _write(path: Path, text: str) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    with open(handle, "w") as stream:
        stream.write(text)
    os.replace(temporary, path)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
