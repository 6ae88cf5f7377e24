# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a run has done so far: for its result, and as lines for people and programs while it happens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...module_utils._model.errors import one_line
from ...module_utils._model.printable import printable
from ..agent_calls import Answer, Failure


class Outcome:
    """What a run has changed, with the differences; its warnings; and the hosts that could not be reached, with why.

    ``notes`` are sentences about what it has decided for the user.

    ``tell`` gets a line when a step begins, ``STEP: begun``, and one for each host that has taken it, ``STEP (HOST):
    done`` or ``STEP (HOST): failed: REASON``. No result depends on them.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self.changed = False
        self.diffs: list[dict[str, str]] = []
        self.warnings: list[str] = []
        self.notes: list[str] = []
        self.unreachable: dict[str, str] = {}

    def add(self, host: str, answer: Mapping[str, Any]) -> None:
        """Take what a host has changed."""
        self.changed |= bool(answer.get("changed"))
        diff = answer.get("diff")
        if diff and diff["before"] != diff["after"]:
            self.diffs.append({**diff, "before_header": host, "after_header": host})

    def plan(self, name: str, description: str) -> None:
        """Take the plan of a new session, which changes nothing yet."""
        self.diffs.append({"before_header": name, "after_header": name, "before": "", "after": description})

    def warn(self, text: str) -> None:
        """Take a warning, once, as one line."""
        line = one_line(text)
        if line not in self.warnings:
            self.warnings.append(line)

    def take(self, step: str, host: str, answer: Answer | None) -> None:
        """Take the beginning of a step, and each answer of a host."""
        if answer is None:
            self.begin(step)
        elif isinstance(answer, Failure):
            if answer.unreachable:
                self.unreachable.setdefault(host, answer.message)
            self.done(step, host, answer.message)
        else:
            self.done(step, host, _problem_in(answer))

    def begin(self, step: str, host: str = "") -> None:
        """Tell that a step begins, on a host if that is known."""
        self._tell(printable(f"{step} ({host}): begun" if host else f"{step}: begun"))

    def done(self, step: str, host: str, problem: str = "") -> None:
        """Tell that a host has taken a step, or what went wrong."""
        state = f"failed: {one_line(problem)}" if problem else "done"
        self._tell(printable(f"{step} ({host}): {state}"))

    def note(self, line: str) -> None:
        """Tell something else, on one line."""
        self._tell(one_line(line))


def _problem_in(answer: Mapping[str, Any]) -> str:
    """Return what went wrong with one of the sessions of an answer, or with what it is about; empty if nothing did."""
    sessions = answer.get("sessions")
    # Of some phases they are a list of names.
    replies = sessions.values() if isinstance(sessions, Mapping) else ()
    problems = [str(reply.get("failed") or reply.get("refused") or "") for reply in replies if isinstance(reply, dict)]
    return str(answer.get("error") or "") or next(filter(None, problems), "")
