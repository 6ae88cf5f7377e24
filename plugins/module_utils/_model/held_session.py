# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A session as reported by one of its agents: what it is a part of, only the control node's record says."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

from .cordon import Cordon
from .session import is_hostname, is_session_id
from .timestamp import is_duration, is_time
from .use import Load


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

    ``exit_code`` is set once it has exited.
    """

    status: str
    image_digest: str | None
    exit_code: int | None = None


@dataclasses.dataclass(frozen=True)
class ContainersOfState:
    """The containers of one state: most of a session have the same, which a survey says once."""

    state: ContainerState
    hostnames: tuple[str, ...]


def by_state(containers: Mapping[str, ContainerState]) -> tuple[ContainersOfState, ...]:
    """Return containers, by hostname, grouped by their state."""
    grouped: dict[ContainerState, list[str]] = {}
    for hostname, state in containers.items():
        grouped.setdefault(state, []).append(hostname)
    return tuple(ContainersOfState(state, tuple(hostnames)) for state, hostnames in grouped.items())


@dataclasses.dataclass(frozen=True)
class HeldSession:
    """The part of a session on one agent: ``states`` are those of its containers there.

    ``plan_digest`` is that of the plan which the agent has stored, ``nonce`` that of the run that claimed the session
    last, and ``batch`` whether it has a command, with which it ends; it has ``begun`` once a container there has been
    told to run it. It ``waits`` for a folder if containers were not started with the engine for want of it: the agent
    starts them when it is there. A session is ``committed`` once its start has succeeded on all agents. An uncommitted
    one that has ``expired`` counts as abandoned by the run that claimed it.
    ``lived`` and ``idle`` are in seconds, ``None`` if they are not known, or if the session does not end by time.
    ``cordon`` is that of the agent, if sessions on it end because of it. ``public_keys`` are those of its containers by
    hostname, and ``load`` what they use, if the control node has asked for that.

    Raises :class:`ValueError` for an id, name, hostname or time that no session has.
    """

    id: str
    name: str
    created_at: float
    nonce: str
    plan_digest: str
    batch: bool
    committed: bool
    expired: bool
    states: tuple[ContainersOfState, ...]
    lived: int | None = None
    idle: int | None = None
    begun: bool = False
    waits: bool = False
    cordon: Cordon | None = None
    public_keys: dict[str, PublicKeys] = dataclasses.field(default_factory=dict)
    load: Load | None = None

    def __post_init__(self) -> None:
        hostnames = (hostname for each in self.states for hostname in each.hostnames)
        if not (is_session_id(self.id) and is_hostname(self.name) and all(map(is_hostname, hostnames))):
            raise ValueError("its id, its name or a hostname is none that a session has")
        if not (is_time(self.created_at) and is_duration(self.lived) and is_duration(self.idle)):
            raise ValueError("created_at, lived or idle is out of range")

    @functools.cached_property
    def containers(self) -> dict[str, ContainerState]:
        """The states of the containers, by hostname."""
        return {hostname: each.state for each in self.states for hostname in each.hostnames}
