# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Containers of sessions of the record as inventory hosts: the command for agents, and host names."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..module_utils._docker import labels
from ..module_utils._host.container_ids import FOLDER as CONTAINER_IDS
from ..module_utils._model.errors import as_phrase
from ..module_utils._model.plan import Kernel, SessionPlan

DOCKER_HOST = "unix:///var/run/docker.sock"
STATE_PATH = "/var/lib/backendai"
# The group of all containers.
ALL = "sessions"
# The exit code of ``timeout`` for a command that timed out.
TIMED_OUT = 124


@dataclasses.dataclass(frozen=True)
class SessionHost:
    """One running container of a session that has started.

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


def list_command(docker_host: str, state_path: str, seconds: int) -> str:
    """Return the command line that prints the ids of an agent's running containers, then those recorded of sessions.

    It has to run as root, and exits with :data:`TIMED_OUT` after ``seconds``.
    """
    label = f"label={labels.OWNER}={labels.OWNER_VALUE}"
    listing = ["docker", "--host", docker_host, "ps", "--no-trunc", "--filter", label, "--format", "{{.ID}}"]
    recorded = f'{shlex.join(listing)} && {{ grep -Hs . "$0"/sessions/*/{CONTAINER_IDS}/* || :; }}'
    return shlex.join(["timeout", str(seconds), "sh", "-c", recorded, state_path])


def find_hosts(agent: str, output: str, plans: Iterable[SessionPlan]) -> list[SessionHost]:
    """Return the containers that run on an agent, by the output of :func:`list_command`, of sessions of the record.

    Labels and names prove nothing: the agent has recorded the ids of the containers that it has made.
    """
    lines = output.splitlines()
    # The path of a record ends with the id of the session, the folder and the hostname.
    parted = (line.rpartition(":") for line in lines if ":" in line)
    ids = {(*path.split("/")[-3::2],): container_id for path, _colon, container_id in parted}
    return [
        _host(plan, kernel)
        for plan in plans
        for kernel in plan.kernels_on(agent)
        if ids.get((plan.id, kernel.hostname)) in lines
    ]


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


def error_reason(code: int, errors: str, seconds: int) -> str:
    """Return why the command failed on an agent, given its exit code, which is not 0."""
    if code == TIMED_OUT:
        return f"it did not answer within {seconds} seconds"
    return errors or f"the command that lists its sessions ended with {code}"


def unavailable_warning(agent: str, reason: str) -> str:
    """Return the warning for an agent that is unavailable."""
    return f"{agent} is left out: {as_phrase(reason)}."


def variable_references(agent: str, names: Sequence[str]) -> Mapping[str, str]:
    """Return templates that refer to an agent's variables of these names, so that no value is copied."""
    return {name: f"{{{{ hostvars[{agent!r}][{name!r}] }}}}" for name in names}


def _host(plan: SessionPlan, kernel: Kernel) -> SessionHost:
    names = ("role", "index", "rank", "hostname", "agent", "container", "address")
    return SessionHost(plan.id, plan.name, **{name: getattr(kernel, name) for name in names})
