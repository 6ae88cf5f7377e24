# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lets containers begin, once the agent has compared what the engine made with what was asked for.

The entrypoint waits at its gate before anything of the image or the user runs. So neither a link in an image, nor a
folder that was replaced meanwhile, nor names in the image's files that read as numbers, give a container another mount,
user, group or capability. What differs is stopped; then none of a session that starts begins, and the others of one
that was there before do.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .._docker import containers
from .._docker.container import BOUNDING, KIT
from .._docker.sdk import docker
from .._host.local_session import LocalSession
from .._host.mount_table import read_mounts
from .._host.path_look import Folder
from .._host.processes import boot_id, process_start_time, runs
from .._host.store import Store
from .._model.errors import ClusterError
from .._model.files import write_atomically
from .._model.mounts import RESERVED, is_within
from .mount_sources import check_after_start, check_before_start
from .ownership import own_containers
from .session_folder import ADMITTED, GATE, make_gate

GATE_SECONDS = 60
"""How long the entrypoint of a container that was just started may take to reach its gate."""

POLL_SECONDS = 0.005

# Bits of the masks in /proc/PID/status.
_CAPABILITIES = {"NET_RAW": 13, "SYS_NICE": 23}


class NotAsAskedError(ClusterError):
    """The engine has made a container in another way than it was asked to. The message is one sentence."""


class NotBegunError(ClusterError):
    """The entrypoint of a container has not reached its gate in time. The message is one sentence."""


class _Waiting(NamedTuple):
    """A container whose entrypoint waits: its first process, and the agent's end of its gate."""

    hostname: str
    inspected: Mapping[str, Any]
    process: str
    gate: int


def admit(
    client: docker.APIClient,
    store: Store,
    session: LocalSession,
    folders: Mapping[str, Folder] | None = None,
    started: Collection[str] = (),
) -> list[str]:
    """Let the containers of a session begin that wait for it, and return their hostnames.

    ``started`` are those of containers that were just started, which are waited for; ``folders`` the folders that were
    judged before, as :func:`check_before_start` returns them. Raises :class:`NotAsAskedError`, :class:`NotBegunError`
    and :class:`MountRefusedError`.
    """
    folder = functools.partial(store.kernel_folder, session.plan.id)
    with contextlib.ExitStack() as stack:
        waiting = []
        for each in _find_waiting(client, store, session, started):
            stack.callback(os.close, each.gate)
            waiting.append(each)
        if not waiting:
            return []
        judged = check_before_start(client, store, session) if folders is None else folders
        check_after_start(client, store, session, judged, [each.hostname for each in waiting])
        problems: dict[str, str] = {}
        commands = store.started_commands(session)
        for each in waiting:
            if each.hostname in commands:
                problem = "was started again, but its command runs once"
            else:
                problem = find_problem(store, session, each.inspected)
            if problem:
                containers.kill(client, each.inspected["Id"])
                problems[each.hostname] = problem
        # A session starts whole; one that was there before goes on without those that are stopped.
        begins = [each for each in waiting if each.hostname not in problems and (session.committed or not problems)]
        for each in begins:
            # It may have ended.
            with contextlib.suppress(BrokenPipeError):
                os.write(each.gate, b"begin\n")
            make_gate(folder(each.hostname))
            write_atomically(folder(each.hostname) / ADMITTED, each.process, durable=False)
        if problems:
            told = "; ".join(f"{hostname} on {session.agent} {problem}" for hostname, problem in problems.items())
            raise NotAsAskedError(f"{told}, so the container was stopped")
        return [each.hostname for each in begins]


def _find_waiting(
    client: docker.APIClient, store: Store, session: LocalSession, started: Collection[str]
) -> Iterator[_Waiting]:
    hostnames = {kernel.hostname for kernel in session.kernels}
    until = time.monotonic() + GATE_SECONDS
    for hostname, container in own_containers(client, store, session).items():
        if container["State"] != "running" or hostname not in hostnames:
            continue
        inspected = containers.inspect(client, container["Id"])
        folder, pid = store.kernel_folder(session.plan.id, hostname), int(inspected["State"]["Pid"])
        process = _name_process(pid)
        # A process of its user may have opened the gate, too.
        if not process or _read(folder / ADMITTED) == process:
            continue
        gate = _open_gate(folder / GATE, pid, until if hostname in started else 0.0)
        if gate is not None:
            yield _Waiting(hostname, inspected, process, gate)
        elif hostname in started and runs(pid):
            raise NotBegunError(
                f"{hostname} on {session.agent} has not begun within {GATE_SECONDS} seconds: look at the load and the"
                " disks of this agent"
            )


