# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Validates ``session_mounts``, the folders of agents that are mounted in all containers of a session."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._model.session import Mount
from ...module_utils._model.validation import ValidationErrors

HOME = "/home/work"
# Reserved for the session in each container: nothing can be mounted there, or inside.
RESERVED = ("/opt/backendai", "/run/backendai", "/var/lib/backendai", "/var/log/backendai", f"{HOME}/.ssh")

# Written when a container starts: must be in the container, not in a mounted folder.
PATHS_WRITTEN_AT_START = ("/etc/hosts", "/etc/passwd", "/etc/profile.d", "/etc/ssh", "/usr/bin", "/usr/lib")


def parse_mounts(problems: ValidationErrors, entries: Sequence[Mapping[str, Any]]) -> tuple[Mount, ...]:
    """Return the mounts of ``session_mounts``; entries have all options, converted to their types."""
    mounts = []
    for index, entry in enumerate(entries):
        where = f"session_mounts[{index}]"
        source, target = (_parse_path(problems, f"{where}.{key}", entry[key].strip()) for key in ("source", "target"))
        hidden = [path for path in (HOME, *RESERVED, *PATHS_WRITTEN_AT_START) if _shadows(target, path)]
        if target.startswith("/") and hidden:
            problems.add_invalid(f"{where}.target", target, f"would hide {hidden[0]}")
        if any(target.startswith(f"{path}/") for path in RESERVED):
            problems.add_invalid(f"{where}.target", target, f"must not be in a reserved folder: {', '.join(RESERVED)}")
        mounts.append(Mount(source, target, entry["read_only"]))
    targets = [mount.target for mount in mounts if mount.target]
    for target in sorted({target for target in targets if targets.count(target) > 1}):
        problems.add_invalid("session_mounts", target, "is the target of more than one mount")
    return tuple(mounts)


def _parse_path(problems: ValidationErrors, option: str, value: str) -> str:
    """Return a normalized path: ``..`` could hide a folder, and ``:`` is the separator of bind options."""
    path = value.rstrip("/") or value[:1]
    if path and (path != posixpath.normpath(path) or not path.startswith("/") or path.startswith("//") or ":" in path):
        problems.add_invalid(option, path, "must be an absolute path without //, ., .. or :")
    return path


def _shadows(target: str, path: str) -> bool:
    """Return whether a mount at ``target`` would cover ``path``."""
    return path == target or path.startswith(f"{target.rstrip('/')}/")
