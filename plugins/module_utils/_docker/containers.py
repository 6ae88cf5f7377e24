# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Manage the containers of a session on one agent: list them, compute the changes and apply those in parallel."""

from __future__ import annotations

import dataclasses
import json
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from .._host.container_ids import ContainerIds
from .._model.change import Change
from .._model.errors import ClusterError
from . import labels
from .container import Container, create_container
from .sdk import docker

# The number of parallel requests for containers, of all sessions; more would only queue in the engine.
PARALLEL = 8
# By the engines before a version: each has a library of its own (tags.cncf.io/container-device-interface) built in.
_CDI = (((26, 1), (0, 6)), ((27, 4), (0, 7)), ((28, 1), (0, 8)), ((29, 2), (1, 0)))
_REQUESTS = threading.BoundedSemaphore(PARALLEL)


class ContainerStep(NamedTuple):
    """The action for one container: create it, replacing the ``existing`` one, or only start that."""

    desired: Container
    change: Change
    existing: str | None
    create: bool

    def with_sources(self, sources: dict[str, str]) -> ContainerStep:
        """Return this step with the real paths of mounted folders."""
        return self._replace(desired=dataclasses.replace(self.desired, sources=sources))


def find_labelled(client: docker.APIClient, session_id: str | None = None) -> list[dict[str, Any]]:
    """Return the containers with the labels of one session, or of any, as listed by the engine, by name.

    Labels do not tell whose they are: only ``_session/ownership.py``, which decides that, calls this.
    """
    return sorted(client.containers(all=True, filters=labels.label_filter(session_id)), key=listed_name)


def listed_name(container: Mapping[str, Any]) -> str:
    """Return the name of a container that the engine lists; its id if it has none, as after a failed removal."""
    return str((container["Names"] or [container["Id"]])[0]).lstrip("/")


def listed_change(container: Mapping[str, Any], state: str | None) -> Change:
    """Return the change of a container that the engine lists to another state; ``None`` is its removal."""
    return Change(f"container {listed_name(container)}", container["State"], state)


def log_driver(info: Mapping[str, Any]) -> str:
    """Return the engine's default log driver, from its system information."""
    return str(info["LoggingDriver"])


def cdi_folders(info: Mapping[str, Any]) -> list[str]:
    """Return the engine's CDI specification directories, from its system information; empty without CDI."""
    return list(info.get("CDISpecDirs") or ())


