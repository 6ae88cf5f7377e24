# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Judges the images of sessions as requests are judged, without starting anything of them.

An agent looks at an image once, through a container that never starts, and records what it saw.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .._docker import containers
from .._docker.image_files import NAME_PREFIX, ImageFiles, ImageLookError, image_files, remove_look
from .._docker.image_store import layer_of_snapshot
from .._docker.images import Image
from .._docker.sdk import docker
from .._host.look_records import Accounts, LookRecords, Seen
from .._host.store import Store
from .._model.change import Change
from .._model.errors import ClusterError, as_phrase
from .._model.image_look import HomeFolder, ImageLook
from .._model.image_paths import (
    DEVICE,
    FIFO,
    FILE,
    FOLDER,
    LINK,
    SOCKET,
    Entry,
    Leads,
    Look,
    Place,
    follow,
    judge_image,
    judge_leads,
    own_paths,
)
from .._model.mounts import HOME
from .._model.plan import SessionPlan
from .._model.session import Mount

FILE_BYTES = 16 << 20
"""How large the files of an image may be that are read: 200,000 users are 10 MB, and each start parses them."""

MAX_ENTRIES = 10_000
"""How many paths of an image are kept."""

LOOK_SECONDS = 30
"""How long somebody looks at the paths of an image at most, whatever links and volumes it has."""

LOOK_ENTRIES = 2_000
"""How many paths of an image are looked at at once: each is a question to the engine."""

_KINDS = {
    stat.S_IFREG: FILE,
    stat.S_IFDIR: FOLDER,
    stat.S_IFLNK: LINK,
    stat.S_IFIFO: FIFO,
    stat.S_IFSOCK: SOCKET,
}


class ImageRefusedError(ClusterError):
    """No session may use an image, or it cannot be judged. The message is one sentence."""

    @classmethod
    def of(cls, name: str, problem: object) -> ImageRefusedError:
        """Return the error for the image of that name, given a phrase that continues the name."""
        return cls(f"session_image: {name!r} {as_phrase(problem)}")


class _NotSeenError(Exception):
    """An image has to be looked at."""


def look_at_image(
    client: docker.APIClient, store: Store, image: Image, name: str, mounts: Sequence[Mount]
) -> ImageLook:
    """Return what a session with these mounts needs to know of an image, which is looked at unless that is recorded.

    Raises :class:`ImageRefusedError`.
    """
    records = LookRecords(store.images_folder)
    seen, accounts = records.find(image.id), records.accounts(image.id)
    with contextlib.suppress(_NotSeenError):
        return _look(seen, accounts, _judge(seen, image, name, mounts))
    with _files_of(client, store, image, name) as files:
        seen = _see(files, seen, image, mounts)
        # Nothing of a refused image is read.
        if accounts is None and not _is_refused(seen, image, name, mounts):
            seen, accounts = dataclasses.replace(seen, home=_find_home(files, seen)), _read_accounts(files, seen)
    records.save(seen, accounts)
    return _look(seen, accounts, _judge(seen, image, name, mounts))


@contextlib.contextmanager
def _files_of(client: docker.APIClient, store: Store, image: Image, name: str) -> Iterator[ImageFiles]:
    """Yield the files of an image. Raises :class:`ImageRefusedError`, also instead of errors while they are read."""
    looking = LookRecords(store.images_folder).looking(NAME_PREFIX)
    try:
        with looking as container, image_files(client, image.id, container, image.volumes) as files:
            yield files
    except ImageLookError as error:
        raise ImageRefusedError.of(name, error) from None


def recorded_look(store: Store, image: Image, mounts: Sequence[Mount]) -> ImageLook | None:
    """Return what was seen in an image; ``None`` if it has to be looked at. Raises :class:`ImageRefusedError`."""
    records, name = LookRecords(store.images_folder), next(iter((*image.tags, *image.digests)), image.id)
    try:
        seen = records.find(image.id)
        return _look(seen, records.accounts(image.id), _judge(seen, image, name, mounts))
    except _NotSeenError:
        return None


