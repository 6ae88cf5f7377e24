# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Validates ``session_apps``, the apps of main1."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._model.session import MAX_APPS, SSH, SSH_PORT, App
from ...module_utils._model.validation import ValidationErrors, integer, parse_app_name, parse_start_page
from .known_apps import KNOWN_APPS

_DEFAULTS = {field.name: field.default for field in dataclasses.fields(App)[2:]}
# What only links have, which are those of HTTP.
LINK_OPTIONS, TCP = ("path", "start"), "tcp"
_PROGRAM = re.compile(r"[A-Za-z0-9_./+-]{0,255}")


def parse_apps(problems: ValidationErrors, entries: Sequence[Mapping[str, Any]]) -> tuple[App, ...]:
    """Return the apps of ``session_apps``; entries have options converted to their types, or ``None``."""
    if len(entries) > MAX_APPS:
        problems.add(f"session_apps: {len(entries)} apps are requested, a session has at most {MAX_APPS}")
        return ()
    apps = []
    for index, entry in enumerate(entries):
        where = f"session_apps[{index}]"
        name = parse_app_name(problems, f"{where}.name", entry["name"])
        if name == SSH:
            problems.add_invalid(f"{where}.name", name, "is reserved for the SSH access of the session")
        options = _complete(entry)
        if options["port"] is None:
            problems.add(f"{where}.port is required: the apps that need no port here are {', '.join(KNOWN_APPS)}")
            continue
        port = integer(problems, f"{where}.port", options["port"], 1, 65535)
        if port == SSH_PORT:
            problems.add_invalid(f"{where}.port", port, "is the port of ssh")
        start = parse_start_page(problems, f"{where}.start", options["start"])
        if not _PROGRAM.fullmatch(options["program"]):
            problems.add_invalid(f"{where}.program", options["program"], "must be the name or path of a program")
        _check_links(problems, where, options)
        command = options["command"].strip()
        apps.append(App(name, port, options["protocol"], command, options["path"], start, options["program"]))
    for key in ("name", "port"):
        counts = Counter(getattr(app, key) for app in apps)
        for duplicate in (value for value, count in counts.items() if count > 1):
            problems.add_invalid("session_apps", duplicate, f"is the {key} of more than one app")
    return tuple(apps)


def _check_links(problems: ValidationErrors, where: str, options: Mapping[str, Any]) -> None:
    """Add a problem for each option of links that an app without links has; a stored app has all options."""
    for option in LINK_OPTIONS:
        if options["protocol"] == TCP and options[option] != _DEFAULTS[option]:
            problems.add(f"{where}.{option}: an app of protocol tcp has no link; remove it, or use protocol http")


def _complete(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry with all options: those of a known app, unless the entry has a command of its own."""
    known = KNOWN_APPS.get(entry["name"], {}) if entry["command"] is None else {}
    given = {name: value for name, value in entry.items() if value is not None}
    if given.get("protocol") == TCP:
        known = {name: value for name, value in known.items() if name not in LINK_OPTIONS}
    options: dict[str, Any] = {"port": None, **_DEFAULTS, **known, **given}
    if known:
        options["command"] = options["command"].replace("{port}", str(options["port"]))
    return options
