# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Inspect, pull and remove images on an agent's engine."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .._model.errors import ClusterError, as_phrase, one_line, reason
from .._model.image_look import ImageLook
from .._model.images import ImageIdentity, repository_of
from .._model.quantity import decimal_unit
from .._model.timestamp import parse_timestamp
from . import labels
from .container import ENTRYPOINT
from .derived_variables import still_derived
from .sdk import docker

# The engine's statuses of a complete layer.
COMPLETE_STATUSES = ("Pull complete", "Already exists")

# How much of a registry's own message is shown and recorded, in characters.
CAUSE_LENGTH = 1000

_PENDING = ("Pulling fs layer", "Waiting")


class ImageUnreadableError(ClusterError):
    """An image cannot be read or judged; the message is one sentence."""


class ImagePullError(ClusterError):
    """An image is not on the agent and cannot be pulled; the message is one sentence."""

    @classmethod
    def from_error(cls, name: str, reference: str, cause: object) -> ImagePullError:
        """Return the error for an image that cannot be pulled; ``reference`` was requested from the registry."""
        detail = f" as {reference!r}, which other agents have" if reference != name else ""
        shown = one_line(cause)[:CAUSE_LENGTH]
        return cls(f"session_image: {name!r} is not on this host and cannot be pulled{detail} ({shown})")


@dataclasses.dataclass(frozen=True)
class Image:
    """An image on an engine.

    ``digest`` is the registry's, or the image id if it was not pulled. ``id`` is the engine's id of the image, and
    ``content`` says what is in it, whatever the engine's store; empty if the engine does not say that. ``argv``
    is the image's entrypoint and command, ``volumes`` are those that it declares, as it spells them. ``reference`` is
    that of :class:`ImageIdentity`. ``tags`` and ``digests`` are all names of the image, with a tag or with the digest
    of their registry; if ``in_containerd``, loaded images have digests as well. ``size`` is in bytes, without what is
    unpacked there; ``tagged_at``, in seconds since the epoch, is when it got its last tag on
    this engine, ``None`` if that is not known. ``look`` is what was seen in its files.
    ``folder`` is the working directory of its command. ``derived`` are the variables of an image that was made of a
    session's container, which were derived for that: they are not of ``environment``, nor is our entrypoint of
    ``argv``.
    """

    digest: str
    environment: dict[str, str]
    id: str = ""
    argv: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    reference: str = ""
    tags: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()
    size: int = 0
    tagged_at: float | None = None
    look: ImageLook = dataclasses.field(default_factory=ImageLook)
    folder: str = "/"
    content: str = ""
    in_containerd: bool = False
    derived: frozenset[str] = frozenset()

    @property
    def identity(self) -> ImageIdentity:
        """The identity of the image, which must be the same on all agents."""
        return ImageIdentity(self.id, self.digest, self.reference, self.content)


class PullLayers:
    """The progress of the layers of a pull, as reported by the engine so far."""

    def __init__(self) -> None:
        self._statuses: dict[str, str] = {}
        self._sizes: dict[str, int] = {}
        self._received: dict[str, int] = {}

    def update(self, line: Mapping[str, Any]) -> None:
        """Process a line of the engine's output; lines that do not concern a layer are ignored."""
        layer, status = str(line.get("id", "")), str(line.get("status", ""))
        if not layer or status.startswith("Pulling from"):
            return
        self._statuses[layer] = status
        detail = line.get("progressDetail") or {}
        if status == "Downloading" and detail.get("total"):
            self._sizes[layer], self._received[layer] = int(detail["total"]), int(detail.get("current", 0))
        elif status not in (*_PENDING, "Downloading"):
            self._received[layer] = self._sizes.get(layer, 0)

    def progress(self) -> Progress:
        """Return the progress of the pull."""
        # Copied, because another thread updates it.
        statuses = list(self._statuses.values())
        done = sum(status in COMPLETE_STATUSES for status in statuses)
        waiting = any(status in _PENDING for status in statuses)
        return Progress(
            sum(self._received.copy().values()), sum(self._sizes.copy().values()), done, len(statuses), waiting
        )


