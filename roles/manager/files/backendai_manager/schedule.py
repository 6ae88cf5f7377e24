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
from collections.abc import Callable, Sequence
from pathlib import Path

from .errors import CommandError
from .manager.identity import Accounts
from .manager.ownership import KnownSession
from .manager.queue import Queue
from .manager.queue_check import find_disallowed, find_orphans
from .manager.runs import Runs, clean_environment
from .manager.settings import Settings, load_settings
from .options import load_options
from .paths import Paths
from .policy import PolicyError, load_policy

LIST = "session_list_path"
GONE = "orphans.json"


def main() -> int:
    """Do what is due. The exit code is that of the playbook, or 1 if something else has failed."""
    paths = Paths()
    clean_environment(paths.home)
    sys.path.append(str(paths.collections))
    try:
        settings = load_settings(paths.manager_settings)
        runs = Runs(paths, settings.inventory, settings.queue, lambda: False, "timer")
        return schedule(paths, settings, Accounts(), runs, lambda: _run_playbook(paths, runs, sys.argv[1:]))
    except CommandError as error:
        _say(str(error))
        return 1


def schedule(paths: Paths, settings: Settings, accounts: Accounts, runs: Runs, playbook: Callable[[], int]) -> int:
    """End what may not start any more, run the playbook, write the list, and end what nobody owns any more."""
    failures = _end_disallowed(paths, settings, accounts, runs)
    code = playbook()
    outcome = runs.run("list_sessions", reports=[LIST])
    records = outcome.reports[LIST]
    if not outcome.done or not isinstance(records, list):
        _say(f"the sessions could not be listed: {outcome.reason}")
        return code or 1
    _write(paths.seen_sessions, json.dumps(records))
    live = [known for record in records if (known := KnownSession.from_record(record)) and known.live]
    failures += _end_orphans(paths, settings, accounts, runs, live)
    return code or (1 if failures else 0)


def _run_playbook(paths: Paths, runs: Runs, arguments: Sequence[str]) -> int:
    """Run ``ansible-playbook``, whose output is for the journal."""
    with runs.environment() as environment:
        command = [str(Path(sys.executable).parent / "ansible-playbook"), *arguments]
        return subprocess.run(command, env={**os.environ, **environment}, cwd=paths.home, check=False).returncode


def _end_disallowed(paths: Paths, settings: Settings, accounts: Accounts, runs: Runs) -> int:
    """Cancel the users' sessions that wait and may not start any more, and return how many could not be."""
    try:
        policy, warning = load_policy(Path(settings.policy), paths.last_good_policy, load_options(paths.specification))
    except PolicyError as error:
        _say(str(error))
        return 1
    if warning:
        _say(warning)
    entries = Queue(settings.queue).entries()
    reasons = find_disallowed(entries, policy, accounts, settings.users_group, settings.operators_group)
    return sum(_end(runs, session_id, reason) for session_id, reason in reasons.items())


def _end_orphans(paths: Paths, settings: Settings, accounts: Accounts, runs: Runs, live: Sequence[KnownSession]) -> int:
    """End the sessions whose owners have been gone for long enough, and return how many could not be."""
    path, since = paths.home / GONE, {}
    with contextlib.suppress(OSError, ValueError):
        since = json.loads(path.read_bytes())
    since, due = find_orphans(
        live, accounts, since if isinstance(since, dict) else {}, time.time(), settings.orphan_after
    )
    _write(path, json.dumps(since))
    return sum(_end(runs, session.id, f"the account of its owner, {session.user}, is gone") for session in due)


def _end(runs: Runs, session_id: str, reason: str) -> bool:
    """End a session, and return whether that has failed."""
    outcome = runs.run("terminate_session", {"session_id": session_id})
    _say(f"session {session_id} {'was ended' if outcome.done else 'could not be ended'}: {reason}")
    if not outcome.done:
        _say(outcome.reason)
    return not outcome.done


def _write(path: Path, text: str) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    with open(handle, "w") as stream:
        stream.write(text)
    os.replace(temporary, path)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
