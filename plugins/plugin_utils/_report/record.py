# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Records of sessions, for programs and tables."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from ...module_utils._model.held_session import ContainerState, HeldSession
from ...module_utils._model.plain_data import from_plain
from ...module_utils._model.plan import SessionPlan
from ...module_utils._model.session import container_name
from .._placement.place import Unschedulable
from .._request.spec import SessionSpec

_MOUNT_FIELDS = ("target", "read_only")
_KERNEL_FIELDS = ("id", "role", "index", "rank", "hostname", "agent", "address", "container")


def session_record(
    plan: SessionPlan,
    status: str,
    containers: Mapping[str, ContainerState] | None = None,
    error: str | None = None,
    host_keys: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the record of a planned session; ``containers`` are the existing ones, by hostname.

    ``host_keys`` are the public host keys of containers, by hostname, as far as they are known.
    """
    unknown = ContainerState("unknown", None)
    states = {kernel.hostname: (containers or {}).get(kernel.hostname, unknown) for kernel in plan.kernels}
    return {
        "id": plan.id,
        "name": plan.name,
        "status": status,
        "cluster_mode": plan.cluster_mode,
        "cluster_size": len(plan.kernels),
        "requested_cluster_mode": plan.requested_cluster_mode,
        "resource_group": plan.resource_group,
        "network": _select_fields(plan.network, ("driver", "name", "subnet", "mtu", "vni")) if plan.network else None,
        "kernels": [
            {
                **_select_fields(kernel, _KERNEL_FIELDS),
                "status": states[kernel.hostname].status,
                "image_digest": states[kernel.hostname].image_digest,
            }
            for kernel in plan.kernels
        ],
        "apps": [_select_fields(app, ("name", "port", "protocol")) for app in plan.apps],
        "mounts": [_select_fields(mount, _MOUNT_FIELDS) for mount in plan.mounts],
        "pending": None,
        "error": error,
        **_NO_LIFE,
        "user": plan.user,
        "uid": plan.user_uid,
        "host_keys": dict(host_keys or {}),
        "recorded": True,
        "image": plan.kernels[0].image,
        "resources": _resources([(kernel.resources, 1) for kernel in plan.kernels]),
        "created_at": plan.created_at,
        "started_at": plan.created_at if status in _STARTED else None,
        "ends_at": plan.created_at + plan.max_lifetime if plan.max_lifetime and status in _STARTED else None,
    }


_STARTED = ("RUNNING", "DEGRADED", "TERMINATED")

_NO_LIFE: dict[str, Any] = dict.fromkeys(
    (
        "user",
        "uid",
        "image",
        "resources",
        "created_at",
        "started_at",
        "ended_at",
        "ends_at",
        "reason",
        "exit_code",
        "grace_exceeded",
        "queue_position",
    )
)
"""The fields about the owner and the life of a session, as far as they are known."""


def complete_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored record with all fields."""
    life = {name: record.get(name) for name in _NO_LIFE}
    kept = {"host_keys": record.get("host_keys") or {}, "mounts": record.get("mounts") or []}
    return {**record, **life, **kept, "recorded": True}


def _resources(groups: Iterable[tuple[Mapping[str, int], int]]) -> dict[str, dict[str, int]]:
    """Return the resources of main1 and of all containers, from those of containers and how many there are."""
    listed, total = list(groups), Counter[str]()
    for slots, count in listed:
        total.update({slot: amount * count for slot, amount in slots.items()})
    return {"container": dict(listed[0][0]), "total": dict(total)}


def _select_fields(item: object, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(item, name) for name in names}


def unplanned_record(
    spec: SessionSpec | None,
    name: str | None,
    status: str,
    session_id: str | None = None,
    *,
    no_room: Unschedulable | None = None,
    error: str | None = None,
) -> dict[str, Any]:
    """Return the record of a session without a plan: ``PENDING``, ``ERROR``, or ``TERMINATED`` if it was not found."""
    roles = spec.effective_roles if spec else ()
    return {
        "id": session_id,
        "name": name,
        "status": status,
        "cluster_mode": spec.cluster_mode if spec else None,
        "cluster_size": spec.cluster_size if spec else None,
        "requested_cluster_mode": spec.cluster_mode if spec else None,
        "resource_group": spec.resource_group if spec else None,
        "network": None,
        "kernels": [],
        "apps": [],
        "mounts": [_select_fields(mount, _MOUNT_FIELDS) for mount in (spec.mounts if spec else ())],
        "pending": describe_pending(no_room) if no_room else None,
        "error": error,
        **_NO_LIFE,
        "host_keys": {},
        "recorded": True,
        "image": roles[0].image if roles else None,
        "resources": _resources([(role.resources, role.replicas) for role in roles]) if roles else None,
    }


def stranger_record(session_id: str, parts: Mapping[str, HeldSession]) -> dict[str, Any]:
    """Return what agents say of a session that has no record here, for operators: it is nobody's."""
    first = next(iter(parts.values()))
    states = [(agent, name, state) for agent, part in parts.items() for name, state in part.containers.items()]
    running = all(part.containers for part in parts.values()) and all(
        state.status == "running" for _agent, _name, state in states
    )
    pending = [part for part in parts.values() if not part.committed]
    status = "RUNNING" if running else "DEGRADED"
    if pending:
        status = "ERROR" if any(part.expired for part in pending) else "CREATING"
    return {
        **unplanned_record(None, first.name, status, session_id),
        "kernels": [
            {
                **dict.fromkeys(_KERNEL_FIELDS),
                "hostname": name,
                "agent": agent,
                "container": container_name(first.name, name),
                "status": state.status,
                "image_digest": state.image_digest,
            }
            for agent, name, state in states
        ],
        "created_at": first.created_at,
        "recorded": False,
    }


def describe_pending(no_room: Unschedulable) -> dict[str, Any]:
    """Return the field ``pending`` of a record: why the session waits, and what may be expected, if that is known."""
    outlook = {"outlook": no_room.outlook} if no_room.outlook else {}
    return {"reason": no_room.reason, "shortfall": no_room.shortfall, **outlook}


def with_next_end(record: Mapping[str, Any], moment: float | None) -> dict[str, Any]:
    """Return the record of a session that waits with when the next one ends, if that is known."""
    if moment is None or not record["pending"]:
        return dict(record)
    return {**record, "pending": {**record["pending"], "next_end_at": moment}}


def ended_record(
    record: Mapping[str, Any], status: str, reason: str, exit_code: int | None, began: float | None, now: float
) -> dict[str, Any]:
    """Return the final record of a session: reason, start and end time, and exit code.

    Times are in seconds since the epoch; the start may be unknown.
    """
    ending = {"reason": reason, "exit_code": exit_code, "created_at": began, "ended_at": now, "ends_at": None}
    error = reason if status == "ERROR" else None
    return {**complete_record(record), "status": status, "pending": None, "error": error, **ending}


def with_command_end(record: Mapping[str, Any], exit_code: int, now: float) -> dict[str, Any]:
    """Return the final record of a running session whose command has ended with that exit code; ``now`` as above."""
    return ended_record(record, "TERMINATED", command_end(exit_code), exit_code, record.get("created_at"), now)


def command_end(exit_code: int | None) -> str:
    """Return why a session is over whose command has ended, as a phrase."""
    return f"the command ended with exit code {exit_code}"


@dataclasses.dataclass(frozen=True)
class _StoredPending:
    extensible: ClassVar[bool] = True

    reason: str


@dataclasses.dataclass(frozen=True)
class _StoredKernel:
    extensible: ClassVar[bool] = True

    hostname: str
    agent: str
    address: str | None


@dataclasses.dataclass(frozen=True)
class _StoredResources:
    container: dict[str, int]
    total: dict[str, int]


@dataclasses.dataclass(frozen=True)
class _StoredApp:
    extensible: ClassVar[bool] = True

    name: str
    port: int
    protocol: str


@dataclasses.dataclass(frozen=True)
class _StoredMount:
    extensible: ClassVar[bool] = True

    target: str
    read_only: bool


@dataclasses.dataclass(frozen=True)
class _StoredNetwork:
    extensible: ClassVar[bool] = True

    driver: str
    subnet: str | None


@dataclasses.dataclass(frozen=True)
class _StoredRecord:
    extensible: ClassVar[bool] = True

    id: str | None
    name: str | None
    status: str
    cluster_mode: str | None
    cluster_size: int | None
    kernels: tuple[_StoredKernel, ...]
    pending: _StoredPending | None
    error: str | None
    resource_group: str | None
    network: _StoredNetwork | None
    apps: tuple[_StoredApp, ...]
    reason: str | None = None
    exit_code: int | None = None
    created_at: float | None = None
    ended_at: float | None = None
    user: str | None = None
    image: str | None = None
    resources: _StoredResources | None = None
    started_at: float | None = None
    ends_at: float | None = None
    grace_exceeded: bool | None = None
    queue_position: int | None = None
    uid: int | None = None
    host_keys: dict[str, str] | None = None
    mounts: tuple[_StoredMount, ...] | None = None


def check_record(record: Mapping[str, Any]) -> None:
    """Raise :class:`DataError` unless a record that was stored has the fields that reports read; others are ignored."""
    from_plain(_StoredRecord, record, "the record")


def to_json(data: Any) -> str:
    """Return a record or a list of records as JSON text; in a list, each record is a line, which takes less time."""
    if isinstance(data, list):
        return "[\n" + ",\n".join(map(json.dumps, data)) + "\n]\n"
    return json.dumps(data, indent=2) + "\n"


def render_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of equal length as lines, each column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
