# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a user may ask of a session: names, types and limits, checked as a whole before any host is touched."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import ipaddress
import posixpath
from collections.abc import Mapping
from typing import Any

from ansible_collections.backendai.cluster.plugins.module_utils._core.parsing import (
    Problems,
    choice,
    entries,
    environment,
    mapping,
    name_of,
    resources,
    text,
    texts,
    whole_number,
)

MAX_CLUSTER_SIZE = 1024
CLUSTER_MODES = ("single-node", "multi-node")
AGENT_SELECTIONS = ("concentrated", "dispersed", "roundrobin")
HOME = "/home/work"
READ_ONLY = ("/opt/backendai", "/run/backendai")
"""What every container has from the agent, read-only: nothing can be mounted inside."""

SPEC_OPTIONS = (
    "name",
    "image",
    "cluster_mode",
    "cluster_size",
    "resources",
    "roles",
    "env",
    "mounts",
    "resource_group",
    "agent_selection",
    "designated_agents",
    "network_driver",
    "apps",
    "authorized_keys",
    "command",
    "priority",
)
"""What describes a session; each is the variable of that name after ``session_``."""

RUN_OPTIONS = (
    "id",
    "record_path",
    "list_path",
    "force",
    "claim_ttl",
    "network_pool",
    "vni_pool",
    "vxlan_port",
    "hosts_template",
    "ssh_config_template",
    "environment_template",
)
"""What describes one run of a playbook, not the session."""


class SpecError(ValueError):
    """The request cannot be met as it is written; the text holds one sentence for each problem."""


@dataclasses.dataclass(frozen=True)
class Mount:
    """A folder of the agent that every container sees at ``target``."""

    source: str
    target: str
    read_only: bool = False


@dataclasses.dataclass(frozen=True)
class SessionSpec:
    """A checked request. ``resources`` are of one container: bytes for memory, counts for the rest."""

    name: str
    image: str
    cluster_mode: str
    cluster_size: int
    resources: dict[str, int]
    env: dict[str, str]
    mounts: tuple[Mount, ...]
    resource_group: str
    agent_selection: str
    designated_agents: tuple[str, ...]
    network_driver: str
    authorized_keys: tuple[str, ...]
    priority: int


@dataclasses.dataclass(frozen=True)
class Pools:
    """Where networks of sessions come from: addresses, VXLAN network identifiers, the UDP port of the tunnels."""

    network: str
    first_vni: int
    last_vni: int
    vxlan_port: int


def _refuse_run_options(variables: Mapping[str, Any], problems: Problems) -> None:
    """Note what is wrong with the options of the run, which are taken by every playbook."""
    if variables.get("session_claim_ttl") is not None:
        whole_number(problems, "session_claim_ttl", variables["session_claim_ttl"], 1, 86400)
    if str(variables.get("session_force", False)).lower() not in ("false", "no", "0", ""):
        problems.add("session_force: ending a session by halves is not offered by this version; leave it false")


def refuse_unknown(variables: Mapping[str, Any], problems: Problems) -> None:
    """Note every ``session_*`` variable that is no option, with the nearest option as a hint."""
    known = [f"session_{option}" for option in SPEC_OPTIONS + RUN_OPTIONS]
    for variable in sorted(set(variables) - set(known)):
        if variable.startswith("session_"):
            near = difflib.get_close_matches(variable[len("session_") :], SPEC_OPTIONS + RUN_OPTIONS, 1)
            hint = f"did you mean session_{near[0]}?" if near else f"allowed are {', '.join(known)}"
            problems.add(f"{variable} is not an option of a session; {hint}")


def parse_spec(variables: Mapping[str, Any]) -> SessionSpec:
    """Return the request that Ansible variables hold; every option is present, ``defaults`` having filled it in.

    Strings, as ``-e name=value`` gives them, are coerced to the option's type. Raises :class:`SpecError` with one
    sentence for each problem, naming the option, the value and what is allowed.
    """
    problems = Problems()
    refuse_unknown(variables, problems)
    _refuse_run_options(variables, problems)
    values = {option: variables.get(f"session_{option}") for option in SPEC_OPTIONS}
    mode = choice(problems, "session_cluster_mode", values["cluster_mode"], CLUSTER_MODES)
    spec = SessionSpec(
        name=name_of(problems, "session_name", values["name"]),
        image=text(problems, "session_image", values["image"]),
        cluster_mode=mode,
        cluster_size=whole_number(problems, "session_cluster_size", values["cluster_size"], 1, MAX_CLUSTER_SIZE),
        resources=resources(problems, "session_resources", values["resources"]),
        env=environment(problems, "session_env", values["env"]),
        mounts=_mounts(problems, values["mounts"]),
        resource_group=text(problems, "session_resource_group", values["resource_group"]),
        agent_selection=choice(problems, "session_agent_selection", values["agent_selection"], AGENT_SELECTIONS),
        designated_agents=texts(problems, "session_designated_agents", values["designated_agents"]),
        network_driver=choice(problems, "session_network_driver", values["network_driver"], ("vxlan", "swarm", "host")),
        authorized_keys=texts(problems, "session_authorized_keys", values["authorized_keys"], separator="\n"),
        priority=whole_number(problems, "session_priority", values["priority"], 0, 100),
    )
    _refuse_unoffered(problems, values, spec)
    if problems:
        raise SpecError(str(problems))
    return spec