def require_not_refused(store: Store, image: Image, name: str) -> None:
    """Raise :class:`ImageRefusedError` if what was seen in an image is a reason to refuse it, whatever the mounts."""
    with contextlib.suppress(_NotSeenError):
        _judge(LookRecords(store.images_folder).find(image.id), image, name, ())


def _judge(seen: Seen, image: Image, name: str, mounts: Sequence[Mount]) -> Leads:
    """Return where paths lead. Raises :class:`_NotSeenError`, and :class:`ImageRefusedError`."""
    found = judge_image(_look_in(seen), image.volumes, [mount.target for mount in mounts])
    if isinstance(found, str):
        raise ImageRefusedError.of(name, found)
    return found


def _is_refused(seen: Seen, image: Image, name: str, mounts: Sequence[Mount]) -> bool:
    try:
        _judge(seen, image, name, mounts)
    except ImageRefusedError:
        return True
    return False


def _look(seen: Seen, accounts: Accounts | None, found: Leads) -> ImageLook:
    """Return the look. Raises :class:`_NotSeenError`."""
    if accounts is None:
        raise _NotSeenError
    passwd, group = (content.decode(errors="replace") for content in accounts)
    return ImageLook(passwd, group, found.leads, found.clients, seen.home, found.lacking if seen.home else {})


def _look_in(seen: Seen) -> Look:
    def look(path: str) -> Entry | None:
        if path not in seen.entries:
            raise _NotSeenError
        return seen.entries[path]

    return look


def _see(files: ImageFiles, seen: Seen, image: Image, mounts: Sequence[Mount]) -> Seen:
    """Return what was seen, with what is missing for these mounts. Raises :class:`ImageLookError`."""
    # Users choose the targets of mounts, so that these would become ever more.
    entries = dict(seen.entries) if len(seen.entries) < MAX_ENTRIES else {}
    most, until = len(entries) + LOOK_ENTRIES, time.monotonic() + LOOK_SECONDS

    def look(path: str) -> Entry | None:
        if path not in entries:
            if len(entries) >= most:
                found = f"leads its VOLUMEs and the paths of the session through more than {LOOK_ENTRIES} paths"
                raise ImageLookError(f"{found}: build the image with fewer links and VOLUMEs")
            if time.monotonic() >= until:
                found = f"cannot be judged, because looking at its paths took more than {LOOK_SECONDS} seconds"
                raise ImageLookError(f"{found}: try it again, or build the image with fewer links and VOLUMEs")
            entries[path] = files.entry(path)
        return entries[path]

    judge_image(look, image.volumes, [mount.target for mount in mounts])
    return dataclasses.replace(seen, entries=entries)


def _read_accounts(files: ImageFiles, seen: Seen) -> Accounts:
    places = (follow(path, _look_in(seen)) for path in ("/etc/passwd", "/etc/group"))
    return Accounts(
        *(files.read(place.path, FILE_BYTES) if isinstance(place, Place) and place.entry else b"" for place in places)
    )


def _find_home(files: ImageFiles, seen: Seen) -> HomeFolder | None:
    place = follow(HOME, _look_in(seen))
    if not isinstance(place, Place) or place.entry is None:
        return None
    return HomeFolder(*files.owner(place.path), place.entry.mode)


def judge_own_homes(plan: SessionPlan, images: Mapping[str, Image]) -> None:
    """Refuse an image whose home is kept and lacks a folder above a mount, which the engine would make as root.

    ``images`` are by name, with what was seen in them. Raises :class:`ImageRefusedError`.
    """
    for name, image in images.items():
        if image.look.lacking and image.look.keeps_home(plan.uid, plan.gid, plan.group_numbers):
            target, folder = next(iter(image.look.lacking.items()))
            raise ImageRefusedError.of(
                name,
                f"has its own {HOME} without {folder}, which session_mounts needs for {target}: build the image with"
                f" the line RUN mkdir -p {folder}, as the user whose {HOME} is, or choose another target",
            )