def newest_cdi(info: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the newest version of a CDI specification that the engine reads; empty without a known limit."""
    engine = tuple(map(int, re.findall(r"\d+", str(info.get("ServerVersion") or ""))[:2]))
    return next((reads for before, reads in _CDI if engine and engine < before), ())


def has_systemd_rules(info: Mapping[str, Any]) -> bool:
    """Return whether systemd applies the device rules of the engine's containers, from its system information."""
    return bool(info.get("CgroupDriver") == "systemd")


def has_selinux(info: Mapping[str, Any]) -> bool:
    """Return whether the engine gives containers labels of SELinux (``selinux-enabled``), from its information."""
    return any(str(option).startswith("name=selinux") for option in info.get("SecurityOptions") or ())


def inspect(client: docker.APIClient, container: str) -> dict[str, Any]:
    """Return what the engine knows about a container, as its API has it."""
    return dict(client.inspect_container(container))


def pid_of(client: docker.APIClient, container: str) -> int:
    """Return the PID, on the agent, of a container's first process; 0 if it is not running."""
    return int(client.inspect_container(container)["State"]["Pid"])


def exit_code_of(client: docker.APIClient, container: str) -> int | None:
    """Return a stopped container's exit code; ``None`` if it was never started or no longer exists."""
    try:
        state = client.inspect_container(container)["State"]
    except docker.errors.NotFound:
        return None
    return None if state["FinishedAt"].startswith("0001-") else int(state["ExitCode"])


def last_start(client: docker.APIClient, container: str) -> str:
    """Return what no other start of a container has: its id, and when it was started last, as the engine says it."""
    return f"{container} {client.inspect_container(container)['State']['StartedAt']}"


def plan_containers(
    existing: Mapping[str, dict[str, Any]], desired: Iterable[Container], lost_parts: Mapping[str, str] | None = None
) -> list[ContainerStep]:
    """Return the steps that lead from a session's existing containers, by hostname, to the desired ones, all running.

    ``lost_parts`` maps hostnames of containers to what they lack, such as an interface that they have lost: these are
    recreated. So are stopped containers with InfiniBand device nodes that no longer exist, or with groups that the user
    has no more or has joined since.
    """
    parts = lost_parts or {}
    steps = []
    for container in desired:
        subject, after = f"container {container.name}", f"running, {container.description}"
        current = existing.get(container.hostname)
        if current is None:
            steps.append(ContainerStep(container, Change(subject, None, after), None, True))
        elif current["Labels"].get(labels.DIGEST) != container.digest():
            steps.append(
                ContainerStep(
                    container, Change(subject, f"{current['State']}, with other properties", after), current["Id"], True
                )
            )
        elif lost := parts.get(container.hostname) or ", ".join(_lost_nodes(current, container)):
            before = f"{current['State']}, without {lost}"
            steps.append(ContainerStep(container, Change(subject, before, after), current["Id"], True))
        elif current["State"] != "running" and _has_other_groups(current, container):
            before = f"{current['State']}, with other groups of the user"
            steps.append(ContainerStep(container, Change(subject, before, after), current["Id"], True))
        elif current["State"] != "running":
            steps.append(ContainerStep(container, Change(subject, current["State"], after), current["Id"], False))
    return steps


def _lost_nodes(current: Mapping[str, Any], desired: Container) -> list[str]:
    """Return the missing InfiniBand device nodes that keep a stopped container from starting again."""
    if current["State"] == "running":
        return []
    nodes = json.loads(current["Labels"].get(labels.INFINIBAND, "[]"))
    return [node for node in nodes if node not in (desired.infiniband or ())]


def _has_other_groups(current: Mapping[str, Any], desired: Container) -> bool:
    return {*json.loads(current["Labels"].get(labels.GROUPS, "[]"))} != {*desired.groups}


def apply_containers(client: docker.APIClient, ids: ContainerIds, steps: Sequence[ContainerStep]) -> None:
    """Apply all steps in parallel. The first error is raised after all steps have finished.

    The id of what is created is recorded in ``ids`` before it starts, and that of what it replaces is forgotten before.
    """
    in_parallel(lambda step: _apply_step(client, ids, step), steps)


def start_stopped(
    client: docker.APIClient,
    stopped: Sequence[dict[str, Any]],
    prepare: Callable[[str], None],
    timeout: float = 0.0,
) -> list[Change]:
    """Start stopped containers in parallel and return the changes.

    ``prepare`` is called with the id of each before every try. A start that it or the engine rejects is retried for
    ``timeout`` seconds.
    """
    deadline = time.monotonic() + timeout
    in_parallel(lambda container: _start_until(client, container["Id"], prepare, deadline), stopped)
    return [listed_change(container, "running") for container in stopped]


def kill(client: docker.APIClient, container: str) -> None:
    """Kill a container's processes; it stays as it is, stopped."""
    try:
        client.kill(container)
    except docker.errors.APIError:
        # It has ended by itself.
        if pid_of(client, container):
            raise


def remove_containers(client: docker.APIClient, existing: Collection[dict[str, Any]]) -> list[Change]:
    """Remove containers, running or not, in parallel and return the changes."""
    in_parallel(lambda container: _remove(client, container["Id"]), [*existing])
    return [listed_change(container, None) for container in existing]


def _start_until(client: docker.APIClient, container: str, prepare: Callable[[str], None], deadline: float) -> None:
    while not _try_start(client, container, prepare, last=time.monotonic() >= deadline):
        time.sleep(0.5)


def _try_start(client: docker.APIClient, container: str, prepare: Callable[[str], None], *, last: bool) -> bool:
    """Start a container and return whether that succeeded; on the ``last`` try, errors are raised."""
    try:
        prepare(container)
        client.start(container)
    except (docker.errors.APIError, ClusterError):
        if last:
            raise
        return False
    return True


def _apply_step(client: docker.APIClient, ids: ContainerIds, step: ContainerStep) -> None:
    if step.existing and not step.create:
        client.start(step.existing)
        return
    if step.existing:
        _remove(client, step.existing)
    ids.forget(step.desired.hostname)
    container_id = create_container(client, step.desired)
    ids.record(step.desired.hostname, container_id)
    client.start(container_id)


def _remove(client: docker.APIClient, container: str) -> None:
    try:
        client.remove_container(container, force=True, v=True)
    except docker.errors.NotFound:
        return


def in_parallel(action: Callable[[Any], None], items: Sequence[Any]) -> None:
    """Take an action for each item; the first error is raised after all have finished."""

    # Most requests only read, and the import takes milliseconds.
    import concurrent.futures

    def take_turn(item: Any) -> None:
        with _REQUESTS:
            action(item)

    with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
        futures = [pool.submit(take_turn, item) for item in items]
    for future in futures:
        future.result()
