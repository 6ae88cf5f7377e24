# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images by name: the bits that each agent has of one, the same for all containers of a session, and its registry."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class ImageIdentity:
    """An image as one agent has it: the engine's ``id`` of it, and the ``digest`` of the registry, or else the id.

    ``reference`` is the name by which any agent gets the same bits, such as ``registry/pytorch@sha256:…``; empty where
    the image did not come from the registry that its name says.
    """

    id: str
    digest: str
    reference: str = ""


# The images that agents have: by agent, then by name.
ImagesByAgent = Mapping[str, Mapping[str, ImageIdentity]]


def images_from_dict(data: Mapping[str, Mapping[str, Mapping[str, str]]]) -> dict[str, dict[str, ImageIdentity]]:
    """Return what plain data says that agents have."""
    return {
        agent: {name: ImageIdentity(**identity) for name, identity in images.items()} for agent, images in data.items()
    }


def pull_reference(name: str, images_by_agent: ImagesByAgent) -> str:
    """Return what an agent that lacks an image pulls: what the others have, where that came from a registry."""
    if "@" in name:
        return name
    references = sorted({images[name].reference for images in images_by_agent.values() if name in images} - {""})
    return references[0] if references else name


def image_mismatch(images_by_agent: ImagesByAgent) -> str:
    """Return a sentence for the first image that is not the same on all agents; empty where there is none.

    Engines that keep images in different ways give one image different ids, so equal digests will do.
    """
    for name in dict.fromkeys(name for images in images_by_agent.values() for name in images):
        identities = {agent: images[name] for agent, images in images_by_agent.items() if name in images}
        by_digest: dict[str, list[str]] = {}
        for agent, identity in identities.items():
            by_digest.setdefault(identity.digest, []).append(agent)
        if len(by_digest) > 1 and len({identity.id for identity in identities.values()}) > 1:
            listed = ", ".join(f"{_short(digest)} on {' and '.join(agents)}" for digest, agents in by_digest.items())
            remedy = "remove it there (docker rmi) or name it by its digest"
            return f"session_image: {name!r} is not the same on all agents: {listed}; {remedy}"
    return ""


def _short(digest: str) -> str:
    """Return a digest as people tell them apart."""
    algorithm, _colon, content = digest.partition(":")
    return f"{algorithm}:{content[:12]}…"


DOCKER_HUB = "docker.io"


@dataclasses.dataclass(frozen=True)
class Credential:
    """Who reads from a registry; the password appears in no text that is made of this."""

    username: str
    password: str = dataclasses.field(repr=False)


def registry_of(image: str) -> str:
    """Return the registry of an image, with its port; ``docker.io`` where the name has none, as Docker takes it."""
    return repository_of(image).partition("/")[0]


def repository_of(image: str) -> str:
    """Return the whole name of an image's repository: with its registry, without a tag or a digest."""
    name = image.partition("@")[0]
    first, slash, rest = name.partition("/")
    if not slash or not ("." in first or ":" in first or first == "localhost" or first != first.lower()):
        first, rest = DOCKER_HUB, name
    first = _normalize_host(first)
    # A colon after the last slash begins a tag: that of a port is in front of one.
    path, slash, last = rest.rpartition("/")
    path = f"{path}{slash}{last.partition(':')[0]}"
    return f"{first}/library/{path}" if first == DOCKER_HUB and "/" not in path else f"{first}/{path}"


def _normalize_host(host: str) -> str:
    return DOCKER_HUB if host == f"index.{DOCKER_HUB}" else host
