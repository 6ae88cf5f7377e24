# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Time limits on a host that do not depend on its clock, which may be set at any time."""

from __future__ import annotations

import dataclasses
import time

from .processes import boot_id


@dataclasses.dataclass(frozen=True)
class Deadline:
    """A time limit: an ``uptime`` in seconds, of one ``boot`` of the host. It has passed once the host has rebooted."""

    boot: str
    uptime: float

    @property
    def seconds_left(self) -> float:
        """The seconds until the limit; 0 once it has passed."""
        return max(0.0, self.uptime - read_uptime()) if self.boot == boot_id() else 0.0

    @property
    def passed(self) -> bool:
        """Whether the limit has passed."""
        return self.seconds_left <= 0


def deadline_in(seconds: float) -> Deadline:
    """Return the deadline that is ``seconds`` from now."""
    return Deadline(boot_id(), read_uptime() + seconds)


def read_uptime() -> float:
    """Return the uptime of the host in seconds, including suspend."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