def parse_pools(variables: Mapping[str, Any]) -> Pools:
    """Return the pools that networks of sessions come from; raises :class:`SpecError` like :func:`parse_spec`."""
    problems = Problems()
    network = text(problems, "session_network_pool", variables.get("session_network_pool"))
    try:
        if network and ipaddress.IPv4Network(network).prefixlen > 29:
            problems.refuse("session_network_pool", network, "must be a /29 or larger")
    except ValueError:
        problems.refuse("session_network_pool", network, "must be an IPv4 network such as 10.128.0.0/9")
    vnis = text(problems, "session_vni_pool", variables.get("session_vni_pool"))
    first, _dash, last = vnis.partition("-")
    valid = first.isdecimal() and last.isdecimal() and 0 < int(first) <= int(last) < 1 << 24
    if vnis and not valid:
        problems.refuse("session_vni_pool", vnis, "must be a range within 1-16777215, such as 4096-16777215")
    port = whole_number(problems, "session_vxlan_port", variables.get("session_vxlan_port"), 1, 65535)
    if problems:
        raise SpecError(str(problems))
    return Pools(network, int(first), int(last), port)


def check_run(variables: Mapping[str, Any], *, needs_session: bool) -> None:
    """Check the variables of a playbook that makes no session; raises :class:`SpecError` like :func:`parse_spec`."""
    problems = Problems()
    refuse_unknown(variables, problems)
    _refuse_run_options(variables, problems)
    if needs_session and not variables.get("session_name") and not variables.get("session_id"):
        problems.add("session_name or session_id is required")
    if problems:
        raise SpecError(str(problems))


def spec_from_dict(data: Mapping[str, Any]) -> SessionSpec:
    """Return the request that :func:`dataclasses.asdict` of one gave."""
    lists = {key: tuple(data[key]) for key in ("designated_agents", "authorized_keys")}
    return SessionSpec(**{**data, **lists, "mounts": tuple(Mount(**mount) for mount in data["mounts"])})


def comparable(spec: SessionSpec, salt: str) -> dict[str, Any]:
    """Return the request as plain data that can be stored and compared.

    The user's environment may hold secrets, so its values appear as digests salted with ``salt``.
    """
    data = dataclasses.asdict(spec)
    data["env"] = {key: hashlib.sha256(f"{salt}:{key}={value}".encode()).hexdigest() for key, value in spec.env.items()}
    data["mounts"] = [dataclasses.asdict(mount) for mount in spec.mounts]
    return {key: list(value) if isinstance(value, tuple) else value for key, value in data.items()}


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return a phrase for each option in which two results of :func:`comparable` differ; digests are not shown."""
    phrases = []
    for option in sorted(set(before) | set(after)):
        old, new = before.get(option), after.get(option)
        if old == new:
            continue
        if option == "env":
            old, new = old or {}, new or {}
            names = sorted(key for key in set(old) | set(new) if old.get(key) != new.get(key))
            phrases.append(f"session_env ({', '.join(names)})")
        else:
            phrases.append(f"session_{option} (is {old!r}, asked {new!r})")
    return phrases


def _mounts(problems: Problems, value: Any) -> tuple[Mount, ...]:
    mounts = []
    for where, entry in entries(problems, "session_mounts", value, ("source", "target", "read_only")):
        source, target = (_path(problems, f"{where}.{key}", entry.get(key)) for key in ("source", "target"))
        hidden = [path for path in (HOME, *READ_ONLY, "/etc/hosts") if _hides(target, path)]
        if target.startswith("/") and hidden:
            problems.refuse(f"{where}.target", target, f"would hide {hidden[0]}")
        if any(target.startswith(f"{path}/") for path in READ_ONLY):
            problems.refuse(f"{where}.target", target, f"lies in what the session mounts: {' and '.join(READ_ONLY)}")
        read_only = choice(
            problems, f"{where}.read_only", str(entry.get("read_only", False)).lower(), ("true", "false")
        )
        mounts.append(Mount(source, target, read_only == "true"))
    targets = [mount.target for mount in mounts if mount.target]
    for target in sorted({target for target in targets if targets.count(target) > 1}):
        problems.refuse("session_mounts", target, "is the target of more than one mount")
    return tuple(mounts)


def _path(problems: Problems, option: str, value: Any) -> str:
    """Return ``value`` as a path that means what it says: ``..`` could hide a folder, ``:`` would end it in a bind."""
    given = text(problems, option, value)
    path = given.rstrip("/") or given[:1]
    if path and (path != posixpath.normpath(path) or not path.startswith("/") or path.startswith("//") or ":" in path):
        problems.refuse(option, path, "must be an absolute path without //, . or .. in it, and without :")
    return path


def _hides(target: str, path: str) -> bool:
    """Return whether something mounted at ``target`` would cover ``path``."""
    return path == target or path.startswith(f"{target.rstrip('/')}/")


def _refuse_unoffered(problems: Problems, values: Mapping[str, Any], spec: SessionSpec) -> None:
    """Refuse what the contract names and this version cannot do: better than to take it and not do it."""
    if mapping(problems, "session_roles", values["roles"]):
        problems.add("session_roles: sessions of several roles are not offered by this version; leave it empty")
    if entries(problems, "session_apps", values["apps"], ("name", "port", "protocol", "command")):
        problems.add("session_apps: apps are not offered by this version; leave it empty")
    if values["command"]:
        problems.add("session_command: batch sessions are not offered by this version; leave it empty")
    if spec.network_driver in ("swarm", "host"):
        problems.refuse("session_network_driver", spec.network_driver, "is not offered by this version; use vxlan")
    if spec.resources.get("shmem", 0) > spec.resources.get("mem", 0):
        problems.add("session_resources.shmem is counted inside mem, so it must not be larger than mem")
