# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The part of ``backendai`` that runs as the manager's account: answers one request, which sudo has let through."""

from __future__ import annotations

import os
import sys
import syslog
import traceback
from collections.abc import Callable
from pathlib import Path

from .errors import CommandError
from .manager.channel import Channel
from .manager.context import RequestContext
from .manager.identity import Accounts, find_caller, started_by_root
from .manager.runs import Runs, clean_environment
from .manager.settings import Settings, load_settings
from .manager.verbs import VERBS
from .paths import Paths
from .protocol import UNREAD, Result

StartRuns = Callable[[Paths, Settings, int, Callable[[], bool]], Runs]

CAUGHT = "the manager's part has failed; operators find the reason in the system's log (backendai)."


def main() -> int:
    """Answer the request on standard input."""
    paths = Paths()
    parent, uid = Path(f"/proc/{os.getppid()}"), os.environ.get("SUDO_UID")
    clean_environment(paths.home)
    sys.path.append(str(paths.collections))
    channel = Channel(0, 1)
    result = serve(paths, channel, Accounts(), uid if started_by_root(parent) else None)
    return UNREAD if channel.unread else result.exit_code


def serve(
    paths: Paths,
    channel: Channel,
    accounts: Accounts,
    uid: str | None,
    start_runs: StartRuns | None = None,
) -> Result:
    """Send the result of the request on a channel, and return it. ``uid`` is what sudo says of the user."""
    try:
        result = _answer(paths, channel, accounts, uid, start_runs or _start_runs)
    except CommandError as error:
        result = Result(error.status, str(error))
    except Exception as error:
        _log(error)
        result = Result("failed", CAUGHT)
    channel.result(result)
    return result


def _answer(
    paths: Paths,
    channel: Channel,
    accounts: Accounts,
    uid: str | None,
    start_runs: StartRuns,
) -> Result:
    settings = load_settings(paths.manager_settings)
    caller = find_caller(uid, accounts, settings.users_group, settings.operators_group)
    request = channel.read_request()
    channel.watch()
    context = RequestContext(
        paths, settings, caller, accounts, channel, lambda cancelled: start_runs(paths, settings, caller.uid, cancelled)
    )
    if not paths.runtime.is_dir():
        raise CommandError(f"{paths.runtime} does not exist; run backendai.cluster.provision_managers.")
    return VERBS[request.verb](context, request)


def _start_runs(paths: Paths, settings: Settings, uid: int, cancelled: Callable[[], bool]) -> Runs:
    return Runs(paths, settings.inventory, settings.queue, cancelled, str(uid))


def _log(error: Exception) -> None:
    """Log where an unexpected error was raised, without its message, which may quote what a user wrote."""
    syslog.openlog("backendai", syslog.LOG_PID, syslog.LOG_DAEMON)
    lines = "; ".join(f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__))
    syslog.syslog(syslog.LOG_ERR, f"{type(error).__name__} at {lines}")


if __name__ == "__main__":
    sys.exit(main())
