# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Synchronizes the WireGuard peers of this agent with all sessions that it holds, and reads its underlay."""

from __future__ import annotations

from .._host.store import Store
from .._model.change import Change
from .._model.network import Underlay
from . import device as wireguard
from .key import read_public_key
from .mesh import DEVICE, build_wireguard_config, wireguard_underlay


def sync_wireguard_peers(store: Store, *, check_mode: bool) -> list[Change]:
    """Set the peers of the WireGuard device to the agents of all held sessions, and return what changed.

    It holds the lock of the isolation rules. With ``check_mode`` only the changes are computed. Raises
    :class:`WireGuardError`.
    """
    with store.isolation_lock():
        return apply_wireguard_peers(store, check_mode=check_mode)


def apply_wireguard_peers(store: Store, *, check_mode: bool, excluded: str = "") -> list[Change]:
    """Set the peers as :func:`sync_wireguard_peers` does, but for those of ``excluded`` (an id).

    The caller holds the lock of the isolation rules; one that excludes a session holds it until that is no longer
    stored. Returns nothing on an agent without a key. While a session cannot be read, no peer is removed: it may need
    that peer.
    """
    public_key = read_public_key(store.wireguard_folder)
    if not public_key:
        return []
    readable, damaged = store.load_all(excluded)
    slices = [(session.plan, session.agent) for session in readable]
    steps = wireguard.plan_device(build_wireguard_config(slices, public_key))
    if damaged:
        steps = [step for step in steps if step.change.after is not None]
    if not check_mode:
        wireguard.apply_device(steps)
    return [step.change for step in steps]


def underlay_in_use(store: Store, plain: Underlay | None, encryption: str) -> tuple[Underlay | None, list[str]]:
    """Return the underlay of this agent, given its plain one, and warnings.

    With encryption it is never the plain one: without a correct device there is no underlay.
    """
    if not encryption or plain is None:
        return plain, []
    public_key, device = read_public_key(store.wireguard_folder), wireguard.read_device()
    # One that does not answer has no port.
    if public_key and device and device.port:
        desired = wireguard_underlay(plain, public_key, device.port)
        problem = wireguard.difference(device, desired)
        if not problem:
            return desired, []
        problem = f"{DEVICE} is {problem}"
    else:
        problem = f"{DEVICE} is {'without its port' if device else 'missing'}" if public_key else "there is no key"
    return None, [f"agent_underlay_encryption: {problem}; run backendai.cluster.provision_agents on this host."]
