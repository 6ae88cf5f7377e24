# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The roles of a session: groups of containers with an image, resources and an environment of their own."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ...module_utils._model.session import MAIN, MAIN1, SUB
from ...module_utils._model.validation import ValidationErrors, integer, optional_string
from .containers import environment, mapping, resources

ROLE_OPTIONS = ("replicas", "image", "resources", "env")

_ROLE = re.compile(r"[a-z]([a-z0-9]{0,30}[a-z])?")


@dataclasses.dataclass(frozen=True)
class Role:
    """Containers that are alike, complete: ``resources`` are of one container, ``env`` has the session's merged in."""

    name: str
    replicas: int
    image: str
    resources: dict[str, int]
    env: dict[str, str]

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Role:
        """Return the role that :func:`dataclasses.asdict` of one gave."""
        return cls(**data)


def default_roles(size: int, image: str, slots: Mapping[str, int], env: Mapping[str, str]) -> tuple[Role, ...]:
    """Return the roles of a session of that many containers that are all alike: one ``main``, the others ``sub``."""
    counts = {MAIN: 1, SUB: size - 1}
    return tuple(Role(name, count, image, dict(slots), dict(env)) for name, count in counts.items() if count)


def parse_roles(
    problems: ValidationErrors, value: Any, image: str, slots: Mapping[str, Any], env: Mapping[str, str], most: int
) -> tuple[Role, ...]:
    """Return the roles that ``session_roles`` names, ``main`` first, the others as they were given.

    What a role leaves out comes from the session: its ``image``, each of its ``slots``, each variable of its ``env``.
    """
    entries = mapping(problems, "session_roles", value)
    roles = [_role(problems, name, entries[name], image, slots, env, most) for name in _main_first(entries)]
    if entries and MAIN not in entries:
        problems.add(f"session_roles has no {MAIN!r}: every session has one container of that role")
    if any(role.name == MAIN and role.replicas != 1 for role in roles):
        problems.add(f"session_roles.{MAIN}.replicas must be 1: users reach the one container {MAIN}1")
    total = sum(role.replicas for role in roles)
    if total > most:
        problems.add(f"session_roles: {total} containers are asked, a session has at most {most}")
    return tuple(roles)


def _main_first(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: name != MAIN)


def _role(
    problems: ValidationErrors,
    name: str,
    value: Any,
    image: str,
    slots: Mapping[str, Any],
    env: Mapping[str, str],
    most: int,
) -> Role:
    where = f"session_roles.{name}"
    if not _ROLE.fullmatch(name):
        problems.add(f"{where}: the name of a role has 1 to 32 of a-z and 0-9, a letter first and last")
    shape = mapping(problems, where, {} if value is None else value)
    if "apps" in shape:
        problems.add(f"{where}.apps: users reach {MAIN1} alone, and its apps are in session_apps")
    for key in sorted(set(shape) - {*ROLE_OPTIONS, "apps"}):
        problems.add(f"{where}.{key} is not known; allowed are {', '.join(ROLE_OPTIONS)}")
    own_slots = mapping(problems, f"{where}.resources", shape.get("resources") or {})
    return Role(
        name=name,
        replicas=integer(problems, f"{where}.replicas", shape.get("replicas", 1), 1, most),
        image=optional_string(problems, f"{where}.image", shape.get("image")) or image,
        resources=resources(problems, f"{where}.resources", {**slots, **own_slots}),
        env={**env, **environment(problems, f"{where}.env", shape.get("env") or {})},
    )
