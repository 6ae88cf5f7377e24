# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a request and a plan both speak of: roles, mounts, apps, published ports."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

MAIN, SUB = "main", "sub"
MAIN1 = f"{MAIN}1"

# The scope of a command that every container runs.
ALL = "all"

# The states of a container that has ended, in the engine's words.
STOPPED = ("exited", "dead")

# How many lines of a log can be asked for.
MAX_LINES = 100_000

# What the way to main1's sshd is called, beside those to its apps.
SSH = "ssh"

# Where the sshd of every container listens, unless it shares its agent's network.
SSH_PORT = 22


@dataclasses.dataclass(frozen=True)
class Mount:
    """A folder of the agent that every container sees at ``target``."""

    source: str
    target: str
    read_only: bool = False


@dataclasses.dataclass(frozen=True)
class App:
    """A service that main1 offers at ``port``. Without a ``command`` somebody else starts it, such as the image."""

    name: str
    port: int
    protocol: str = "http"
    command: str = ""


@dataclasses.dataclass(frozen=True)
class PublishedPort:
    """One way in: whoever reaches ``host_port`` at ``address``, which is the agent's, reaches ``port`` of main1.

    ``name`` is that of the app, or ``ssh``.
    """

    name: str
    protocol: str
    port: int
    address: str
    host_port: int


_SESSION_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def is_session_id(text: str) -> bool:
    """Return whether a text is the id of a session, and so may be the name of a file or folder: a UUID."""
    return _SESSION_ID.fullmatch(text) is not None


def service_ports(apps: Iterable[App]) -> str:
    """Return the apps as the session's environment tells them: ``name:protocol:port``, comma-separated."""
    return ",".join(f"{app.name}:{app.protocol}:{app.port}" for app in apps)


def preopen_ports(apps: Iterable[App]) -> str:
    """Return the ports of the apps that the session does not start itself, comma-separated."""
    return ",".join(str(app.port) for app in apps if not app.command)
