# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The health of an agent: what its checks have found, now and before."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

MAX_HISTORY = 100
"""How many changes are kept."""


@dataclasses.dataclass(frozen=True)
class HealthProblem:
    """What a ``check`` has found, in one line, and ``since`` when, in seconds since the epoch.

    If it names ``devices``, by the ids of :class:`Device`, only these are affected, else the whole agent.
    """

    check: str
    reason: str
    devices: tuple[str, ...] = ()
    since: float = 0.0


@dataclasses.dataclass(frozen=True)
class HealthChange:
    """A check that found something new, or with an empty ``reason`` found nothing any more."""

    at: float
    check: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Health:
    """The ``problems`` that the last checks found, and the latest changes, newest last.

    ``refused`` are sentences about checks that do not run. Times are in seconds since the epoch.
    """

    checked_at: float = 0.0
    problems: tuple[HealthProblem, ...] = ()
    refused: tuple[str, ...] = ()
    history: tuple[HealthChange, ...] = ()

    def after(self, found: Iterable[HealthProblem], refused: Iterable[str], now: float) -> Health:
        """Return the health after another look, which has found these problems; known ones keep their time."""
        known = {(problem.check, problem.devices): problem for problem in self.problems}
        problems = []
        for problem in found:
            before = known.get((problem.check, problem.devices))
            problems.append(dataclasses.replace(problem, since=before.since if before else now))
        changes = [
            HealthChange(now, problem.check, problem.reason) for problem in self.new_problems(problems)
        ] + [
            HealthChange(now, check, "") for check in dict.fromkeys(problem.check for problem in self.problems)
            if check not in {problem.check for problem in problems}
        ]  # fmt: skip
        return Health(now, tuple(problems), tuple(refused), (*self.history, *changes)[-MAX_HISTORY:])

    def new_problems(self, problems: Iterable[HealthProblem]) -> list[HealthProblem]:
        """Return those of the problems that are not known yet."""
        known = {(problem.check, problem.devices) for problem in self.problems}
        return [problem for problem in problems if (problem.check, problem.devices) not in known]

    @property
    def host_problems(self) -> list[str]:
        """Why the whole agent takes no new sessions, as phrases."""
        return [f"{problem.check}: {problem.reason}" for problem in self.problems if not problem.devices]

    @property
    def sick_devices(self) -> dict[str, str]:
        """Why devices are not assigned to containers, by their ids."""
        return {device: f"{problem.check}: {problem.reason}" for problem in self.problems for device in problem.devices}