def find_image(client: docker.APIClient, name: str) -> Image | None:
    """Return the image of that name; ``None`` if it is not on the engine. Raises :class:`ImageUnreadableError`."""
    try:
        inspected = client.inspect_image(name)
    except docker.errors.NotFound:
        return None
    # Those of the engine, and a timeout: whatever is wrong with one image concerns those alone that want it.
    except (OSError, ValueError) as error:
        problem = as_phrase(reason(error))[:CAUSE_LENGTH]
        raise ImageUnreadableError(f"session_image: the engine cannot read {name!r}: {problem}") from None
    try:
        return _parse_image(name, inspected)
    except (AttributeError, LookupError, TypeError, ValueError):
        raise ImageUnreadableError(
            f"session_image: the engine describes {name!r} in a form that is not known; build the image again"
        ) from None


def _parse_image(name: str, inspected: Mapping[str, Any]) -> Image:
    config, digests, image_id = inspected["Config"], list(inspected.get("RepoDigests") or []), str(inspected["Id"])
    own = config.get("Labels") or {}
    # A variable without a value is taken away from those of the image that it was made of.
    variables = dict(variable.split("=", 1) for variable in config.get("Env") or [] if "=" in variable)
    derived = still_derived(own.get(labels.DERIVED), variables)
    reference = next((digest for digest in digests if repository_of(digest) == repository_of(name)), "")
    return Image(
        # Loaded images have no registry digest, only their id.
        digest=next((digest.partition("@")[2] for digest in [reference, *digests] if digest), image_id),
        environment={name: value for name, value in variables.items() if name not in derived},
        derived=derived,
        id=image_id,
        argv=_own_argv([*(config.get("Entrypoint") or []), *(config.get("Cmd") or [])]),
        volumes=tuple(sorted(map(str, config.get("Volumes") or {}))),
        reference=reference,
        # A containerd lists what was pulled by its digest as a tag, too.
        tags=tuple(tag for tag in inspected.get("RepoTags") or () if "@" not in tag),
        digests=tuple(digests),
        size=int(inspected.get("Size") or 0),
        folder=_own_folder(str(config.get("WorkingDir") or "/"), own),
        tagged_at=_parse_moment(str((inspected.get("Metadata") or {}).get("LastTagTime") or "")),
        content=_content(inspected, config),
        # There an image is what a registry would send; elsewhere it is the configuration in that.
        in_containerd=any(digest.endswith(f"@{image_id}") for digest in digests) or bool(inspected.get("Descriptor")),
    )


# What a container gets of the configuration of an image. Engines differ in what they say of the rest.
_CONFIGURATION = ("Env", "Entrypoint", "Cmd", "User", "WorkingDir", "Volumes")


