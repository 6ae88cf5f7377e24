# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a request leaves open, and how it is decided: once, for a new session."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...module_utils._model.devices import GPU_SLOTS
from ...module_utils._model.network import HOST_NETWORK
from ...module_utils._model.quantity import format_slots, parse_slot
from ...module_utils._model.session import App
from ...module_utils._model.validation import ValidationErrors
from .apps import parse_apps
from .containers import DEFAULT_RESOURCES
from .roles import Role
from .spec import SessionSpec
from .value_types import decode_value

VARIABLE = "__session_defaults"
"""The variable of a play, or of a manager, that says how it is decided."""

Open = Mapping[str, Sequence[str]]
"""The slots of ``DEFAULT_RESOURCES`` that a request does not name, by role; without roles by an empty name."""


@dataclasses.dataclass(frozen=True)
class Defaults:
    """How it is decided what a request leaves open.

    Unless they are ``fixed``, cores and memory follow the GPUs of a container: ``per_gpu`` of each, and what that does
    not name by the smallest share of the agents. ``apps`` are those of a session with a gateway and without a command.
    With ``refuses_never``, a new session that provably fits on no empty cluster does not wait.
    """

    fixed: bool = False
    per_gpu: Mapping[str, int] = dataclasses.field(default_factory=dict)
    apps: tuple[App, ...] = ()
    refuses_never: bool = False

    @classmethod
    def from_variable(cls, value: Mapping[str, Any] | None) -> Defaults:
        """Return what the variable says. Raises :class:`ValidationError`."""
        given, problems = value or {}, ValidationErrors()
        apps = parse_apps(problems, [{"command": None, **entry} for entry in given.get("apps") or ()])
        problems.raise_if_any()
        per_gpu = {slot: parse_slot(slot, amount) for slot, amount in (given.get("per_gpu") or {}).items()}
        return cls(bool(given.get("fixed")), per_gpu, apps, bool(given.get("refuses_never")))


def find_open(variables: Mapping[str, Any]) -> Open:
    """Return what the variables of a session leave open."""
    given, roles = (_mapping(variables.get(name)) for name in ("session_resources", "session_roles"))
    if not roles:
        return {"": _unnamed(given)}
    return {str(name): _unnamed(given, _mapping(_mapping(role).get("resources"))) for name, role in roles.items()}


def _unnamed(*named: Mapping[Any, Any]) -> list[str]:
    return [slot for slot in DEFAULT_RESOURCES if not any(slot in slots for slots in named)]


def _mapping(value: Any) -> Mapping[Any, Any]:
    """Return a value, or the JSON text in it, as a mapping; what is none has been refused, or will be."""
    decoded = decode_value({"type": "dict"}, value)
    return decoded if isinstance(decoded, Mapping) else {}


def gpus_of(slots: Mapping[str, int]) -> dict[str, int]:
    """Return the GPUs, and their MIG instances, among slots."""
    return {slot: amount for slot, amount in slots.items() if slot.startswith(GPU_SLOTS)}


def roles_that_follow(spec: SessionSpec, left_open: Open) -> list[Role]:
    """Return the roles with GPUs whose cores or memory are left open, as far as their resources differ."""
    found = {
        tuple(role.resources.items()): role
        for role in spec.effective_roles
        if gpus_of(role.resources) and left_open.get(role.name if spec.roles else "")
    }
    return list(found.values())


def complete_resources(spec: SessionSpec, left_open: Open, amounts: Callable[[Role], Mapping[str, int]]) -> SessionSpec:
    """Return a request whose open slots are what ``amounts`` says for their role; what it does not say stays."""

    def fill(role: Role) -> dict[str, int]:
        slots = left_open.get(role.name if spec.roles else "", ())
        return {**role.resources, **{slot: amount for slot, amount in amounts(role).items() if slot in slots}}

    if spec.roles:
        return dataclasses.replace(
            spec, roles=tuple(dataclasses.replace(role, resources=fill(role)) for role in spec.roles)
        )
    return dataclasses.replace(spec, resources=fill(spec.effective_roles[0]))


def add_apps(spec: SessionSpec, defaults: Defaults, before: SessionSpec | None) -> SessionSpec:
    """Return a request with the apps that its session gets, or has: none with a command, or on the host's network."""
    if spec.command or spec.network_driver == HOST_NETWORK:
        return spec
    has = {app.name for app in before.apps} if before else None
    names, ports = {app.name for app in spec.apps}, {app.port for app in spec.apps}
    added = [
        app
        for app in defaults.apps
        if app.name not in names and app.port not in ports and (has is None or app.name in has)
    ]
    return dataclasses.replace(spec, apps=(*spec.apps, *added)) if added else spec


def describe_followed(spec: SessionSpec, left_open: Open, defaults: Defaults) -> list[str]:
    """Return sentences about the amounts of a completed request that follow its GPUs."""
    followed = roles_that_follow(spec, left_open)
    if not followed:
        return []
    sentences = []
    for role in followed:
        amounts = {slot: role.resources[slot] for slot in left_open[role.name if spec.roles else ""]}
        share = "the smallest share per GPU of the agents that could hold it"
        if defaults.per_gpu.keys() >= amounts.keys():
            share = "the policy's share per GPU"
        elif amounts.items() <= DEFAULT_RESOURCES.items():
            share = "the defaults, because no agent is known that could hold it"
        gpus, named = format_slots(gpus_of(role.resources)), " and ".join(amounts)
        sentences.append(f"Each container with {gpus} gets {format_slots(amounts)}: {share}. Name {named} for others.")
    return sentences


def warn_of_fixed(spec: SessionSpec, left_open: Open) -> list[str]:
    """Return a warning of the fixed amounts of containers with GPUs, which starve there."""
    return [
        f"{format_slots({slot: role.resources[slot] for slot in left_open[role.name if spec.roles else '']})} are the"
        f" defaults, whatever GPUs a container has, here {sum(gpus_of(role.resources).values())}: name them in"
        " session_resources."
        for role in roles_that_follow(spec, left_open)
    ]
