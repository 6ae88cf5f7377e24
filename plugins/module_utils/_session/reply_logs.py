# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The logs of a reply, which share its bytes: what is printed takes neither the agent's memory nor the manager's.

A log is a list of lines as JSON text, so that it arrives as it is: in the text of a reply, control characters are
escaped. A byte of a log so takes up to seven of the reply.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .._host.threads import in_threads
from .._model.pool import Pool, equal_parts
from .._model.session import MAIN1

BYTES = 12 << 20
"""How many bytes of one reply its logs share."""

# Of what main1's own log may take, so that something is left for the others.
_MAIN_PART = 1 / 2

# What a line takes beside its text, and a list beside its lines.
_LINE_BYTES, _LIST_BYTES = 6, 8

# How many bytes of a reply one character takes at most.
_CHARACTER_BYTES = 14

Read = Callable[[], "tuple[list[str] | None, str]"]
"""Reads the last lines of a log, ``None`` if it does not exist, and says why some could not be read, or nothing."""


class ReplyLogs:
    """What the logs of one reply may still take."""

    def __init__(self) -> None:
        self._pool = Pool(BYTES)

    def collect(self, reads: Mapping[str, Mapping[str, Read]]) -> dict[str, dict[str, Any]]:
        """Return by hostname the ``log`` of each container, the logs of its ``apps``, and an ``error``.

        ``reads`` are by hostname, and then by app, the container's own log under the empty name. It comes before those
        of apps, and main1's before others: each has an equal share of what those before it have left.
        """
        own = [name for name in reads if name != MAIN1]
        apps = [(name, app) for name, logs in reads.items() for app in logs if app]
        answers = self._read(reads, [(MAIN1, "")] if MAIN1 in reads else [], _MAIN_PART)
        answers |= self._read(reads, [(name, "") for name in own])
        answers |= self._read(reads, apps)
        return {name: _result(name, logs, answers) for name, logs in reads.items()}

    def _read(
        self, reads: Mapping[str, Mapping[str, Read]], chosen: Sequence[tuple[str, str]], part: float = 1.0
    ) -> dict[tuple[str, str], tuple[str | None, str]]:
        parts = equal_parts(len(chosen), part)

        def read(hostname: str, app: str) -> tuple[str | None, str]:
            size = self._pool.take(next(parts))
            lines, problem = reads[hostname][app]()
            if lines is None:
                self._pool.give_back(size)
                return None, problem
            text, cut = encode_end(lines, size)
            self._pool.give_back(size - _size(text))
            if cut:
                left = f"only the end of {f'the log of {app}' if app else 'its log'} is shown, since all logs of one"
                left += f" answer share {BYTES >> 20} MiB: read those of {hostname} alone"
                problem = "; ".join(filter(None, (problem, left)))
            return text, problem

        names, apps = [name for name, _app in chosen], [app for _name, app in chosen]
        return dict(zip(chosen, in_threads(read, names, apps)))


def _result(
    hostname: str, logs: Mapping[str, Read], answers: Mapping[tuple[str, str], tuple[str | None, str]]
) -> dict[str, Any]:
    texts = {app: text for app in logs if (text := answers[hostname, app][0]) is not None}
    problems = [problem for app in logs if (problem := answers[hostname, app][1])]
    return {"log": texts.pop("", "[]"), "apps": texts, "error": "; ".join(problems) or None}


def encode_end(lines: Sequence[str], size: int) -> tuple[str, bool]:
    """Return the last of lines as JSON text that takes at most ``size`` bytes of a reply, and whether that is not all.

    Of a line that is too long alone, its end is kept.
    """
    text = json.dumps(lines)
    if _size(text) <= size:
        return text, False
    left, kept = size - _LIST_BYTES, 0
    for line in reversed(lines):
        left -= _size(json.dumps(line)) + _LINE_BYTES
        if left < 0:
            break
        kept += 1
    if kept:
        return json.dumps(lines[-kept:]), True
    characters = (size - _LIST_BYTES - _LINE_BYTES) // _CHARACTER_BYTES - 1
    return json.dumps([f"…{lines[-1][-characters:]}"] if characters > 0 else []), True


def _size(text: str) -> int:
    """Return how many bytes a JSON text takes as a text in JSON: quotes and backslashes are escaped once more."""
    return len(text) + text.count('"') + text.count("\\") + 2