def _content(inspected: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Return a digest of the layers and the configuration of an image; empty if the engine does not list its layers."""
    layers = (inspected.get("RootFS") or {}).get("Layers")
    if not layers:
        return ""
    said = {name: config[name] for name in _CONFIGURATION if config.get(name)}
    platform = [inspected.get(name) or "" for name in ("Os", "Architecture", "Variant")]
    return labels.content_digest([platform, list(layers), said])


def _own_argv(argv: list[str]) -> tuple[str, ...]:
    """Return the entrypoint and command of an image, without our entrypoint if it was made of a container of ours."""
    while argv[: len(ENTRYPOINT)] == ENTRYPOINT:
        argv = argv[len(ENTRYPOINT) :]
    return tuple(argv)


def _own_folder(folder: str, image_labels: Mapping[str, str]) -> str:
    """Return the working directory of an image's command; our containers have ``/`` instead, and name it in a label."""
    recorded = image_labels.get(labels.FOLDER, "")
    return recorded if folder == "/" and recorded.startswith("/") else folder


def _parse_moment(moment: str) -> float | None:
    """Return a time of the engine in seconds since the epoch; its zone, some hours, does not matter here."""
    try:
        return None if moment.startswith("0001-") else parse_timestamp(moment)
    except ValueError:
        return None


def disk_usage(client: docker.APIClient, image: Image) -> int:
    """Return what an image takes on the disk, in bytes, with what it shares with others."""
    if not image.in_containerd:
        return image.size
    # The list includes what is unpacked; until engine 29 the description of one image does not.
    name = next(iter((*image.tags, *image.digests)), "")
    listed = client.images(filters={"reference": [name]}) if name else []
    return next((int(entry["Size"]) for entry in listed if entry["Id"] == image.id), image.size)


def image_ids(client: docker.APIClient) -> list[str]:
    """Return the ids of all images on the engine that are not only layers of others."""
    return [str(image["Id"]) for image in client.images()]


def remove_image(client: docker.APIClient, image: Image) -> None:
    """Remove an image with all of its names. Raises :class:`docker.errors.APIError` if the engine needs it."""
    for name in image.tags or image.digests or (image.id,):
        client.remove_image(name)
    # Without its tags, it may still have the digest that was pulled.
    left = find_image(client, image.id)
    for name in left.digests if left else ():
        client.remove_image(name)


def free_bytes(folder: str) -> int:
    """Return the free space of the file system of a folder. Raises :class:`OSError`."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def pull_image(
    client: docker.APIClient,
    name: str,
    reference: str,
    login: Mapping[str, Any],
    on_line: Callable[[Mapping[str, Any]], None],
) -> None:
    """Pull ``reference`` from its registry and tag it ``name``; if that cannot be pulled, pull ``name``.

    A digest of an agent whose engine uses a containerd may be one that no registry has. An empty ``login`` is nobody's,
    not even the ``docker login`` of this host. ``on_line`` is called with each line of the engine's output. Raises
    :class:`ImagePullError` if the pull fails.
    """
    problem = _pull(client, name, reference, login, on_line)
    if problem and reference != name:
        by_name = _pull(client, name, name, login, on_line)
        problem = by_name and f"{problem.strip()}; by its own name: {by_name}"
    if problem:
        raise ImagePullError.from_error(name, reference, problem)


def _pull(
    client: docker.APIClient,
    name: str,
    reference: str,
    login: Mapping[str, Any],
    on_line: Callable[[Mapping[str, Any]], None],
) -> str:
    """Pull ``reference`` and tag it ``name``; return why that failed, or an empty string."""
    try:
        repository, tag = docker.utils.parse_repository_tag(reference)
        lines = client.pull(repository, tag or "latest", stream=True, decode=True, auth_config=dict(login))
        problem = _first_error(lines, on_line)
        if not problem and reference != name:
            client.tag(reference, *docker.utils.parse_repository_tag(name))
        if not problem and find_image(client, name) is None:
            problem = "the engine stopped without an error message"
    except (docker.errors.APIError, ClusterError) as error:
        problem = reason(error)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        problem = "the engine reports the progress in a form that is not known"
    return problem


def _first_error(lines: Iterable[Mapping[str, Any]], on_line: Callable[[Mapping[str, Any]], None]) -> str:
    """Return the first error in the output, or an empty string; all lines are passed to ``on_line``."""
    problem = ""
    for line in lines:
        on_line(line)
        # Newer engines say it in the detail alone.
        detail = line.get("errorDetail") or {}
        problem = problem or str(line.get("error") or detail.get("message") or "")
    return problem


@dataclasses.dataclass(frozen=True)
class Progress:
    """The progress of a pull: received and total bytes of the layers that have started, and complete layers.

    The engine does not report the size of layers that have not started; ``more`` is true while there are such layers.
    """

    bytes_done: int = 0
    bytes_total: int = 0
    layers_done: int = 0
    layers_total: int = 0
    more: bool = False

    def describe(self) -> str:
        """Format it as a phrase such as ``1.2 of 4.6 GB, 12 of 31 layers``; empty while no size is known."""
        if not self.bytes_total:
            return ""
        factor, unit = decimal_unit(self.bytes_total)
        total = f"{'at least ' if self.more else ''}{self.bytes_total / factor:.1f} {unit}"
        return f"{self.bytes_done / factor:.1f} of {total}, {self.layers_done} of {self.layers_total} layers"
