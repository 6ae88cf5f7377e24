# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What all stages of a run share on the control node: the request, the rules of a manager, the queue, the inventory."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from .._queue.entry import QueueEntry
from .._queue.limits import UserLimits, limits_from
from .._queue.owner import judge_owner
from .._queue.schedule import QueuePolicy
from .._queue.store import QueueStore
from .._request.defaults import VARIABLE as DEFAULTS
from .._request.defaults import Defaults
from ..cluster_view import HostVariables
from ..run_request import RunRequest


@dataclasses.dataclass(frozen=True)
class ManagerRules:
    """What the manager says, which knows what its users may have; nothing without a manager.

    ``held`` are the ids of sessions that wait and must not start, ``limits`` how much each user may have, ``groups``
    which groups of their users sessions get. With ``starts_none`` no session that waits starts, since the manager
    cannot say what may start at the end of a long run. ``defaults`` are of what a request leaves open; a play has some,
    too. ``timer_interval`` is that of the timer whose run this is, in seconds; 0 for other runs.
    """

    held: frozenset[str] = frozenset()
    limits: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    groups: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    starts_none: bool = False
    defaults: Defaults = dataclasses.field(default_factory=Defaults)
    timer_interval: float = 0

    @classmethod
    def from_variables(cls, variables: Mapping[str, Any]) -> ManagerRules:
        """Return the rules in the variables that only a manager, or a play of this collection, gives."""
        return cls(
            held=frozenset(variables.get("__session_held") or ()),
            limits=dict(variables.get("__session_limits") or {}),
            groups=dict(variables.get("__session_groups") or {}),
            starts_none=bool(variables.get("__session_starts_none")),
            defaults=Defaults.from_variable(variables.get(DEFAULTS)),
            timer_interval=float(variables.get("__session_timer_interval") or 0),
        )


@dataclasses.dataclass(frozen=True)
class Site:
    """What a run works with on the control node; ``hosts`` are the variables of the hosts of the inventory.

    In check mode, no stage writes to the queue.
    """

    request: RunRequest
    queue: QueueStore
    hosts: HostVariables = dataclasses.field(default_factory=dict)
    rules: ManagerRules = ManagerRules()
    check_mode: bool = False

    @property
    def agents(self) -> list[str]:
        """The agents of the inventory."""
        return self.request.agents

    @property
    def limits(self) -> UserLimits:
        """How much each user may have."""
        return limits_from(self.rules.limits)

    @property
    def policy(self) -> QueuePolicy:
        """The order of the queue."""
        return QueuePolicy(self.request.run.queue_policy, self.request.run.queue_patience)

    def entries(self) -> list[QueueEntry]:
        """Return all entries of the queue; those of runs that have died are PENDING again, or have no owner."""
        return [judge_owner(entry) for entry in self.queue.entries()]

    def entry(self, session_id: str) -> QueueEntry | None:
        """Return one entry as :meth:`entries` does."""
        entry = self.queue.entry(session_id)
        return judge_owner(entry) if entry else None

    def transaction(self) -> AbstractContextManager[None]:
        """Hold the queue's lock while entries are read and written; check mode only reads and needs no lock."""
        return nullcontext() if self.check_mode else self.queue.lock()
