# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Removes images of an agent that nothing needs, by age and until there is room.

Needed are the images of all containers on the engine, whoever made them, of all sessions on the agent, of the queue,
and those that a request for a session looked for within the last hour. Of the others, only those go that came with
sessions, unless the operator says that all may. The engine is never forced.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence

from .._docker.image_store import image_folder
from .._docker.images import Image, ImageUnreadableError, disk_usage, find_image, free_bytes, image_ids, remove_image
from .._docker.sdk import docker
from .._host.image_records import ImageRecords, KnownImage
from .._host.store import Store
from .._model.errors import ClusterError, reason
from .._model.images import full_name, repository_of

RECENT_SECONDS = 3600
"""How long an image counts as needed after a request looked for it: a run may have planned on it."""

DAY = 86400


class UnknownNeedError(ClusterError):
    """It is not known which images are needed. The message is one sentence."""


@dataclasses.dataclass(frozen=True)
class PruneRules:
    """Which images go: those that were not needed for ``unused_days``, with 0 none for that reason.

    Then those that were not needed for the longest time, until ``free_bytes`` are free. The images ``needed`` stay, by
    name. With ``others``, images go that did not come with sessions.
    """

    unused_days: int = 0
    free_bytes: int = 0
    needed: Sequence[str] = ()
    others: bool = False

    def apply_to(self, unused_seconds: float, free: int) -> bool:
        """Return whether an image goes that was not needed for so long, while so many bytes are free."""
        if unused_seconds < RECENT_SECONDS:
            return False
        return free < self.free_bytes or 0 < self.unused_days * DAY <= unused_seconds


@dataclasses.dataclass(frozen=True)
class RemovedImage:
    """An image that was removed: its ``name``, ``size`` in bytes, and for how many days it was not needed."""

    name: str
    size: int
    unused_days: int


@dataclasses.dataclass
class Pruned:
    """The images that were ``removed``, and sentences about those that the engine ``kept``.

    ``free_before`` and ``free`` are the free bytes in the engine's ``folder``; in check mode, ``free`` is what would be
    free if images shared no layers.
    """

    folder: str
    free_before: int
    free: int
    removed: list[RemovedImage] = dataclasses.field(default_factory=list)
    kept: list[str] = dataclasses.field(default_factory=list)


def prune_images(client: docker.APIClient, store: Store, rules: PruneRules, now: float, *, check_mode: bool) -> Pruned:
    """Remove images as the rules say, the one that was not needed for the longest time first.

    Raises :class:`UnknownNeedError` for a session that cannot be read.
    """
    records, folder = ImageRecords(store.images_folder), image_folder(client.info())
    free = free_bytes(folder)
    pruned = Pruned(folder, free, free)
    _needed_ids(client, store, rules)
    if not check_mode:
        records.keep_only(image_ids(client))
    for needed_at, image in sorted(_candidates(client, records, rules), key=lambda each: each[0]):
        if not rules.apply_to(now - needed_at, pruned.free):
            continue
        # Claims are made under the lock, so that none begins between the look and the removal.
        with store.lock():
            if image.id in _needed_ids(client, store, rules):
                continue
            removed = RemovedImage(_display_name(image), disk_usage(client, image), int((now - needed_at) // DAY))
            if check_mode:
                pruned.free += removed.size
            else:
                try:
                    remove_image(client, image)
                # Those of the engine, and a timeout: it may be removing a large image still.
                except (OSError, ImageUnreadableError) as error:
                    pruned.kept.append(f"{removed.name}: the engine keeps it ({reason(error)}).")
                    continue
                records.forget(image.id)
                pruned.free = free_bytes(folder)
            pruned.removed.append(removed)
    return pruned


def _needed_ids(client: docker.APIClient, store: Store, rules: PruneRules) -> set[str]:
    """Return the ids of the images that containers, sessions or the queue need."""
    sessions, damaged = store.load_all()
    if damaged:
        raise UnknownNeedError(f"no image is removed, because it is not known which ones sessions need: {damaged[0]}")
    names = {*rules.needed, *(kernel.image for session in sessions for kernel in session.plan.kernels)}
    found = (_find_readable(client, name) for name in sorted(names))
    of_containers = {str(container["ImageID"]) for container in client.containers(all=True)}
    return of_containers | {image.id for image in found if image}


def _find_readable(client: docker.APIClient, name: str) -> Image | None:
    """Return an image; ``None`` for one that is missing or cannot be read, which is never removed."""
    with contextlib.suppress(ImageUnreadableError):
        return find_image(client, name)
    return None


def _candidates(client: docker.APIClient, records: ImageRecords, rules: PruneRules) -> Iterator[tuple[float, Image]]:
    """Yield the images that may go, each with the time when it was needed last."""
    for image_id in image_ids(client):
        record, image = records.find(image_id) or KnownImage(image_id), _find_readable(client, image_id)
        if image is None:
            continue
        if _came_with_sessions(image, record):
            yield record.needed_at, image
        elif rules.others and (image.tagged_at or record.needed_at):
            yield max(image.tagged_at or 0.0, record.needed_at), image


def _came_with_sessions(image: Image, record: KnownImage) -> bool:
    """Return whether an image was pulled for sessions, and has got no other name since."""
    repositories = {repository_of(name) for name in record.pulled_as}
    tags = {full_name(tag) for tag in image.tags}
    return (
        bool(record.pulled_as) and tags <= {*record.pulled_as} and {*map(repository_of, image.digests)} <= repositories
    )


def _display_name(image: Image) -> str:
    return next(iter((*image.tags, *image.digests)), image.id)
