# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A session as reported by one of its agents, with the public SSH keys of its containers."""

from __future__ import annotations

import dataclasses
from typing import Any

from .cordon import Cordon
from .plan import SessionPlan


@dataclasses.dataclass(frozen=True)
class PublicKeys:
    """The public keys of one container, each ``ssh-ed25519 AAAA…`` without a comment.

    Raises :class:`ValueError` for several lines: each line of ``known_hosts`` and ``authorized_keys`` counts by itself.
    """

    user: str
    host: str

    def __post_init__(self) -> None:
        if not (self.user.isprintable() and self.host.isprintable()):
            raise ValueError("a public key is not one line of text")


@dataclasses.dataclass(frozen=True)
class ContainerState:
    """The state of a container: its ``status`` as reported by the engine, and the digest of its image.

    ``exit_code`` and ``finished_at``, in seconds since the epoch, are set once it has exited.
    """

    status: str
    image_digest: str | None
    exit_code: int | None = None
    finished_at: int | None = None


@dataclasses.dataclass(frozen=True)
class HeldSession:
    """The part of a session on one agent: ``public_keys`` and ``containers`` are those of the agent, by hostname.

    ``request`` is the normalized request of the user. A session is ``committed`` once its start has succeeded on all
    agents. An uncommitted one that has ``expired`` counts as abandoned by the run that claimed it. ``lived`` and
    ``idle`` are in seconds, ``None`` if they are not known, or if the session does not end by time. ``cordon`` is that
    of the agent, if sessions on it end because of it.
    """

    plan: SessionPlan
    request: dict[str, Any]
    committed: bool
    expired: bool
    public_keys: dict[str, PublicKeys]
    containers: dict[str, ContainerState]
    lived: int | None = None
    idle: int | None = None
    cordon: Cordon | None = None
