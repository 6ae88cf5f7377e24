# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Removes links of sessions that no longer exist, such as the bridge that a failing engine left.

A session exists if it has a folder here, readable or not, or a container or network in the engine: another
``agent_state_path`` may hold it.
"""

from __future__ import annotations

from .._docker import containers, labels
from .._docker.sdk import docker
from .._host.store import Store
from .._model.change import Change
from .._model.network import BRIDGE_PREFIX, VXLAN_PREFIX, short_id
from .._network.iproute import LinkState, remove_link


def remove_leftovers(client: docker.APIClient, store: Store, state: LinkState) -> list[Change]:
    """Remove bridges and tunnels of sessions that do not exist, and return the changes."""
    # Links first: those of a session that starts meanwhile are not among them.
    links = [name for name in sorted(state.links) if name.startswith((BRIDGE_PREFIX, VXLAN_PREFIX))]
    labelled = [*containers.find_containers(client), *client.networks(filters=labels.label_filter())]
    ids = {entry["Labels"].get(labels.SESSION_ID, "") for entry in labelled} | set(store.held_ids())
    held = {short_id(session_id) for session_id in ids}
    names = [name for name in links if name[len(BRIDGE_PREFIX) :] not in held]
    for name in names:
        remove_link(name)
    return [Change(f"link {name}", "of no session", None) for name in names]
