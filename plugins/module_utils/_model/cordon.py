# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A cordon: an operator's decision, kept on the agent, that it takes no new sessions."""

from __future__ import annotations

import dataclasses
import time

from .timestamp import is_time


@dataclasses.dataclass(frozen=True)
class Cordon:
    """Why an agent takes no new sessions: ``reason``, in one line, and ``by``, the user who decided it.

    ``since`` and ``sessions_end_at`` are in seconds since the epoch. At the latter the sessions that are still there
    end; ``None`` for never. Raises :class:`ValueError` for what is no time.
    """

    reason: str
    by: str
    since: float
    sessions_end_at: float | None = None

    def __post_init__(self) -> None:
        if not (is_time(self.since) and is_time(self.sessions_end_at)):
            raise ValueError("a time of it is not in the years 1970 to 9999")

    @property
    def description(self) -> str:
        """Who decided it, why, and when its sessions end, as a phrase."""
        why = f" ({self.reason})" if self.reason else ""
        return f"cordoned by {self.by}{why}{self._end}"

    @property
    def _end(self) -> str:
        if self.sessions_end_at is None:
            return ""
        return time.strftime(", its sessions end by %Y-%m-%d %H:%M UTC", time.gmtime(self.sessions_end_at))

    def is_due(self, now: float) -> bool:
        """Return whether the sessions that are still there have to end."""
        return self.sessions_end_at is not None and self.sessions_end_at <= now
