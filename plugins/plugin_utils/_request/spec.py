# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Validates the request for a session, as a whole and before any host is changed."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ...module_utils._model.agent_labels import LABEL_RULE, is_label
from ...module_utils._model.devices import ANY_GPU, CUDA_PREFIX, GpuRequest
from ...module_utils._model.network import HOST_NETWORK
from ...module_utils._model.plain_data import from_plain, to_plain
from ...module_utils._model.session import ALL, MAIN, MAX_GRACE, MAX_ID, PATHS, STOP_GRACE, App, Mount
from ...module_utils._model.validation import (
    ValidationError,
    ValidationErrors,
    choice,
    parse_session_name,
    string,
)
from .apps import parse_apps
from .containers import (
    MAX_ENVIRONMENT,
    environment_bytes,
    parse_environment,
    parse_gpu,
    parse_resources,
    text_bytes,
)
from .mounts import parse_mounts
from .roles import Role, build_default_roles, check_image_name, parse_roles
from .value_types import check_number, decode_value

MAX_CLUSTER_SIZE = 1024
# Minimum and maximum of each number.
NUMBERS = {
    "cluster_size": (1, MAX_CLUSTER_SIZE),
    "uid": (1, MAX_ID),
    "gid": (1, MAX_ID),
    "priority": (0, 100),
    "pending_timeout": (0, 1 << 31),
    "stop_grace": (0, MAX_GRACE),
}
# The shortest time after which a session may end, as most of it must not be its start.
MIN_SECONDS, MAX_SECONDS = 60, 1 << 31
TIMES = ("max_lifetime", "idle_timeout")
# The allowed values of options, as in the argument specification.
CHOICES = {
    "cluster_mode": ("single-node", "multi-node"),
    "agent_selection": ("concentrated", "dispersed", "roundrobin"),
    "designated_agents_mode": ("strict", "preferred"),
    "network_driver": ("vxlan", HOST_NETWORK),
    "command_scope": (MAIN, ALL),
    "failure_policy": ("keep", "restart", "terminate"),
}
PROTOCOLS = ("http", "tcp")
# Texts that may contain secrets.
SCRIPTS = ("command", "stop_command", "bootstrap_script")
MAX_SCRIPT = 1 << 20
"""How many bytes a script may have: it is part of the plan, which each agent stores."""
TEXTS = ("resource_group", "architecture", "command", "stop_command", "bootstrap_script")
# The values of session_topology, and how the hard one begins.
PACK, SPREAD, WITHIN = "pack", "spread", "within"
LISTS = ("designated_agents", "authorized_keys", "agent_labels")


@dataclasses.dataclass(frozen=True)
class SessionSpec:
    """A validated request.

    ``resources`` are of one container: bytes for memory, counts for the rest. ``roles`` are the requested ones, empty
    if all containers are identical. ``pending_timeout``, ``max_lifetime`` and ``idle_timeout`` are in seconds, 0 for
    none. ``stop_grace`` is how many seconds the processes have to end, before they are killed. ``agent_labels`` are the
    labels that each agent must have, and ``gpu`` is what NVIDIA GPUs must be. ``topology`` is ``pack``, ``spread``,
    ``within`` and a level, or empty.
    """

    name: str
    image: str
    cluster_mode: str
    cluster_size: int
    resources: dict[str, int]
    roles: tuple[Role, ...]
    env: dict[str, str]
    mounts: tuple[Mount, ...]
    resource_group: str
    architecture: str
    agent_selection: str
    designated_agents: tuple[str, ...]
    designated_agents_mode: str
    network_driver: str
    authorized_keys: tuple[str, ...]
    command: str
    command_scope: str
    bootstrap_script: str
    apps: tuple[App, ...]
    uid: int
    gid: int
    infiniband: bool
    failure_policy: str
    priority: int
    pending_timeout: int
    stop_grace: int = STOP_GRACE
    stop_command: str = ""
    max_lifetime: int = 0
    idle_timeout: int = 0
    agent_labels: tuple[str, ...] = ()
    no_new_privileges: bool = True
    gpu: GpuRequest = ANY_GPU
    topology: str = ""

    @property
    def effective_roles(self) -> tuple[Role, ...]:
        """The roles of all containers in rank order, requested or derived from the size."""
        return self.roles or build_default_roles(self.cluster_size, self.image, self.resources, self.env)

    @property
    def images(self) -> list[str]:
        """The required images, in rank order."""
        return list(dict.fromkeys(role.image for role in self.effective_roles))


