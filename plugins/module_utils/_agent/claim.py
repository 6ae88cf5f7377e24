# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Claiming an agent's part of a session: under the agent's lock, against what is there now."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import ipaddress
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ansible_collections.backendai.cluster.plugins.module_utils._agent.refused import Refused
from ansible_collections.backendai.cluster.plugins.module_utils._agent.slice import remove_slice
from ansible_collections.backendai.cluster.plugins.module_utils._agent.survey import (
    Questions,
    Settings,
    cpu_load,
    survey,
)
from ansible_collections.backendai.cluster.plugins.module_utils._core.change import Change
from ansible_collections.backendai.cluster.plugins.module_utils._core.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.module_utils._core.placement import room_for
from ansible_collections.backendai.cluster.plugins.module_utils._core.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.module_utils._core.quantity import format_slots
from ansible_collections.backendai.cluster.plugins.module_utils._core.ssh import PublicKeys
from ansible_collections.backendai.cluster.plugins.module_utils._host.keys import ensure_keys
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Held, Store, deadline

if TYPE_CHECKING:
    import docker


class ClaimRefused(Refused):
    """The plan no longer fits this agent; the message is one sentence."""


@dataclasses.dataclass(frozen=True)
class Claim:
    """What a run wants of this agent. ``seconds`` is how long it may take until the session is committed."""

    plan: SessionPlan
    request: dict[str, Any]
    agent: str
    nonce: str
    seconds: int


@dataclasses.dataclass(frozen=True)
class Claimed:
    """What came of a claim: what changed, and the public keys of the containers here by hostname."""

    changes: list[Change]
    keys: dict[str, PublicKeys]


def claim(client: docker.APIClient, store: Store, settings: Settings, wanted: Claim, *, dry: bool) -> Claimed:
    """Check that the plan still fits, note the claim and make the containers' keys.

    A session that is committed already is left as it is. One that another run left half way is taken over: its keys
    and cores stay, its nonce becomes ours; when its time is over, it is removed and claimed anew. Raises
    :class:`ClaimRefused`; with ``dry`` nothing is written.
    """
    hostnames = [kernel.hostname for kernel in wanted.plan.kernels_on(wanted.agent)]
    with store.lock():
        held = store.session(wanted.plan.id)
        if held and held.committed:
            return Claimed([], held.keys)
        if held and not held.expired(time.time()):
            cpus, changes = held.cpus, []
        else:
            cpus = _fit(client, store, settings, wanted, dry=dry)
            changes = [Change(f"claim {wanted.plan.name} on {wanted.agent}", None, f"{len(hostnames)} containers")]
        if dry:
            return Claimed(changes, dict.fromkeys(hostnames, PublicKeys("(made by the agent)", "(made by the agent)")))
        until = deadline(wanted.seconds)
        held = Held(wanted.plan, wanted.request, wanted.agent, wanted.nonce, until, cpus, {})
        # Noted before there is anything else, so that whatever is made belongs to a claim; then with its keys.
        store.save(held)
        keys = _keys(store, wanted.plan.id, hostnames)
        store.save(dataclasses.replace(held, keys=keys))
    return Claimed(changes, keys)


def _keys(store: Store, session_id: str, hostnames: Sequence[str]) -> dict[str, PublicKeys]:
    """Return the public keys of containers, made at once."""
    folders = [store.kernel_folder(session_id, hostname) / "ssh" for hostname in hostnames]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        return dict(zip(hostnames, pool.map(ensure_keys, folders)))


def pick_cpus(
    online: Sequence[int], load: Mapping[int, int], count: int, containers: Sequence[str]
) -> dict[str, list[int]]:
    """Return ``count`` distinct cores for each container, always those with the fewest containers pinned to them."""
    busy = {cpu: load.get(cpu, 0) for cpu in online}
    chosen = {}
    for container in containers:
        cpus = sorted(sorted(busy, key=lambda cpu: (busy[cpu], cpu))[:count])
        chosen[container] = cpus
        for cpu in cpus:
            busy[cpu] += 1
    return chosen


def _fit(
    client: docker.APIClient, store: Store, settings: Settings, wanted: Claim, *, dry: bool
) -> dict[str, list[int]]:
    """Return the cores of the containers that the plan puts here, having checked everything else."""
    now = time.time()
    held = store.sessions()
    for one in (one for one in held if one.expired(now) and not dry):
        # A run that is still at work on it, although its time is over, is waited for.
        with store.session_lock(one.plan.id):
            remove_slice(client, store, one.plan.id)
    if not dry:
        # Containers and networks of this session whose folder was lost would stand in their own way.
        remove_slice(client, store, wanted.plan.id)
    live = [one for one in held if not one.expired(now)]
    data = survey(client, store, settings, Questions(paths=[mount.source for mount in wanted.plan.mounts]))
    facts = AgentFacts.from_dict(wanted.agent, data)
    refusal = _refusal(wanted, facts, live)
    if refusal:
        raise ClaimRefused(refusal)
    kernels = wanted.plan.kernels_on(wanted.agent)
    names = [kernel.hostname for kernel in kernels]
    return pick_cpus(data["online_cpus"], cpu_load(live), wanted.plan.resources["cpu"], names)


def _refusal(wanted: Claim, facts: AgentFacts, live: Sequence[Held]) -> str | None:
    plan, count = wanted.plan, len(wanted.plan.kernels_on(wanted.agent))
    here = wanted.agent
    if any(one.plan.name == plan.name for one in live):
        return f"session_name: {plan.name!r} was taken on {here} by another run"
    if room_for(facts, plan.resources) < count:
        return f"{here} no longer has room for {count} containers of {format_slots(plan.resources)}"
    if facts.missing_paths:
        return f"session_mounts: {', '.join(facts.missing_paths)} is not a folder on {here}"
    if plan.network and plan.network.vni in facts.vnis:
        return f"the network identifier {plan.network.vni} was taken on {here} by another run"
    if plan.network and _overlaps(plan.network.subnet, facts.networks):
        return f"the subnet {plan.network.subnet} was taken on {here} by another run"
    return None


def _overlaps(subnet: str, networks: Sequence[str]) -> bool:
    wanted = ipaddress.IPv4Network(subnet)
    used = (ipaddress.ip_network(text, strict=False) for text in networks)
    return any(network.version == 4 and network.prefixlen and wanted.overlaps(network) for network in used)
