# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Elements that requests and plans share: roles, mounts, apps, published ports."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

MAIN, SUB = "main", "sub"
MAIN1 = f"{MAIN}1"

# The scope of a command that every container runs.
ALL = "all"

# The engine's states of a container that has exited.
STOPPED = ("exited", "dead")

# How many seconds the processes of a session have to end before they are killed: by default, and at most.
STOP_GRACE, MAX_GRACE = 30, 300

# The maximum number of log lines in one request.
MAX_LINES = 100_000

# What gateways do with the prefix of a link by path: remove it, leave it, or refuse such links.
STRIP, KEEP, NONE = PATHS = ("strip", "keep", "none")

# How many apps a session may have: each takes a port of main1's agent, a process there, and a log.
MAX_APPS = 32

# How many supplementary groups the processes of a session may have.
MAX_GROUPS = 64

MAX_ID = (1 << 31) - 1
"""The largest number of a user or a group that an engine accepts."""

MAX_GROUP_NAME = 128

# The name of the published SSH port of main1, next to the names of its apps.
SSH = "ssh"

# The port of the sshd in every container, unless it shares its agent's network.
SSH_PORT = 22


def container_name(session: str, hostname: str) -> str:
    """Return the name of a container on its agent, of the name of its session."""
    return f"backendai-{session}-{hostname}"


@dataclasses.dataclass(frozen=True)
class Mount:
    """A folder of the agent that is mounted in every container at ``target``, with all file systems in it.

    With ``strict`` only root may decide where the path of ``source`` leads.
    """

    source: str
    target: str
    read_only: bool = False
    strict: bool = False


@dataclasses.dataclass(frozen=True)
class UserGroup:
    """A supplementary group of the processes of a session; its ``name`` is for people, and may be empty.

    Raises :class:`ValueError` for a number that no group of a user has.
    """

    number: int
    name: str = ""

    def __post_init__(self) -> None:
        if not 0 < self.number <= MAX_ID:
            raise ValueError(f"a group has a number from 1 to {MAX_ID}")
        if len(self.name) > MAX_GROUP_NAME or not self.name.isprintable():
            raise ValueError(f"the name of a group is a line of at most {MAX_GROUP_NAME} characters")


@dataclasses.dataclass(frozen=True)
class App:
    """A service of main1 on ``port``. Without a ``command`` it is started by other means, such as the image.

    ``path`` is one of :data:`PATHS`. Links open the page ``start``, relative to where the app is. The session is not
    created without the ``program``, if there is one.
    """

    name: str
    port: int
    protocol: str = "http"
    command: str = ""
    path: str = STRIP
    start: str = "/"
    program: str = ""

    def base_url(self, session: str) -> str:
        """Return the path at which browsers find the app of a session."""
        return link_prefix(session, self.name) if self.path == KEEP else "/"


@dataclasses.dataclass(frozen=True)
class PublishedPort:
    """A port mapping: ``host_port`` on the agent's ``address`` leads to ``port`` of main1.

    ``name`` is that of the app, or ``ssh``; gateways offer the app by ``origins``, such as ``https://example.org``.
    """

    name: str
    protocol: str
    port: int
    address: str
    host_port: int
    origins: tuple[str, ...] = ()


_SESSION_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def is_session_id(text: str) -> bool:
    """Return whether a text is the id of a session (a UUID), and so a safe name of a file or folder."""
    return _SESSION_ID.fullmatch(text) is not None


_HOSTNAME = re.compile(r"[a-z0-9][a-z0-9-]*")


def is_hostname(text: str) -> bool:
    """Return whether a text can be the name of a session or of a container."""
    return _HOSTNAME.fullmatch(text) is not None


def link_prefix(session: str, app: str) -> str:
    """Return the path of an app in links by path."""
    return f"/s/{session}/{app}"


def service_ports(apps: Iterable[App]) -> str:
    """Format apps for the session's environment: ``name:protocol:port``, comma-separated."""
    return ",".join(f"{app.name}:{app.protocol}:{app.port}" for app in apps)


def preopen_ports(apps: Iterable[App]) -> str:
    """Return the ports of the apps that the session does not start itself, comma-separated."""
    return ",".join(str(app.port) for app in apps if not app.command)
