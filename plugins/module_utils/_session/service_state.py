# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether an agent takes new sessions, and which of its devices are assigned: cordon, health, and what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from .._firewall.engine_rules import untried_rules
from .._host.cordon import DamagedCordonError, read_cordon
from .._host.health import is_health_lost, read_health
from .._host.home_folder import MOUNT_UNIT, is_protected
from .._host.home_removal import free_bytes, lacks_space
from .._host.homes import Homes
from .._host.store import CorruptStateError, Store
from .._model.cordon import Cordon
from .._model.errors import ClusterError
from .._model.quantity import format_size
from .agent_needs import find_lacks

CONSEQUENCE = "it receives no new sessions"
TIMER = "backendai-reconcile.timer"
LOST_HEALTH = (
    f"{CONSEQUENCE}, because what its health checks have found could not be written to /run: see systemctl status"
    " backendai-health on it."
)


class ServiceState(NamedTuple):
    """The ``cordon`` of an agent, sentences about other ``obstacles`` to new sessions, and its ``sick_devices``.

    The latter are the reasons, by the ids of devices. ``warnings`` are sentences about health checks that do not run,
    and about what the agent lacks and mends itself.
    """

    cordon: Cordon | None
    obstacles: tuple[str, ...]
    sick_devices: Mapping[str, str]
    warnings: tuple[str, ...]

    @property
    def in_service(self) -> bool:
        """Whether the agent takes new sessions."""
        return not self.cordon and not self.obstacles

    @property
    def draining(self) -> Cordon | None:
        """The cordon, if the sessions on the agent end because of it."""
        return self.cordon if self.cordon and self.cordon.sessions_end_at is not None else None


def read_service_state(
    store: Store, damaged_sessions: Iterable[CorruptStateError], disk_reserve: int, info: Mapping[str, Any]
) -> ServiceState:
    """Return the state of this agent; ``damaged_sessions`` are the errors of those that cannot be read.

    ``info`` is the engine's system information. Raises :class:`NotProvisionedError`.
    """
    health = read_health(store)
    damaged: list[ClusterError] = list(damaged_sessions)
    try:
        cordon = read_cordon(store)
    except DamagedCordonError as error:
        cordon = None
        damaged.append(error)
    untried = untried_rules(info)
    lacks = [lacking for lacking in find_lacks(store) if not lacking.need.harmless]
    hindering = [lacking for lacking in lacks if lacking.need.out_of_service or lacking.lack.unknown]
    obstacles = [
        *([f"{untried[0]}, so {CONSEQUENCE}: {untried[1]}."] if untried else []),
        *(f"{lacking.sentence(CONSEQUENCE)}." for lacking in hindering),
        *_unprotected_homes(store.homes),
        *_missing_space(store.homes, disk_reserve),
        # Without all sessions the rules cannot be changed, and a cordon that cannot be read may be one.
        *(f"{CONSEQUENCE}, because {error}" for error in damaged),
        *(f"{CONSEQUENCE}, because a health check failed: {problem}." for problem in health.host_problems),
        *([LOST_HEALTH] if is_health_lost() else []),
    ]
    mended = [f"{lacking.lack.problem}: its timer {TIMER} mends that." for lacking in lacks if lacking not in hindering]
    return ServiceState(cordon, tuple(obstacles), health.sick_devices, (*health.refused, *mended))


def _unprotected_homes(homes: Homes) -> list[str]:
    """Return a sentence if setuid programs in homes would have an effect on this host."""
    if is_protected(homes.root):
        return []
    remedy = f"run systemctl restart {MOUNT_UNIT} on it, and see systemctl status {MOUNT_UNIT} if that fails"
    return [f"the homes of sessions, {homes.root}, are not mounted nosuid,nodev, so {CONSEQUENCE}: {remedy}."]


def _missing_space(homes: Homes, reserve: int) -> list[str]:
    """Return a sentence if sessions have to wait until the homes of others have been removed."""
    if not lacks_space(homes, reserve):
        return []
    room = f"{format_size(free_bytes(homes))} are free in {homes.root}"
    consequence = f"{CONSEQUENCE} until the homes of ended sessions have been removed"
    return [f"{consequence}: {room}, and agent_disk_reserve is {format_size(reserve)}."]
