# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Makes on an agent what its containers need besides files, before the engine starts them.

A container has no root that could make it inside. What its user can change is checked before each start.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from .._docker import containers
from .._docker.images import Image
from .._docker.sdk import docker
from .._host.local_session import LocalSession
from .._host.ssh_keys import PRIVATE_KEYS
from .._host.store import Store
from .._model.accounts import HOME
from .._model.errors import ClusterError
from .._model.mounts import is_within
from .image_look import copy_of_home, judge_container, look_at_image
from .session_folder import NODES, make_folder, make_gate, make_nodes


class KeyMissingError(ClusterError):
    """A private key of a container is not on its agent. The message is one sentence."""


def make_folders(
    client: docker.APIClient,
    store: Store,
    session: LocalSession,
    images: Mapping[str, Image],
) -> None:
    """Make the folders of a session's containers here that are missing, given its images by name.

    Raises :class:`HomeTooLargeError`.
    """
    plan = session.plan
    for kernel in session.kernels:
        make_folder(store.kernel_folder(plan.id, kernel.hostname), plan.gid)
        store.homes.make(plan.id, kernel.hostname, plan.uid, plan.gid)
    missing = {kernel.hostname for kernel in session.kernels if not store.homes.exists(plan.id, kernel.hostname)}
    for hostname in make_new_homes(client, store, session, images, missing):
        store.homes.renew(plan.id, hostname)


def make_new_homes(
    client: docker.APIClient,
    store: Store,
    session: LocalSession,
    images: Mapping[str, Image],
    hostnames: Collection[str],
) -> list[str]:
    """Make new homes for containers, beside those that they have, and return the hostnames that have one.

    What an image has in the home of its user is copied, where that user may not write there; where he may, it is his
    home. Raises :class:`HomeTooLargeError`.
    """
    plan, made = session.plan, []
    for kernel in session.kernels:
        look = images[kernel.image].look
        if kernel.hostname not in hostnames or look.keeps_home(plan.uid, plan.gid, plan.group_numbers):
            continue
        if look.has_home:
            with copy_of_home(client, store, images[kernel.image], kernel.image, look) as stream:
                store.homes.copy_new(plan.id, kernel.hostname, stream, plan.uid, plan.gid, image=kernel.image)
        else:
            store.homes.make_new(plan.id, kernel.hostname, plan.uid, plan.gid)
        made.append(kernel.hostname)
    return made


def require_keys(session: LocalSession, hostname: str, folder: Path) -> None:
    """Raise :class:`KeyMissingError` if a private key in a container's folder is gone: its peers know no other."""
    missing = [name for name in PRIVATE_KEYS if not (folder / "ssh" / name).exists()]
    if missing:
        raise KeyMissingError(
            f"the SSH key {missing[0]} of {hostname} is missing on {session.agent}: end this session, and create it"
            " again"
        )


def prepare_start(
    store: Store,
    session: LocalSession,
    hostname: str,
    nodes: Mapping[str, str],
    sources: Collection[str],
    leads: Mapping[str, str],
) -> None:
    """Make what a container needs that is about to start, given the ``sources`` of its mounts.

    ``nodes`` are its device nodes by the paths that it has them at, ``leads`` the paths that the engine gets for those
    that lead through links of the image.
    """
    plan = session.plan
    folder = store.kernel_folder(plan.id, hostname)
    make_folder(folder, plan.gid)
    require_keys(session, hostname, folder)
    make_gate(folder)
    make_nodes(nodes, plan.uid)
    # The home of an image has these folders, or the session is refused.
    if str(store.homes.home(plan.id, hostname)) not in sources:
        return
    home, places = leads.get(HOME, HOME), [leads.get(mount.target, mount.target) for mount in plan.mounts]
    inside = [HOME + place[len(home) :] for place in places if is_within(place, home)]
    store.homes.make_mount_parents(plan.id, hostname, inside, plan.uid, plan.gid)


def prepare_restart(
    client: docker.APIClient, store: Store, session: LocalSession, hostname: str, container: str
) -> None:
    """Make what a stopped container, given its id, needs to start, and judge its files as those of an image.

    Its id is recorded, unless it is: a run may have been killed before.

    Where its image lets everybody write, its user may have put links. Raises :class:`ImageRefusedError`.
    """
    ids = store.container_ids(session.plan.id)
    if ids.read().get(hostname) != container:
        ids.record(hostname, container)
    inspected = containers.inspect(client, container)
    name = next(kernel.image for kernel in session.kernels if kernel.hostname == hostname)
    look = look_at_image(client, store, Image("", {}, id=inspected["Image"]), name, session.plan.mounts)
    judge_container(client, container, name, look, session.plan.mounts)
    own = str(store.kernel_folder(session.plan.id, hostname) / NODES)
    devices = inspected["HostConfig"].get("Devices") or ()
    nodes = {each["PathInContainer"]: each["PathOnHost"] for each in devices if is_within(each["PathOnHost"], own)}
    sources = [mount["Source"] for mount in inspected["HostConfig"].get("Mounts") or ()]
    prepare_start(store, session, hostname, nodes, sources, look.leads)
