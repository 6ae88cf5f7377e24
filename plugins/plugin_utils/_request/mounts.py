# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Validates ``session_mounts``, the folders of agents that are mounted in all containers of a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._model.mounts import find_path_problem, find_target_problem
from ...module_utils._model.session import Mount
from ...module_utils._model.validation import ValidationErrors


def parse_mounts(problems: ValidationErrors, entries: Sequence[Mapping[str, Any]]) -> tuple[Mount, ...]:
    """Return the mounts of ``session_mounts``; entries have all options, converted to their types."""
    mounts = []
    for index, entry in enumerate(entries):
        where = f"session_mounts[{index}]"
        source, target = (_parse_path(problems, f"{where}.{key}", entry[key].strip()) for key in ("source", "target"))
        problem = find_target_problem(target)
        if problem:
            problems.add_invalid(f"{where}.target", target, problem)
        mounts.append(Mount(source, target, entry["read_only"], entry["strict"]))
    targets = [mount.target for mount in mounts if mount.target]
    for target in sorted({target for target in targets if targets.count(target) > 1}):
        problems.add_invalid("session_mounts", target, "is the target of more than one mount")
    return tuple(mounts)


def _parse_path(problems: ValidationErrors, option: str, value: str) -> str:
    """Return a path without slashes at its end."""
    path = value.rstrip("/") or value[:1]
    problem = find_path_problem(path) if path else ""
    if problem:
        problems.add_invalid(option, path, problem)
    return path