def _name_process(pid: int) -> str:
    """Return what no other process has of a first process, also after a restart; empty if it has ended."""
    try:
        return f"{boot_id()} {pid} {process_start_time(pid)}"
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


def _open_gate(path: Path, pid: int, until: float) -> int | None:
    """Return the writing end of a gate; ``None`` if nobody waits there until then, by the monotonic clock."""
    while True:
        try:
            return os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO or time.monotonic() >= until or not runs(pid):
                return None
        time.sleep(POLL_SECONDS)


def find_problem(store: Store, session: LocalSession, inspected: Mapping[str, Any]) -> str:
    """Return how a running container differs from what the engine was asked for, as a phrase; empty if it does not."""
    pid = int(inspected["State"]["Pid"])
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""  # It has ended.
    plan, host_config = session.plan, inspected["HostConfig"]
    groups = {int(group) for group in host_config.get("GroupAdd") or ()}
    left = sorted(groups - {*plan.group_numbers})
    if left:
        # Its user may have left a group since it was created.
        return f"has the group {', '.join(map(str, left))}, which its plan has no more: repair_session replaces it"
    problem = find_identity_problem(status, plan.uid, plan.gid, groups, no_new_privileges=plan.no_new_privileges)
    return problem or _find_mount_problem(store, pid, host_config.get("Mounts") or ())


def find_identity_problem(status: str, uid: int, gid: int, groups: Collection[int], *, no_new_privileges: bool) -> str:
    """Return what a first process is or may do beyond user work, by its ``/proc/PID/status``; empty for nothing."""
    fields = {name: value.split() for name, _colon, value in (line.partition(":") for line in status.splitlines())}
    if fields["Uid"] != [str(uid)] * 4 or fields["Gid"] != [str(gid)] * 4:
        return f"runs as {fields['Uid'][1]}:{fields['Gid'][1]} instead of {uid}:{gid}: upgrade the engine of this agent"
    others = sorted({*map(int, fields["Groups"])} - {gid, *groups})
    if others:
        return (
            f"has the group {', '.join(map(str, others))}, which it was not given: remove names that read as numbers"
            " from /etc/group of the image"
        )
    masks = {name: int(fields[name][0], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb") if name in fields}
    held = [name for name, mask in masks.items() if mask]
    if held:
        return f"has capabilities ({', '.join(held)}): upgrade the engine of this agent"
    allowed = sum(1 << _CAPABILITIES[name] for name in BOUNDING)
    if no_new_privileges and (int(fields["CapBnd"][0], 16) & ~allowed or fields["NoNewPrivs"] != ["1"]):
        return "could get capabilities, although session_no_new_privileges is true: upgrade the engine of this agent"
    return ""


def _find_mount_problem(store: Store, pid: int, mounts: Collection[Mapping[str, Any]]) -> str:
    """Return where something else is mounted than the agent's own files and folders; empty if it is these.

    The folders of users, which may not answer, are not looked at.
    """
    for mount in mounts:
        is_own = any(is_within(mount["Source"], str(root)) for root in (store.root, store.homes.root))
        if is_own and not _is_same(f"/proc/{pid}/root{mount['Target']}", mount["Source"]):
            target = mount["Target"]
            return f"has something else at {target} than the session's own: use an image that has no link on that path"
    targets = {mount["Target"] for mount in mounts}
    paths = {entry.path for entry in read_mounts(Path(f"/proc/{pid}/mountinfo"))} - targets
    foreign = sorted(path for path in paths if any(is_within(path, folder) for folder in (KIT, *RESERVED)))
    return f"has a mount of its image at {foreign[0]}: use an image without that VOLUME" if foreign else ""


def _is_same(inside: str, source: str) -> bool:
    try:
        there, here = os.stat(inside, follow_symlinks=False), os.stat(source)
    except OSError:
        return False
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)
