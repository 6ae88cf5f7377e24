# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A session as stored on one agent, and the form of its file."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from typing import Any

from .._model.devices import PinnedResources
from .._model.held_session import PublicKeys
from .._model.plain_data import to_plain
from .._model.plan import Kernel, SessionPlan
from .._model.state_format import StateFormat
from .deadline import Deadline, deadline_in


@dataclasses.dataclass(frozen=True)
class LocalSession:
    """A session as stored on one agent.

    ``agent`` is its inventory name, ``nonce`` that of the run that claimed it last. ``expires_at`` is
    ``None`` once the session is committed. ``pinned`` are the cores and devices of each
    container, ``keys`` the public keys, empty if a claim was interrupted before they were generated. ``request`` is the
    normalized request of the user.
    """

    plan: SessionPlan
    request: dict[str, Any]
    agent: str
    nonce: str
    expires_at: Deadline | None
    pinned: dict[str, PinnedResources]
    keys: dict[str, PublicKeys]

    @property
    def committed(self) -> bool:
        """Whether the session is committed. An uncommitted session is removed when its claim expires."""
        return self.expires_at is None

    @property
    def expired(self) -> bool:
        """Whether the claim expired before the session was committed."""
        return self.expires_at is not None and self.expires_at.passed

    @property
    def kernels(self) -> list[Kernel]:
        """The containers of the session on this agent."""
        return self.plan.kernels_on(self.agent)

    @property
    def slots(self) -> dict[str, int]:
        """The total slots of the containers on this agent."""
        total: Counter[str] = Counter()
        for kernel in self.kernels:
            total.update(kernel.resources)
        return dict(total)


def _without_clock(data: dict[str, Any]) -> dict[str, Any]:
    """Convert the time at which a claim expires, in seconds since the epoch, to one that the clock does not change."""
    at = data["expires_at"]
    return {**data, "expires_at": None if at is None else to_plain(deadline_in(at - time.time()))}


# Version 2: containers may have macvlans, which are no network of the engine. Version 3: claims expire by uptime.
SESSION = StateFormat("the session", LocalSession, (dict, _without_clock))
