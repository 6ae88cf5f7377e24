# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Finds the drift of an agent's part of a session from its plan, as the changes of a repair. Nothing is changed."""

from __future__ import annotations

from collections.abc import Callable

from .._docker import networks
from .._docker.sdk import docker
from .._firewall.sync import sync_ruleset
from .._host.local_session import LocalSession
from .._host.store import Store
from .._model.change import Change
from .._model.errors import EXPECTED, reason
from .._network.iproute import LinkState
from .._wireguard.peers import sync_wireguard_peers
from .agent_needs import find_lacks
from .gpu_access import lost_nodes
from .interfaces import plan_interfaces
from .links import plan_links
from .ownership import own_containers


def find_drift(client: docker.APIClient, store: Store, session: LocalSession) -> list[Change]:
    """Return what a repair would change here. An error while reading is reported as drift, and hides no other."""
    checks: dict[str, Callable[[], list[Change]]] = {
        "session": lambda: _claim_drift(session),
        "files": lambda: _file_drift(store, session),
        "network": lambda: _network_drift(client, session),
        "firewall": lambda: sync_ruleset(store, check_mode=True),
        "agent": lambda: [lacking.change for lacking in find_lacks(store)],
        "underlay": lambda: sync_wireguard_peers(store, check_mode=True),
        "links": lambda: [step.change for step in plan_links(session.plan, session.agent, LinkState())],
        "containers": lambda: _container_drift(client, store, session),
        "ports": lambda: _interface_drift(client, store, session),
        "GPUs": lambda: _gpu_drift(client, store, session),
    }
    return [change for subject, check in checks.items() for change in _read_or_report(subject, check)]


def _read_or_report(subject: str, read: Callable[[], list[Change]]) -> list[Change]:
    try:
        return read()
    except EXPECTED as error:
        return [Change(subject, f"unreadable: {reason(error)}", "readable")]


def _claim_drift(session: LocalSession) -> list[Change]:
    return [] if session.committed else [Change(f"session {session.plan.name}", "not committed", "committed")]


def _file_drift(store: Store, session: LocalSession) -> list[Change]:
    """Return the files that are missing or changed, without their contents, which may be secret."""
    changed = store.changed_files(session.plan.id)
    return [Change(f"file {path}", "changed" if path.exists() else None, "unchanged") for path in changed]


def _network_drift(client: docker.APIClient, session: LocalSession) -> list[Change]:
    desired = networks.desired_network(session.plan)
    change = networks.plan_network(client, desired) if desired else None
    return [change] if change else []


def _container_drift(client: docker.APIClient, store: Store, session: LocalSession) -> list[Change]:
    """Return the containers that do not run, except those that have run the command of a batch session."""
    own = own_containers(client, store, session)
    states = {hostname: container["State"] for hostname, container in own.items()}
    started_hostnames = store.started_commands(session)
    expected = [kernel for kernel in session.kernels if kernel.hostname not in started_hostnames]
    observed = [(kernel.container, states.get(kernel.hostname)) for kernel in expected]
    return [Change(f"container {name}", state, "running") for name, state in observed if state != "running"]


def _interface_drift(client: docker.APIClient, store: Store, session: LocalSession) -> list[Change]:
    """Return the drift of the interfaces of running containers; a container that lost one has to be recreated."""
    interface_plan = plan_interfaces(client, store, session)
    lost = [
        (kernel.container, interface_plan.lost[kernel.hostname])
        for kernel in session.kernels
        if kernel.hostname in interface_plan.lost
    ]
    recreated = [Change(f"container {name}", f"running, without {interface}", "running") for name, interface in lost]
    return recreated + [step.change for step in interface_plan.steps]


def _gpu_drift(client: docker.APIClient, store: Store, session: LocalSession) -> list[Change]:
    """Return the running containers that have lost the device nodes of their GPUs, and have to be recreated."""
    lost = lost_nodes(client, store, session)
    return [
        Change(f"container {kernel.container}", f"running, without {lost[kernel.hostname]}", "running")
        for kernel in session.kernels
        if kernel.hostname in lost
    ]
