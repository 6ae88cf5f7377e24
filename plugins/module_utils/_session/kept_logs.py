# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Keeps the logs of a session that has ended on this agent, within what one session may take.

All of them share time, bytes to read and bytes to keep: main1's own log is the first, then those of other containers,
then those of apps, by equal shares. What one leaves is for those after it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from .._docker.logs import Allowance, LogLimitError, LogReadError, read_log
from .._docker.sdk import docker
from .._host.threads import in_time
from .._model.errors import as_phrase, reason
from .._model.files import write_atomically
from .._model.pool import Pool, equal_parts
from .._model.session import MAIN1, App
from .app_logs import AppLogs, TooLargeError
from .kept_end import KeptEnd

SECONDS = 60
"""How long the logs of a session may take on one agent: nothing that containers have printed keeps it from ending."""

READ_BYTES = 256 << 20
"""How many bytes of the logs of a session are read on one agent."""

KEPT_BYTES = 64 << 20
"""How many bytes are kept of the logs of a session on one agent, compressed."""

LOG_BYTES = 8 << 20
"""How many of these are kept of one log."""

END_LINES = 30_000
"""How many messages are kept of a container's log that cannot be read whole within the limits."""

# The longest message of a container's log, with its time.
_MESSAGE_BYTES = (16 << 10) + 64

# A share that is smaller than this keeps nothing worth it.
_LEAST_BYTES = 1 << 10

# What a log may take at least, while there is time: the engine is busy when many sessions end.
_LEAST_SECONDS = 1.0

# The readers share one interpreter.
_PARALLEL_LOGS = 2

# Of what main1's own log may take, so that something is left for the others.
_MAIN_PART = 3 / 4

# Of the bytes and of the time that one log may take: to read it whole, or else its last lines, or fewer of these.
_WHOLE, _END = (1 / 2, 2 / 3), (1 / 4, 1 / 6)


class Others(NamedTuple):
    """Other containers of the session here: how many bytes were ``kept`` of them, and who is kept ``later``."""

    kept: int = 0
    later: Collection[str] = ()


NO_OTHERS = Others()


class _Log(NamedTuple):
    """The log of a container, or of an ``app`` in main1."""

    hostname: str
    container: str
    app: str = ""

    @property
    def file_name(self) -> str:
        return f"{self.hostname}@{self.container[:12]}@{self.app}.gz"


class _Room:
    """What is left for the logs of a session."""

    def __init__(self, seconds: float, kept: int) -> None:
        self.size, self.kept = Pool(READ_BYTES), Pool(kept)
        self.until = time.monotonic() + seconds

    def seconds(self, part: float) -> float:
        """Return a part of the time that is left."""
        left = self.until - time.monotonic()
        return max(left * min(1.0, part), min(left, _LEAST_SECONDS))


class _Share:
    """What one log may take: bytes to read and to keep, and seconds; ``read`` and ``written`` is what it has taken."""

    def __init__(self, room: _Room, part: float, parallel: int) -> None:
        self._room = room
        self.size, self.kept = room.size.take(part), room.kept.take(part, LOG_BYTES)
        self.seconds = room.seconds(part * parallel)
        self.read = self.written = 0

    def __enter__(self) -> _Share:
        return self

    def __exit__(self, *_error: object) -> None:
        self._room.size.give_back(self.size - self.read)
        self._room.kept.give_back(self.kept - self.written)


def keep_logs(
    client: docker.APIClient,
    folder: Path,
    app_logs: AppLogs,
    apps: Sequence[App],
    containers: Mapping[str, Mapping[str, Any]],
    seconds: float = SECONDS,
    others: Others = NO_OTHERS,
) -> dict[str, str]:
    """Write the logs of containers that have ended, by hostname, to a folder; return why some were lost.

    ``apps`` are those of main1. Nobody waits for what was not read within ``seconds``.
    """
    logs = [_Log(hostname, str(each["Id"])) for hostname, each in containers.items()]
    main = [log for log in logs if log.hostname == MAIN1]
    of_apps = [log._replace(app=app.name) for log in main for app in apps]
    kept = max(0, KEPT_BYTES - others.kept - (LOG_BYTES if MAIN1 in others.later else 0))
    keeper, later = _Keeper(client, folder, app_logs, _Room(seconds, kept), seconds), len({*others.later} - {MAIN1})
    keeper.keep(main, _MAIN_PART)
    keeper.keep([log for log in logs if log.hostname != MAIN1], later=later)
    large = keeper.keep(of_apps, later=later)
    # One that is larger than its share may fit into what the others have left, the smaller the sooner.
    for _size, log in sorted(large):
        keeper.keep([log])
    return keeper.lost()


