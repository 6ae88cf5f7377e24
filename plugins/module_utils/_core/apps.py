# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The apps of main1: services such as a notebook, each with a port of its own."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from ansible_collections.backendai.cluster.plugins.module_utils._core.parsing import (
    Problems,
    choice,
    entries,
    script,
    whole_number,
)

PROTOCOLS = ("http", "tcp")

SSH = "ssh"
"""What the way to main1's sshd is called, beside those to its apps."""

SSH_PORT = 22
"""Where the sshd of every container listens, unless it shares its agent's network."""

_NAME = re.compile(r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?")


@dataclasses.dataclass(frozen=True)
class App:
    """A service that main1 offers at ``port``. Without a ``command`` somebody else starts it, such as the image."""

    name: str
    port: int
    protocol: str = "http"
    command: str = ""


def parse_apps(problems: Problems, value: Any) -> tuple[App, ...]:
    """Return the apps that ``session_apps`` lists."""
    apps = []
    for where, entry in entries(problems, "session_apps", value, ("name", "port", "protocol", "command")):
        name = entry.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            problems.refuse(f"{where}.name", name, "must have 1 to 32 of a-z, 0-9 and -, a letter first, no - last")
        if name == SSH:
            problems.refuse(f"{where}.name", name, "is the name of the session's own way in")
        port = whole_number(problems, f"{where}.port", entry.get("port"), 1, 65535)
        if port == SSH_PORT:
            problems.refuse(f"{where}.port", port, "is the port of ssh")
        protocol = choice(problems, f"{where}.protocol", entry.get("protocol", "http"), PROTOCOLS)
        command = script(problems, f"{where}.command", entry.get("command", ""))
        apps.append(App(str(name), port, protocol, command))
    for key in ("name", "port"):
        given = Counter(getattr(app, key) for app in apps)
        for double in (one for one, count in given.items() if count > 1):
            problems.refuse("session_apps", double, f"is the {key} of more than one app")
    return tuple(apps)


def service_ports(apps: Iterable[App]) -> str:
    """Return the apps as the session's environment tells them: ``name:protocol:port``, comma-separated."""
    return ",".join(f"{app.name}:{app.protocol}:{app.port}" for app in apps)


def preopen_ports(apps: Iterable[App]) -> str:
    """Return the ports of the apps that the session does not start itself, comma-separated."""
    return ",".join(str(app.port) for app in apps if not app.command)
