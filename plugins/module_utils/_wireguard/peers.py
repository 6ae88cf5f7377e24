# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The encrypted underlay of this agent: where it is, and its peers, from all sessions that the agent holds."""

from __future__ import annotations

from .._host.store import Store
from .._model.change import Change
from .._model.network import Underlay
from . import device as wireguard
from .key import read_public_key
from .mesh import DEVICE, build_wireguard_config, wireguard_underlay


def sync_wireguard_peers(store: Store, *, dry: bool, excluded: str = "") -> list[Change]:
    """Let the WireGuard device know the agents of all sessions that are held but ``gone`` (an id), and no others.

    Returns what changed. An agent without a key has no such device. While a session cannot be read no peer is removed:
    it may be one of its. With ``dry`` only the difference is computed. Raises :class:`WireGuardError`.
    """
    public_key = read_public_key(store.wireguard_folder)
    if not public_key:
        return []
    with store.isolation_lock():
        readable, damaged = store.load_all()
        slices = [(session.plan, session.agent) for session in readable if session.plan.id != excluded]
        steps = wireguard.plan_device(build_wireguard_config(slices, public_key))
        if damaged:
            steps = [step for step in steps if step.change.after is not None]
        if not dry:
            wireguard.apply_device(steps)
    return [step.change for step in steps]


def underlay_in_use(store: Store, plain: Underlay | None, encryption: str) -> tuple[Underlay | None, list[str]]:
    """Return where this agent meets its peers, given its plain underlay, and what there is to warn of.

    With encryption it is never the plain one: without a device that is as it should be, there is no underlay.
    """
    if not encryption or plain is None:
        return plain, []
    public_key, device = read_public_key(store.wireguard_folder), wireguard.read_device()
    if public_key and device:
        desired = wireguard_underlay(plain, public_key, device.port)
        problem = wireguard.difference(device, desired)
        if not problem:
            return desired, []
        problem = f"{DEVICE} is {problem}"
    else:
        problem = f"{DEVICE} is missing" if public_key else "there is no key"
    return None, [f"agent_underlay_encryption: {problem}; run backendai.cluster.provision_agents on this host."]
