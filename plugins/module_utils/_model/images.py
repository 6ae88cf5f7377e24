# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images by name: their identity on each agent, which must be the same for a whole session, and their registry."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from .errors import ClusterError

DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
"""The digest of a manifest."""


_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_HOST = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[a-fA-F0-9:]+\])(?::[0-9]{{1,5}})?"
_WORD = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_TAG = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_DIGEST = r"sha(?:256:[0-9a-f]{64}|512:[0-9a-f]{128})"
_REFERENCE = re.compile(rf"(?P<repository>(?:{_HOST}/)?{_WORD}(?:/{_WORD})*)(?::{_TAG})?(?:@{_DIGEST})?")
# The longest repository, and with the longest tag and digest.
MAX_REPOSITORY, MAX_NAME = 255, 600

NAME_RULE = (
    "must be the name of an image such as registry.example.com/team/pytorch:2.3, with a path of a-z, 0-9, ., _ and -,"
    " and a tag or digest if needed"
)


def is_image_name(text: str) -> bool:
    """Return whether a text is the name of an image, as registries and engines understand it."""
    match = _REFERENCE.fullmatch(text) if len(text) <= MAX_NAME else None
    return match is not None and len(match["repository"]) <= MAX_REPOSITORY


class ForeignReferenceError(ClusterError):
    """An agent named something else than a digest in the repository of an image. The message is one sentence."""


@dataclasses.dataclass(frozen=True)
class ImageIdentity:
    """An image on one agent: its ``id`` in the engine, and its ``digest`` in the registry (otherwise the id).

    ``reference`` is a name that resolves to the same content on every agent, such as ``registry/pytorch@sha256:…``;
    empty if the image was not pulled from the registry of its name. ``content`` is a digest of its layers and its
    configuration, empty if not known: it does not depend on the engine's image store.
    """

    id: str
    digest: str
    reference: str = ""
    content: str = ""

    @property
    def may_be_loaded(self) -> bool:
        """Whether its digest proves no registry: in a containerd, images have one wherever they come from."""
        return self.digest == self.id


@dataclasses.dataclass(frozen=True)
class ImageDisk:
    """Where the engine of an agent keeps its images: ``free`` bytes in its ``folder``; ``reserve`` should stay free.

    ``sizes`` are those of the requested images that are there, in bytes by name.
    """

    folder: str
    free: int
    reserve: int
    sizes: dict[str, int]


# The images on agents: by agent, then by name.
ImagesByAgent = Mapping[str, Mapping[str, ImageIdentity]]


def images_from_dict(data: Mapping[str, Mapping[str, Mapping[str, str]]]) -> dict[str, dict[str, ImageIdentity]]:
    """Parse the images of agents from plain data."""
    return {
        agent: {name: ImageIdentity(**identity) for name, identity in images.items()} for agent, images in data.items()
    }


def pull_reference(name: str, images_by_agent: ImagesByAgent) -> str:
    """Return the reference that an agent without the image pulls: the digest of the other agents, if they have one.

    One that a registry has is preferred. It is always of the repository of ``name``: an agent chooses neither where
    another one pulls from, nor what it tags. Raises :class:`ForeignReferenceError` if an agent named another
    repository, or no digest.
    """
    if "@" in name:
        return name
    digests: list[tuple[bool, str]] = []
    for agent, images in images_by_agent.items():
        reference = images[name].reference if name in images else ""
        if not reference:
            continue
        digest = reference.partition("@")[2]
        if repository_of(reference) != repository_of(name) or not DIGEST.fullmatch(digest):
            raise ForeignReferenceError(
                f"session_image: {agent} has {reference[:200]!r} as {name!r}, which is no sha256 digest in the"
                f" repository {repository_of(name)}: check {agent}, or specify the image by its digest"
            )
        digests.append((images[name].may_be_loaded, digest))
    return f"{_untagged(name)}@{min(digests)[1]}" if digests else name


def image_mismatch(images_by_agent: ImagesByAgent) -> str:
    """Return an error message for the first image that differs between agents; empty if there is none.

    The id of an image depends on the engine's image store, and the digest of a loaded one as well, so equal digests
    are sufficient, and so is equal content.
    """
    for name in dict.fromkeys(name for images in images_by_agent.values() for name in images):
        identities = {agent: images[name] for agent, images in images_by_agent.items() if name in images}
        by_digest: dict[str, list[str]] = {}
        for agent, identity in identities.items():
            by_digest.setdefault(identity.digest, []).append(agent)
        contents = {identity.content for identity in identities.values()}
        same_content = len(contents) == 1 and "" not in contents
        if len(by_digest) > 1 and len({identity.id for identity in identities.values()}) > 1 and not same_content:
            listed = ", ".join(
                f"{_abbreviate(digest)} on {' and '.join(agents)}" for digest, agents in by_digest.items()
            )
            remedy = "remove the outdated one (docker rmi) or specify the image by its digest"
            return f"session_image: {name!r} is not the same on all agents: {listed}; {remedy}"
    return ""


def _abbreviate(digest: str) -> str:
    """Return the abbreviated form of a digest, for messages."""
    algorithm, _colon, content = digest.partition(":")
    return f"{algorithm}:{content[:12]}…"


DOCKER_HUB = "docker.io"


@dataclasses.dataclass(frozen=True)
class Credential:
    """Credentials of a registry; the password is excluded from ``repr``."""

    username: str
    password: str = dataclasses.field(repr=False)


def registry_of(image: str) -> str:
    """Return the registry of an image, with its port; ``docker.io`` if the name has none, as in Docker."""
    return repository_of(image).partition("/")[0]


def repository_of(image: str) -> str:
    """Return the full name of an image's repository: with its registry, without tag and digest."""
    name = image.partition("@")[0]
    first, slash, rest = name.partition("/")
    if not slash or not ("." in first or ":" in first or first == "localhost" or first != first.lower()):
        first, rest = DOCKER_HUB, name
    first, path = normalize_host(first), _untagged(rest)
    return f"{first}/library/{path}" if first == DOCKER_HUB and "/" not in path else f"{first}/{path}"


def full_name(image: str) -> str:
    """Return the name of an image in the one form that is equal for all spellings: with registry, and tag or digest."""
    name, _at, digest = image.partition("@")
    if digest:
        return f"{repository_of(name)}@{digest}"
    return f"{repository_of(name)}:{name.rpartition('/')[2].partition(':')[2] or 'latest'}"


def _untagged(name: str) -> str:
    """Return the name of an image without its tag."""
    # A colon after the last slash begins a tag; that of a port is always followed by a slash.
    path, slash, last = name.rpartition("/")
    return f"{path}{slash}{last.partition(':')[0]}"


def normalize_host(host: str) -> str:
    """Return the host of a registry in the form of :func:`registry_of`: Docker Hub has two names."""
    return DOCKER_HUB if host == f"index.{DOCKER_HUB}" else host
