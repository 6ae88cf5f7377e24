# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Registries of images: how Docker names them, and who may read from them."""

from __future__ import annotations

import dataclasses

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
    first = _as_docker_says(first)
    # A colon after the last slash begins a tag: that of a port is in front of one.
    path, slash, last = rest.rpartition("/")
    path = f"{path}{slash}{last.partition(':')[0]}"
    return f"{first}/library/{path}" if first == DOCKER_HUB and "/" not in path else f"{first}/{path}"


def _as_docker_says(host: str) -> str:
    return DOCKER_HUB if host == f"index.{DOCKER_HUB}" else host