def parse_spec(problems: ValidationErrors, values: Mapping[str, Any]) -> SessionSpec:
    """Return the request from options converted to their types, by their names without ``session_``.

    Adds a sentence for each problem, with the option, the value and the allowed values; the request is valid only
    without problems. Options that are ``None`` have been rejected before.
    """
    image = (values["image"] or "").strip()
    check_image_name(problems, "session_image", image)
    slots = parse_resources(problems, "session_resources", values["resources"])
    env = parse_environment(problems, "session_env", values["env"])
    roles = parse_roles(problems, values["roles"], image, slots, env, MAX_CLUSTER_SIZE)
    if values["name"] is not None:
        parse_session_name(problems, "session_name", values["name"])
    for option, (least, most) in NUMBERS.items():
        check_number(problems, f"session_{option}", values[option], least, most)
    for option in TIMES:
        parse_time(problems, f"session_{option}", values[option])
    checked = {
        "image": image,
        "resources": slots,
        "env": env,
        "roles": roles,
        "cluster_size": _resolve_size(problems, values["cluster_size"], roles),
        "mounts": parse_mounts(problems, values["mounts"]),
        "apps": parse_apps(problems, values["apps"]),
        "gpu": parse_gpu(problems, values["gpu"]),
        "topology": _parse_topology(problems, values["topology"]),
    }
    lists = {option: tuple(line.strip() for line in values[option]) for option in LISTS}
    for label in lists["agent_labels"]:
        if not is_label(label):
            problems.add_invalid("session_agent_labels", label, LABEL_RULE)
    texts = {option: values[option].strip() for option in TEXTS}
    fields = {field.name: values[field.name] for field in dataclasses.fields(SessionSpec)}
    spec = SessionSpec(**{**fields, **lists, **texts, **checked})
    _check_consistency(problems, spec)
    _check_sizes(problems, spec)
    if spec.stop_grace > max(STOP_GRACE, values.get("claim_ttl", MAX_GRACE)):
        problems.add(
            f"session_stop_grace: {spec.stop_grace} is longer than session_claim_ttl, {values['claim_ttl']} seconds,"
            " within which a repair has to end and replace containers"
        )
    if values["wait"] and not spec.command:
        problems.add("session_wait requires session_command")
    return spec


def _parse_topology(problems: ValidationErrors, value: Any) -> str:
    """Return what a session asks of the topology as words; a mapping such as ``{within: leaf}`` has the same."""
    given = decode_value({"type": "dict"}, value)
    words = [str(part) for pair in given.items() for part in pair] if isinstance(given, Mapping) else str(given).split()
    level = words[1] if len(words) == 2 and words[0] == WITHIN else ""
    if words not in ([], [PACK], [SPREAD]) and not is_label(level):
        problems.add_invalid("session_topology", value, "must be pack, spread or within LEVEL, such as within leaf")
    return " ".join(words)


def parse_time(problems: ValidationErrors, option: str, value: Any) -> None:
    """Add a problem unless a value is a time in seconds after which a session may end, or 0 for none."""
    if value != 0:
        check_number(problems, option, value, MIN_SECONDS, MAX_SECONDS)


def _resolve_size(problems: ValidationErrors, requested: int, roles: Sequence[Role]) -> int:
    """Return the number of containers: the sum of the roles, or the requested size without roles."""
    total = sum(role.replicas for role in roles)
    if roles and requested not in (1, total):
        problems.add(f"session_cluster_size: {requested} contradicts session_roles with {total} containers; omit it")
    return total or requested


def spec_from_dict(data: Mapping[str, Any]) -> SessionSpec:
    """Return the request from its :func:`dataclasses.asdict` form. Raises :class:`DataError` for damaged data."""
    return from_plain(SessionSpec, data, "the request")