class _Keeper:
    """Keeps logs, and notes which were lost."""

    def __init__(self, client: docker.APIClient, folder: Path, app_logs: AppLogs, room: _Room, seconds: float) -> None:
        self._client, self._folder, self._app_logs, self._seconds = client, folder, app_logs, seconds
        self._room = room
        self._problems: dict[_Log, str] = {}

    def keep(self, logs: Sequence[_Log], part: float = 1.0, later: int = 0) -> list[tuple[int, _Log]]:
        """Keep logs by equal shares of a part of what is left; return those of apps that were too large, with sizes.

        So many others get the same share ``later``.
        """
        parts, parallel = equal_parts(len(logs) + later, part), min(_PARALLEL_LOGS, len(logs))
        late = f"it was not read within the {self._seconds:.3g} seconds of all logs"
        self._problems |= dict.fromkeys(logs, late)

        def keep(log: _Log) -> tuple[str, int]:
            with _Share(self._room, next(parts), parallel) as share:
                return self._keep(log, share)

        results = in_time(keep, logs, self._room.until, threads=_PARALLEL_LOGS)
        for log, result in zip(logs, results):
            if result is not None:
                self._problems[log] = result[0]
        return [(result[1], log) for log, result in zip(logs, results) if result and result[1]]

    def lost(self) -> dict[str, str]:
        """Return why logs were lost, by hostname."""
        lost: dict[str, list[str]] = {}
        for log, problem in self._problems.items():
            if problem:
                lost.setdefault(log.hostname, []).append(f"{log.app}: {problem}" if log.app else problem)
        return {hostname: "; ".join(problems) for hostname, problems in lost.items()}

    def _keep(self, log: _Log, share: _Share) -> tuple[str, int]:
        """Keep a log; return why it was lost, or empty, and the size of one that was too large for its share."""
        if share.kept < _LEAST_BYTES:
            return f"the logs before it have taken the {KEPT_BYTES >> 20} MiB of the session", 0
        try:
            content, problem = self._read_app(log, share) if log.app else self._read(log, share)
            if content is not None and time.monotonic() < self._room.until:
                write_atomically(self._folder / log.file_name, content)
                share.written = len(content)
        except TooLargeError as error:
            return as_phrase(reason(error)), error.size
        except (LogReadError, OSError) as error:
            return as_phrase(reason(error)), 0
        return problem, 0

    def _read_app(self, log: _Log, share: _Share) -> tuple[bytes | None, str]:
        kept, allowance = KeptEnd(share.kept), Allowance(share.size, share.seconds)
        try:
            found = self._app_logs.read(log.app, kept.add, allowance)
        finally:
            share.read += allowance.read
        return (kept.content() if found else None), ""

    def _read(self, log: _Log, share: _Share) -> tuple[bytes | None, str]:
        """Return the log of a container, or else its last lines, and then why the others were lost."""
        fewest = max(1, int(share.size * _END[0]) // _MESSAGE_BYTES - 1)
        problem = ""
        for (of_bytes, of_time), tail in ((_WHOLE, None), (_END, END_LINES), (_END, fewest)):
            ends: list[KeptEnd] = []
            begin = partial(_begin, ends, share.kept)
            allowance = Allowance(int(share.size * of_bytes), share.seconds * of_time)
            try:
                read_log(self._client, log.container, begin, allowance, "all" if tail is None else tail)
            except LogLimitError as error:
                problem = problem or as_phrase(reason(error))
                continue
            finally:
                share.read += allowance.read
            only = f"only the last {tail:,} lines of its log were kept: {problem}" if tail is not None else ""
            return ends[-1].content(), only
        return None, problem


def _begin(ends: list[KeptEnd], size: int) -> Callable[[bytes], None]:
    """Begin to keep a log, of which an earlier beginning has failed, and return what takes its bytes."""
    ends.append(KeptEnd(size))
    return ends[-1].add
