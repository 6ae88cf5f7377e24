# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Removes links, folders and homes of sessions that no longer exist, such as the bridge that a failing engine left.

A session exists if it has a folder here, readable or not, or if a container of the engine has mounted files of it, or a
network of the engine its bridge: another ``agent_state_path`` may hold it. Labels do not count: images have them, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from pathlib import Path

from .._docker import networks
from .._docker.sdk import docker
from .._host.home_removal import start_removal
from .._host.store import NotProvisionedError, Store
from .._model.change import Change
from .._model.files import write_atomically
from .._model.network import BRIDGE_PREFIX, VXLAN_PREFIX, short_id
from .._network.iproute import LinkState, remove_link
from .ownership import mounting_ids

SEEN = Path("/run/backendai-leftovers")
"""The links that the last run found without a session of this host's state, one in each line."""


def find_leftovers(store: Store, state: LinkState) -> list[str]:
    """Return the bridges and tunnels of sessions without a folder here, sorted."""
    # Links first: those of a session that starts meanwhile are not among them.
    links = sorted(name for name in state.links if name.startswith((BRIDGE_PREFIX, VXLAN_PREFIX)))
    return _without_session(links, store.held_ids()) if links else []


def seen_twice(names: Collection[str]) -> list[str]:
    """Return those of the links that the last run found, too, and remember all for the next one.

    A session of another state path that is about to start has a link before it has a container.
    """
    seen: list[str] = []
    with contextlib.suppress(OSError):
        seen = SEEN.read_text().split()
    if seen != list(names):
        write_atomically(SEEN, "".join(f"{name}\n" for name in names), durable=False)
    return [name for name in names if name in seen]


def remove_leftovers(client: docker.APIClient, names: Collection[str]) -> list[Change]:
    """Remove these links, except those of sessions that the engine knows, and return the changes."""
    bridges = networks.bridges(client)
    unknown = [name for name in _without_session(names, mounting_ids(client)) if name not in bridges]
    for name in unknown:
        remove_link(name)
    return [Change(f"link {name}", "of no session", None) for name in unknown]


def remove_folders(client: docker.APIClient, store: Store, session_ids: Collection[str]) -> list[Change]:
    """Remove folders without a description, with the keys in them, and return the changes.

    A folder that a container still mounts is kept: its session has lost its description.
    """
    changes = []
    for session_id in session_ids:
        # A claim creates its folder under the same locks.
        with store.both_locks(session_id):
            if session_id in store.nameless_ids() and session_id not in mounting_ids(client):
                store.remove(session_id)
                changes.append(Change(f"folder {store.folder(session_id)}", "of no session", None))
    return changes


def retire_homes(store: Store, engine: Callable[[], docker.APIClient]) -> list[Change]:
    """Retire homes of sessions that are not here any more, and let those that are retired be removed.

    Return the changes. On a host without homes there is nothing to do.
    """
    try:
        homes = store.homes
    except NotProvisionedError:
        return []
    changes = []
    # Homes first: those of a session that starts meanwhile are not among them.
    for session_id in {*homes.session_ids()}.difference(store.held_ids()):
        # A claim creates its folder under the same locks, before it has homes.
        with store.both_locks(session_id):
            if session_id not in store.held_ids() and session_id not in mounting_ids(engine()):
                homes.retire(session_id)
                changes.append(Change(f"homes of {session_id}", "of no session", None))
    if homes.has_retired():
        start_removal()
    return changes


def _without_session(links: Collection[str], session_ids: Collection[str]) -> list[str]:
    """Return the links of other sessions than these."""
    held = {short_id(session_id) for session_id in session_ids}
    return [name for name in links if name[len(BRIDGE_PREFIX) :] not in held]
