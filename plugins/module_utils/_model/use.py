# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How long a session has lived on an agent, and how long nobody has used it, from one look to the next.

Time is the uptime of the agent, so that a clock that is set ends nothing.
"""

from __future__ import annotations

import dataclasses

from .timestamp import is_duration

CPU_SHARE = 0.05
"""The part of one core above which the containers of a session count as used."""

SHORTEST_SECONDS = 10.0
"""Over how short a time at least that part is meant: any process works for an instant."""

LOOK_SECONDS = 60.0
"""How much idle time one look counts at most: nobody knows what happened since an earlier one."""

NOTICE_SECONDS = 300.0
"""How long before the end of a session its terminals hear of it."""


MAX_CORES = 1 << 20
"""More cores than any host has."""


@dataclasses.dataclass(frozen=True)
class Sample:
    """What a look sees: the CPU time in seconds and the accepted connections, each since a start of a container.

    ``in_use`` is whether a login or connection is open, a command runs, or a GPU works.
    """

    cpu: dict[str, float]
    accepted: dict[str, int]
    in_use: bool


@dataclasses.dataclass(frozen=True)
class SessionUse:
    """The state after a look at ``uptime`` seconds of one ``boot``.

    ``lived`` and ``idle`` are in seconds; an agent that is switched off counts neither. ``noticed`` is whether the
    terminals have heard of the end. Raises :class:`ValueError` for what is no duration.
    """

    boot: str
    uptime: float
    lived: float = 0.0
    idle: float = 0.0
    cpu: dict[str, float] = dataclasses.field(default_factory=dict)
    accepted: dict[str, int] = dataclasses.field(default_factory=dict)
    noticed: bool = False

    def __post_init__(self) -> None:
        if not all(map(is_duration, (self.uptime, self.lived, self.idle))):
            raise ValueError("uptime, lived or idle is out of range")

    def seconds_until(self, boot: str, uptime: float) -> float:
        """Return the seconds from this look to a moment; 0 if the agent was rebooted between them."""
        return max(0.0, uptime - self.uptime) if boot == self.boot else 0.0

    def lived_at(self, boot: str, uptime: float) -> float:
        """Return how long the session will have lived at a moment."""
        return self.lived + self.seconds_until(boot, uptime)

    def after(self, sample: Sample, boot: str, uptime: float) -> SessionUse:
        """Return the state after a look at a moment."""
        seconds = self.seconds_until(boot, uptime)
        worked = sum(total - self.cpu.get(start, 0.0) for start, total in sample.cpu.items())
        works = worked > CPU_SHARE * max(seconds, SHORTEST_SECONDS)
        # After a reboot of the agent all containers are new: that nobody used them is as true as before.
        used = sample.in_use or (boot == self.boot and (sample.accepted != self.accepted or works))
        return dataclasses.replace(
            self,
            boot=boot,
            uptime=uptime,
            lived=self.lived + seconds,
            idle=0.0 if used else self.idle + min(seconds, LOOK_SECONDS),
            cpu=sample.cpu,
            accepted=sample.accepted,
        )


@dataclasses.dataclass(frozen=True)
class Load:
    """What the containers of a session on an agent use now: cores, and percent of each GPU whose driver tells it.

    Raises :class:`ValueError` for more cores than any host has.
    """

    cpu: float
    gpus: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if abs(self.cpu) > MAX_CORES:
            raise ValueError("cpu is out of range")
