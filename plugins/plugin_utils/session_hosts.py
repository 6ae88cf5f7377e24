# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Containers of sessions of the record as inventory hosts: their names, groups and variables."""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from ..module_utils._model.plan import Kernel, SessionPlan

DOCKER_HOST = "unix:///var/run/docker.sock"
# The group of all containers.
ALL = "sessions"


@dataclasses.dataclass(frozen=True)
class SessionHost:
    """One container of a session that has started.

    ``agent`` is the inventory name of its agent. ``address`` is the one on the session's network, ``None`` in a session
    with a single container.
    """

    session_id: str
    session_name: str
    role: str
    index: int
    rank: int
    hostname: str
    agent: str
    container: str
    address: str | None

    @property
    def groups(self) -> tuple[str, ...]:
        """The inventory groups of the container: those of its session, its role and its agent."""
        memberships = (("session", self.session_name), ("role", self.role), ("agent", self.agent))
        return tuple(re.sub(r"\W", "_", f"{kind}_{name}") for kind, name in memberships)

    @property
    def variables(self) -> dict[str, Any]:
        """The host variables of the container."""
        fields = dataclasses.asdict(self)
        fields.pop("hostname")
        return {f"backendai_{name}": value for name, value in fields.items()}


def find_hosts(plans: Iterable[SessionPlan]) -> list[SessionHost]:
    """Return the containers of sessions of the record."""
    return [_host(plan, kernel) for plan in plans for kernel in plan.kernels]


def assign_host_names(hosts: Iterable[SessionHost], taken: Iterable[str]) -> tuple[dict[str, SessionHost], list[str]]:
    """Return the containers by host name, and warnings.

    A name is ``<hostname>.<session name>``, followed by the beginning of the session's id if several sessions have that
    name. A container with a name that is ``taken`` or not unique is omitted.
    """
    listed = sorted(hosts, key=lambda host: (host.session_name, host.session_id, host.rank, host.agent))
    ids = defaultdict(set)
    for host in listed:
        ids[host.session_name].add(host.session_id)
    warnings = [
        f"{len(same)} sessions are called {name}: the names of their hosts end with the beginnings of their ids."
        for name, same in sorted(ids.items())
        if len(same) > 1
    ]
    used_names = set(taken)
    assigned: dict[str, SessionHost] = {}
    for host in listed:
        suffix = f".{host.session_id[:8]}" if len(ids[host.session_name]) > 1 else ""
        name = f"{host.hostname}.{host.session_name}{suffix}"
        if name in used_names:
            warnings.append(
                f"{host.agent}: the container {host.container} is left out: the inventory already has a host {name}."
            )
            continue
        used_names.add(name)
        assigned[name] = host
    return assigned, warnings


def variable_references(agent: str) -> Mapping[str, str]:
    """Return the variables of a container that refer to those of its agent, as templates: no value is copied."""
    variables = f"hostvars[{agent!r}]"
    return {
        "backendai_agent_connection": f"{{{{ {variables} | backendai.cluster.agent_connection }}}}",
        "backendai_docker_host": f"{{{{ {variables}.agent_docker_host | default({DOCKER_HOST!r}) }}}}",
    }


def _host(plan: SessionPlan, kernel: Kernel) -> SessionHost:
    names = ("role", "index", "rank", "hostname", "agent", "container", "address")
    return SessionHost(plan.id, plan.name, **{name: getattr(kernel, name) for name in names})
