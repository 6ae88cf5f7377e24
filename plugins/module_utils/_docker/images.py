# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images as an agent's engine has them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import docker


class ImageUnavailable(Exception):
    """The image is not on the agent and cannot be pulled; the message is one sentence."""


@dataclasses.dataclass(frozen=True)
class Image:
    """An image: its content's digest and the environment that it brings."""

    digest: str
    environment: dict[str, str]


def find_image(client: docker.APIClient, name: str) -> Image | None:
    """Return the image of that name; ``None`` where the engine does not have it."""
    from docker.errors import NotFound

    try:
        found = client.inspect_image(name)
    except NotFound:
        return None
    variables = (one.partition("=") for one in found["Config"].get("Env") or [])
    return Image(_digest(found), {key: value for key, _mark, value in variables})


def pull_image(client: docker.APIClient, name: str) -> None:
    """Fetch an image from its registry. Raises :class:`ImageUnavailable` when the registry does not give it."""
    from docker.errors import APIError
    from docker.utils import parse_repository_tag

    repository, tag = parse_repository_tag(name)
    try:
        lines = [line for line in client.pull(repository, tag or "latest", stream=True, decode=True) if "error" in line]
        problem = lines[0]["error"] if lines else ""
    except APIError as error:
        problem = error.explanation or str(error)
    if problem:
        raise ImageUnavailable(f"session_image: {name!r} is not on this host and cannot be pulled ({problem.strip()})")


def _digest(found: dict[str, list[str] | str]) -> str:
    """Return the registry's digest where there is one, else the image's own: loaded images have no other."""
    return next((str(one).partition("@")[2] for one in found.get("RepoDigests") or []), str(found["Id"]))
