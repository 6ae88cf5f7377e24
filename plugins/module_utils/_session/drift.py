# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How an agent's part of a session differs from its plan, in the words of a repair. Nothing is changed."""

from __future__ import annotations

from collections.abc import Callable

from .._docker import containers, labels, networks
from .._docker.sdk import docker
from .._firewall.sync import sync_ruleset
from .._host.store import LocalSession, Store
from .._model.change import Change
from .._model.errors import EXPECTED, reason
from .._network.iproute import LinkState
from .._wireguard.peers import sync_wireguard_peers
from .links import plan_interfaces, plan_links
from .overlay import overlay_drift


def drift_of(client: docker.APIClient, store: Store, held: LocalSession) -> list[Change]:
    """Return what a repair would change here. What cannot be read is a difference too, and hides no other."""
    looks: dict[str, Callable[[], list[Change]]] = {
        "session": lambda: _claim(held),
        "files": lambda: _files(store, held),
        "network": lambda: _network(client, held),
        "overlay": lambda: overlay_drift(client, held),
        "firewall": lambda: sync_ruleset(store, dry=True),
        "underlay": lambda: sync_wireguard_peers(store, dry=True),
        "links": lambda: [step.change for step in plan_links(held.plan, held.agent, LinkState())],
        "containers": lambda: _containers(client, store, held),
        "ports": lambda: _ports(client, held),
    }
    return [change for subject, look in looks.items() for change in _read_or_report(subject, look)]


def _read_or_report(subject: str, look: Callable[[], list[Change]]) -> list[Change]:
    try:
        return look()
    except EXPECTED as error:
        return [Change(subject, f"unreadable: {reason(error)}", "readable")]


def _claim(held: LocalSession) -> list[Change]:
    return [] if held.committed else [Change(f"session {held.plan.name}", "not committed", "committed")]


def _files(store: Store, held: LocalSession) -> list[Change]:
    """Return the files that are gone or hold something else; what they held stays unsaid, it may be secret."""
    broken = store.changed_files(held.plan.id)
    return [Change(f"file {path}", "changed" if path.exists() else None, "as it was made") for path in broken]


def _network(client: docker.APIClient, held: LocalSession) -> list[Change]:
    wanted = networks.desired_network(held.plan)
    change = networks.plan_network(client, wanted) if wanted else None
    return [change] if change else []


def _containers(client: docker.APIClient, store: Store, held: LocalSession) -> list[Change]:
    """Return the containers that do not run. The command of a batch session runs once, so who ran it may have ended."""
    found = containers.find_containers(client, held.plan.id)
    states = {one["Labels"].get(labels.HOSTNAME): one["State"] for one in found}
    batch = store.started_commands(held)
    wanted = [kernel for kernel in held.kernels if kernel.hostname not in batch]
    there = [(kernel.container, states.get(kernel.hostname)) for kernel in wanted]
    return [Change(f"container {name}", state, "running") for name, state in there if state != "running"]


def _ports(client: docker.APIClient, held: LocalSession) -> list[Change]:
    """Return what differs where running containers are plugged in; one that lost an interface is made anew."""
    plugs = plan_interfaces(client, held)
    lost = [(kernel.container, plugs.lost[kernel.hostname]) for kernel in held.kernels if kernel.hostname in plugs.lost]
    anew = [Change(f"container {name}", f"running, without {interface}", "running") for name, interface in lost]
    return anew + [step.change for step in plugs.steps]
