# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Validates ``session_roles``: groups of containers with their own image, resources and environment."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ...module_utils._model.images import NAME_RULE, is_image_name
from ...module_utils._model.session import MAIN, MAIN1, SUB
from ...module_utils._model.validation import ValidationErrors, integer, optional_string
from .containers import parse_environment, parse_mapping, parse_resources

ROLE_OPTIONS = ("replicas", "image", "resources", "env")

_ROLE = re.compile(r"[a-z]([a-z0-9]{0,30}[a-z])?")


@dataclasses.dataclass(frozen=True)
class Role:
    """Identical containers: ``resources`` are of one container, ``env`` includes that of the session."""

    name: str
    replicas: int
    image: str
    resources: dict[str, int]
    env: dict[str, str]


def build_default_roles(size: int, image: str, slots: Mapping[str, int], env: Mapping[str, str]) -> tuple[Role, ...]:
    """Return the roles of a session with ``size`` identical containers: one ``main``, the others ``sub``."""
    counts = {MAIN: 1, SUB: size - 1}
    return tuple(Role(name, count, image, dict(slots), dict(env)) for name, count in counts.items() if count)


def parse_roles(
    problems: ValidationErrors, value: Any, image: str, slots: Mapping[str, Any], env: Mapping[str, str], most: int
) -> tuple[Role, ...]:
    """Return the roles of ``session_roles``, ``main`` first, the others in their order.

    Defaults come from the session: its ``image``, each of its ``slots``, each variable of its ``env``.
    """
    entries = parse_mapping(problems, "session_roles", value)
    roles = [_parse_role(problems, name, entries[name], image, slots, env, most) for name in _main_first(entries)]
    if entries and MAIN not in entries:
        problems.add(f"session_roles has no {MAIN!r}: every session needs one container of that role")
    if any(role.name == MAIN and role.replicas != 1 for role in roles):
        problems.add(f"session_roles.{MAIN}.replicas must be 1: users reach the one container {MAIN}1")
    total = sum(role.replicas for role in roles)
    if total > most:
        problems.add(f"session_roles: {total} containers are requested, a session has at most {most}")
    return tuple(roles)


def _parse_image(problems: ValidationErrors, where: str, value: Any) -> str:
    image = optional_string(problems, where, value) or ""
    check_image_name(problems, where, image)
    return image


def check_image_name(problems: ValidationErrors, where: str, image: str) -> None:
    """Add a problem unless a text is the name of an image, or empty."""
    if image and not is_image_name(image):
        problems.add_invalid(where, image, NAME_RULE)


def _main_first(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: name != MAIN)


def _parse_role(
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
        problems.add(f"{where}: a role name has 1 to 32 characters a-z and 0-9, and begins and ends with a letter")
    shape = parse_mapping(problems, where, {} if value is None else value)
    if "apps" in shape:
        problems.add(f"{where}.apps: only {MAIN1} has apps; list them in session_apps")
    for key in sorted(set(shape) - {*ROLE_OPTIONS, "apps"}):
        problems.add(f"{where}.{key} is not known; allowed are {', '.join(ROLE_OPTIONS)}")
    own_slots = parse_mapping(problems, f"{where}.resources", shape.get("resources") or {})
    return Role(
        name=name,
        replicas=integer(problems, f"{where}.replicas", shape.get("replicas", 1), 1, most),
        image=_parse_image(problems, f"{where}.image", shape.get("image")) or image,
        resources=parse_resources(problems, f"{where}.resources", {**slots, **own_slots}),
        env={**env, **parse_environment(problems, f"{where}.env", shape.get("env") or {})},
    )
