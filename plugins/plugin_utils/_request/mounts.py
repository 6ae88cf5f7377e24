# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The folders of agents that every container of a session sees."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._model.session import Mount
from ...module_utils._model.validation import ValidationErrors

HOME = "/home/work"
# What every container has for itself, and is the session's: nothing can be mounted there, or inside.
RESERVED = ("/opt/backendai", "/run/backendai", "/var/lib/backendai", "/var/log/backendai", f"{HOME}/.ssh")

# Where the start of a container writes: in the container, not in a folder of its agent.
PATHS_WRITTEN_AT_START = ("/etc/hosts", "/etc/passwd", "/etc/profile.d", "/etc/ssh", "/usr/bin", "/usr/lib")


def parse_mounts(problems: ValidationErrors, entries: Sequence[Mapping[str, Any]]) -> tuple[Mount, ...]:
    """Return the mounts that ``session_mounts`` lists, each with all of its options in their types."""
    mounts = []
    for index, entry in enumerate(entries):
        where = f"session_mounts[{index}]"
        source, target = (_path(problems, f"{where}.{key}", entry[key].strip()) for key in ("source", "target"))
        hidden = [path for path in (HOME, *RESERVED, *PATHS_WRITTEN_AT_START) if _shadows(target, path)]
        if target.startswith("/") and hidden:
            problems.add_invalid(f"{where}.target", target, f"would hide {hidden[0]}")
        if any(target.startswith(f"{path}/") for path in RESERVED):
            problems.add_invalid(f"{where}.target", target, f"lies in what is the session's own: {', '.join(RESERVED)}")
        mounts.append(Mount(source, target, entry["read_only"]))
    targets = [mount.target for mount in mounts if mount.target]
    for target in sorted({target for target in targets if targets.count(target) > 1}):
        problems.add_invalid("session_mounts", target, "is the target of more than one mount")
    return tuple(mounts)


def _path(problems: ValidationErrors, option: str, value: str) -> str:
    """Return a path that means what it says: ``..`` could hide a folder, ``:`` would end it in a bind."""
    path = value.rstrip("/") or value[:1]
    if path and (path != posixpath.normpath(path) or not path.startswith("/") or path.startswith("//") or ":" in path):
        problems.add_invalid(option, path, "must be an absolute path without //, . or .. in it, and without :")
    return path


def _shadows(target: str, path: str) -> bool:
    """Return whether something mounted at ``target`` would cover ``path``."""
    return path == target or path.startswith(f"{target.rstrip('/')}/")