def check_spec(spec: SessionSpec) -> SessionSpec:
    """Return what :func:`parse_spec` makes of the options of a stored request.

    Raises :class:`ValidationError` for a request that could not be made.
    """
    problems = ValidationErrors()
    for option, choices in CHOICES.items():
        choice(problems, f"session_{option}", getattr(spec, option), choices)
    for index, app in enumerate(spec.apps):
        choice(problems, f"session_apps[{index}].protocol", app.protocol, PROTOCOLS)
        choice(problems, f"session_apps[{index}].path", app.path, PATHS)
    string(problems, "session_image", spec.image)
    values = to_plain(spec)
    # A role without a slot of the session has none of it.
    absent = dict.fromkeys(spec.resources, 0)
    roles = {role.pop("name"): {**role, "resources": {**absent, **role["resources"]}} for role in values["roles"]}
    again = parse_spec(problems, {**values, "roles": roles, "wait": False})
    problems.raise_if_any()
    return again


def changed_options(before: SessionSpec, after: SessionSpec) -> list[str]:
    """Return a phrase for each difference of two requests; what may hold secrets is named, and not shown."""
    phrases, (old_values, new_values) = [], map(to_plain, (before, after))
    for option in sorted(new_values):
        old, new = old_values[option], new_values[option]
        if old == new:
            continue
        if option == "env":
            names = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
            phrases.append(f"session_env ({', '.join(names)})")
        elif option in (*SCRIPTS, "apps"):
            phrases.append(f"session_{option}")
        elif option == "roles":
            roles = [{role["name"]: role for role in side} for side in (old, new)]
            names = sorted(name for name in {*roles[0], *roles[1]} if roles[0].get(name) != roles[1].get(name))
            phrases.append(f"session_roles ({', '.join(names) or 'their order'})")
        else:
            phrases.append(f"session_{option} (is {old!r}, requested {new!r})")
    return phrases


def check_designated_agents(spec: SessionSpec, agents: Collection[str]) -> None:
    """Raise :class:`ValidationError` for a designated agent that is not in ``agents``, those of the inventory."""
    for name in spec.designated_agents:
        if name not in agents:
            known = ", ".join(sorted(agents))
            raise ValidationError(
                f"session_designated_agents: {name!r} is not an agent of the inventory; known are {known}."
            )


def check_same_request(spec: SessionSpec, before: SessionSpec, status: str) -> None:
    """Raise :class:`ValidationError` if the existing session of that name has a different request, ``before``."""
    differs = changed_options(before, spec)
    if differs:
        raise ValidationError(
            f"session_name: {spec.name!r} is taken by a session ({status}) that differs in {', '.join(differs)};"
            " choose another name, or end that session first."
        )


def _check_consistency(problems: ValidationErrors, spec: SessionSpec) -> None:
    """Add problems of options that are valid separately but not together."""
    for role in spec.effective_roles:
        if role.resources.get("shmem", 0) > role.resources.get("mem", 0):
            where = f"session_roles.{role.name}.resources" if spec.roles else "session_resources"
            problems.add(f"{where}.shmem is part of mem and must not be larger than mem")
            break
    slots = {slot for role in spec.effective_roles for slot in role.resources}
    if spec.gpu != ANY_GPU and not any(slot.startswith(CUDA_PREFIX) for slot in slots):
        problems.add("session_gpu requires NVIDIA GPUs in session_resources, such as cuda.device: 1")
    if spec.command_scope == ALL and not spec.command:
        problems.add("session_command_scope: 'all' requires session_command")


def _check_sizes(problems: ValidationErrors, spec: SessionSpec) -> None:
    """Add problems of texts that are too long."""
    scripts = {f"session_{option}": str(getattr(spec, option)) for option in SCRIPTS}
    scripts |= {f"session_apps[{index}].command": app.command for index, app in enumerate(spec.apps)}
    for option, script in scripts.items():
        if (size := text_bytes(script)) > MAX_SCRIPT:
            problems.add(
                f"{option} has {size:,} bytes, and a script has at most {MAX_SCRIPT:,}: put it into a file of the image"
                " or of a folder that is mounted, and run that"
            )
    for role in spec.effective_roles:
        if (size := environment_bytes(role.env)) > MAX_ENVIRONMENT:
            where = f"session_env with session_roles.{role.name}.env" if spec.roles else "session_env"
            problems.add(
                f"{where} has {size:,} bytes in all, and a container gets at most {MAX_ENVIRONMENT:,}: put values into"
                " files"
            )
            break
