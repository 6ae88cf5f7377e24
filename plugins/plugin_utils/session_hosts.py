# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Containers of sessions as inventory hosts: the command for agents, the parser of its output, and host names."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..module_utils._docker import labels
from ..module_utils._host.local_session import SESSION, LocalSession
from ..module_utils._model.errors import as_phrase
from ..module_utils._model.plan import Kernel
from ..module_utils._model.printable import printable_data
from ..module_utils._model.strict_json import parse_json

DOCKER_HOST = "unix:///var/run/docker.sock"
STATE_PATH = "/var/lib/backendai"
# The group of all containers.
ALL = "sessions"
# The exit code of ``timeout`` for a command that timed out.
TIMED_OUT = 124


@dataclasses.dataclass(frozen=True)
class SessionHost:
    """One running container of a committed session.

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


def list_command(state_path: str, docker_host: str, seconds: int) -> str:
    """Return the command line that prints an agent's sessions, one JSON object per line, then its running containers.

    It has to run as root, and exits with :data:`TIMED_OUT` after ``seconds``.
    """
    sessions = f"{state_path}/sessions"
    label = f"label={labels.OWNER}={labels.OWNER_VALUE}"
    listing = ["docker", "--host", docker_host, "ps", "--filter", label, "--format", "{{.Names}}"]
    closed = f"{sessions} cannot be entered: run backendai.cluster.provision_agents, or reach the agent as root"
    # A session may end between the listing and the read.
    script = (
        f"cd {shlex.quote(sessions)} 2> /dev/null || {{ echo {shlex.quote(closed)} >&2; exit 1; }}\n"
        'for file in */session.json; do [ ! -e "$file" ] || { cat "$file"; echo; }; done\n'
        f"exec {shlex.join(listing)}"
    )
    return shlex.join(["timeout", str(seconds), "/bin/sh", "-c", script])


def parse_listing(agent: str, output: str) -> tuple[list[SessionHost], list[str]]:
    """Return the containers in the output of :func:`list_command` on an agent, and warnings for invalid lines."""
    lines = [line for line in output.splitlines() if line]
    running = {line for line in lines if not line.startswith("{")}
    hosts: list[SessionHost] = []
    warnings: list[str] = []
    for line in lines:
        if not line.startswith("{"):
            continue
        session = _parse_session(line)
        if session is None:
            warnings.append(f"{agent}: a stored session cannot be read, so its containers are left out.")
        elif session.committed:
            hosts += [_host(agent, session, kernel) for kernel in session.kernels if kernel.container in running]
    return hosts, warnings


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


def _parse_session(line: str) -> LocalSession | None:
    try:
        session = SESSION.load(json.dumps(printable_data(parse_json(line))))
        session.plan.check()
    except ValueError:
        return None
    return session


def _host(agent: str, session: LocalSession, kernel: Kernel) -> SessionHost:
    fields = {name: getattr(kernel, name) for name in ("role", "index", "rank", "hostname", "container", "address")}
    return SessionHost(session_id=session.plan.id, session_name=session.plan.name, agent=agent, **fields)
