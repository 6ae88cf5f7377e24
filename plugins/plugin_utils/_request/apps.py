# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Validates ``session_apps``, the apps of main1."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._model.session import SSH, SSH_PORT, App
from ...module_utils._model.validation import ValidationErrors, integer, parse_app_name, parse_start_page


def parse_apps(problems: ValidationErrors, entries: Sequence[Mapping[str, Any]]) -> tuple[App, ...]:
    """Return the apps of ``session_apps``; entries have all options, converted to their types."""
    apps = []
    for index, entry in enumerate(entries):
        where = f"session_apps[{index}]"
        name = parse_app_name(problems, f"{where}.name", entry["name"])
        if name == SSH:
            problems.add_invalid(f"{where}.name", name, "is reserved for the SSH access of the session")
        port = integer(problems, f"{where}.port", entry["port"], 1, 65535)
        if port == SSH_PORT:
            problems.add_invalid(f"{where}.port", port, "is the port of ssh")
        start = parse_start_page(problems, f"{where}.start", entry["start"])
        apps.append(App(name, port, entry["protocol"], entry["command"].strip(), entry["path"], start))
    for key in ("name", "port"):
        counts = Counter(getattr(app, key) for app in apps)
        for duplicate in (value for value, count in counts.items() if count > 1):
            problems.add_invalid("session_apps", duplicate, f"is the {key} of more than one app")
    return tuple(apps)
