# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The apps of main1 that ``session_apps`` lists."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ansible_collections.backendai.cluster.plugins.module_utils._model.session import SSH, SSH_PORT, App
from ansible_collections.backendai.cluster.plugins.module_utils._model.validation import (
    Problems,
    app_name_of,
    choice,
    entries,
    script,
    whole_number,
)

PROTOCOLS = ("http", "tcp")


def parse_apps(problems: Problems, value: Any) -> tuple[App, ...]:
    """Return the apps that ``session_apps`` lists."""
    apps = []
    for where, entry in entries(problems, "session_apps", value, ("name", "port", "protocol", "command")):
        name = app_name_of(problems, f"{where}.name", entry.get("name"))
        if name == SSH:
            problems.refuse(f"{where}.name", name, "is the name of the session's own way in")
        port = whole_number(problems, f"{where}.port", entry.get("port"), 1, 65535)
        if port == SSH_PORT:
            problems.refuse(f"{where}.port", port, "is the port of ssh")
        protocol = choice(problems, f"{where}.protocol", entry.get("protocol", "http"), PROTOCOLS)
        command = script(problems, f"{where}.command", entry.get("command", ""))
        apps.append(App(name, port, protocol, command))
    for key in ("name", "port"):
        given = Counter(getattr(app, key) for app in apps)
        for double in (one for one, count in given.items() if count > 1):
            problems.refuse("session_apps", double, f"is the {key} of more than one app")
    return tuple(apps)