@contextlib.contextmanager
def copy_of_home(
    client: docker.APIClient, store: Store, image: Image, name: str, look: ImageLook
) -> Iterator[Iterator[bytes]]:
    """Yield the archive of the home that an image has, whose name is the first component of all names in it.

    Raises :class:`ImageRefusedError`, also while the archive is read.
    """
    with _files_of(client, store, image, name) as files, files.chunks(look.leads.get(HOME, HOME)) as chunks:
        yield chunks


def judge_container(
    client: docker.APIClient, container: str, name: str, look: ImageLook, mounts: Sequence[Mount]
) -> None:
    """Look whether paths of a stopped container still lead where it was created with.

    Its user may have put links, where the image lets everybody write. Raises :class:`ImageRefusedError`.
    """
    layer = _layer_of(client, container)
    if layer is None:
        problem = "has a stopped container that cannot be judged, because the engine does not say where its files are"
        raise ImageRefusedError.of(name, f"{problem}: run repair_session, which replaces it ({_LOST})")
    targets = [*own_paths(look.clients), *(mount.target for mount in mounts)]
    problem = judge_leads(_look_into(layer), [(target, look.leads.get(target, target)) for target in targets])
    if problem:
        remedy = f"remove it (docker rm {container[:12]}) and run repair_session, which creates it again"
        raise ImageRefusedError.of(name, f"has a stopped container that {problem}: {remedy}")


_LOST = "what it wrote outside of the folders of its session is lost"


def find_unjudgeable(client: docker.APIClient, existing: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the stopped ones of containers that :func:`judge_container` cannot judge, by hostname, as what they lack.

    ``existing`` are as the engine lists them, by hostname.
    """
    stopped = {hostname: each for hostname, each in existing.items() if each["State"] != "running"}
    lacking = f"files that can be judged on this engine ({_LOST})"
    return {hostname: lacking for hostname, each in stopped.items() if _layer_of(client, each["Id"]) is None}


def _layer_of(client: docker.APIClient, container: str) -> Path | None:
    """Return the folder of the host with what a container has changed; ``None`` if the engine does not say it.

    It does with overlay2, and with the snapshots of a containerd. Nobody looks through the engine: it shows a container
    with all of its mounts, makes what they lack, follows links at that, and hangs on a pipe. What is not in the layer
    is as it was in the image.
    """
    data = (containers.inspect(client, container).get("GraphDriver") or {}).get("Data") or {}
    layer = data.get("UpperDir") or layer_of_snapshot(client.info(), container)
    return Path(layer) if layer else None


def _look_into(layer: Path) -> Callable[[str], Entry | None]:
    def look(path: str) -> Entry | None:
        at = layer / path.lstrip("/")
        try:
            found = at.lstat()
            kind = _KINDS.get(stat.S_IFMT(found.st_mode), DEVICE)
            # A device with the number 0 marks what was removed.
            if kind == DEVICE and found.st_rdev == 0:
                return None
            target = os.readlink(at) if kind == LINK else _redirect(at) if kind == FOLDER else ""
            return Entry(LINK if target else kind, target=target)
        except FileNotFoundError:
            return None

    return look


def _redirect(folder: Path) -> str:
    """Return the folder of the image that a folder of a layer has been, where the kernel renames such; else nothing."""
    try:
        return os.fsdecode(os.getxattr(folder, "trusted.overlay.redirect"))
    except OSError:
        return ""


def remove_abandoned(client: docker.APIClient, store: Store, names: Sequence[str]) -> list[Change]:
    """Remove containers by which somebody was looking at an image and was killed, and return the changes."""
    records = LookRecords(store.images_folder)
    for name in names:
        remove_look(client, name)
        records.forget_look(name)
    return [Change(f"container {name}", "of nobody who looks at an image", None) for name in names]


def find_abandoned(store: Store) -> list[str]:
    """Return the names of such containers; they may have been removed already."""
    return LookRecords(store.images_folder).abandoned(NAME_PREFIX, time.time())
