# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A session as stored on one agent, and the form of its file."""

from __future__ import annotations

import dataclasses
from collections import Counter

from .._model.devices import PinnedResources
from .._model.held_session import PublicKeys
from .._model.plan import Kernel, SessionPlan
from .._model.state_format import StateFormat
from .deadline import Deadline


@dataclasses.dataclass(frozen=True)
class LocalSession:
    """A session as stored on one agent.

    ``agent`` is its inventory name, ``nonce`` that of the run that claimed it last. ``expires_at`` is
    ``None`` once the session is committed. ``pinned`` are the cores and devices of each
    container, ``keys`` the public keys, empty if a claim was interrupted before they were generated.
    """

    plan: SessionPlan
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


SESSION = StateFormat("the session", LocalSession)
