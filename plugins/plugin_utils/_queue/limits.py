# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What one user may have in a queue: sessions, those that wait, and containers; and how many may wait in all."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from ...module_utils._model.validation import ValidationError
from .entry import CREATING, PENDING, RUNNING, QueueEntry

User = tuple[str, "int | None"]
"""A user, and the user's uid, if that is known."""


@dataclasses.dataclass(frozen=True)
class UserLimits:
    """The limits of each user, as a manager's policy has them, and of all who wait; 0 for none.

    ``max_sessions`` are those that run or start, ``max_waiting`` those that wait, ``max_containers`` of both.
    """

    max_sessions: int = 0
    max_waiting: int = 0
    max_containers: int = 0
    max_waiting_in_all: int = 0

    def check(self, user: User, containers: int, entries: Collection[QueueEntry], *, waits: bool) -> None:
        """Raise :class:`ValidationError` if a new request is beyond a limit, with its name and what the user has.

        ``entries`` are all of the queue; it ``waits`` if there is no room for the session now.
        """
        own = [entry for entry in entries if _user(entry) == user]
        live = [entry for entry in own if entry.state in _LIVE]
        waiting = [entry for entry in own if entry.state == PENDING]
        name = user[0]
        if 0 < self.max_sessions <= len(live):
            raise _refusal("max_sessions", f"{name} has {len(live)} of {self.max_sessions} sessions", "one")
        if waits and 0 < self.max_waiting <= len(waiting):
            what = f"{name} has {len(waiting)} of {self.max_waiting} sessions that wait"
            raise _refusal("max_waiting", what, "one, or wait until one starts")
        if self.max_containers:
            held = sum(map(_containers, [*live, *waiting]))
            if held + containers > self.max_containers:
                what = f"{containers} containers are requested, and {name} has {held} of {self.max_containers}"
                raise _refusal("max_containers", what, "a session, or request fewer")
        in_all = sum(entry.state == PENDING for entry in entries) if waits and self.max_waiting_in_all else 0
        if in_all and in_all >= self.max_waiting_in_all:
            raise ValidationError(
                f"the queue is full: {in_all} sessions of all users wait, and no more may; try again when some have"
                " started."
            )

    def held_back(self, entries: Iterable[QueueEntry]) -> dict[str, str]:
        """Return why sessions that wait do not start, though there be room, by id: their users have enough that run.

        Of the others, no more are left than each user may have. What operators start by playbooks is not held back.
        """
        if not self.max_sessions:
            return {}
        listed = [*entries]
        free = Counter(_user(entry) for entry in listed if entry.state in _LIVE)
        reasons: dict[str, str] = {}
        for entry in sorted(listed, key=lambda each: (-each.priority, each.arrival_key)):
            if entry.state != PENDING or entry.user_uid is None:
                continue
            free[_user(entry)] += 1
            if free[_user(entry)] > self.max_sessions and entry.limited:
                reasons[entry.id] = f"max_sessions: {entry.user} may have {self.max_sessions} that run"
        return reasons


_LIVE = (CREATING, RUNNING)


def limits_from(data: Mapping[str, object]) -> UserLimits:
    """Return the limits of a mapping of numbers by their names; there is none where a name is missing."""
    names = [field.name for field in dataclasses.fields(UserLimits)]
    return UserLimits(**{name: int(str(data[name])) for name in names if name in data})


def _refusal(limit: str, what: str, remedy: str) -> ValidationError:
    return ValidationError(f"{limit}: {what}; end {remedy}.")


def _user(entry: QueueEntry) -> User:
    return entry.user, entry.user_uid


def _containers(entry: QueueEntry) -> int:
    """Return how many containers a session has or wants."""
    if entry.plan:
        return len(entry.plan.kernels)
    spec = entry.spec or {}
    return sum(role["replicas"] for role in spec.get("roles") or ()) or int(spec.get("cluster_size", 1))
