# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A session as the facts of one of its agents have it, public SSH keys of its containers included."""

from __future__ import annotations

import dataclasses
from typing import Any

from .plan import SessionPlan


@dataclasses.dataclass(frozen=True)
class PublicKeys:
    """The public halves of one container, each ``ssh-ed25519 AAAA…`` without a comment."""

    user: str
    host: str


@dataclasses.dataclass(frozen=True)
class ContainerState:
    """What a container is doing: its ``status`` in the engine's words, and the digest of the image that it runs.

    One that has ended has an ``exit_code`` too, and ``finished_at`` in seconds since the epoch.
    """

    status: str
    image_digest: str | None
    exit_code: int | None = None
    finished_at: int | None = None


@dataclasses.dataclass(frozen=True)
class HeldSession:
    """What one agent holds of a session: ``public_keys`` and ``containers`` are of those here, by hostname.

    ``request`` is the comparable form of what the user asked. A session that is not ``committed`` has not proven
    itself yet; once it has ``expired``, the run that claimed it is taken to have given it up.
    """

    plan: SessionPlan
    request: dict[str, Any]
    committed: bool
    expired: bool
    public_keys: dict[str, PublicKeys]
    containers: dict[str, ContainerState]
