# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images as an agent's engine has them, or gets them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .._model.errors import ClusterError, one_line, reason
from .._model.images import Credential, ImageIdentity, repository_of
from .sdk import docker

# What the engine says of a layer that it has.
IN_PLACE = ("Pull complete", "Already exists")

_WAITS = ("Pulling fs layer", "Waiting")


class ImagePullError(ClusterError):
    """The image is not on the agent and cannot be pulled; the message is one sentence."""

    @classmethod
    def from_error(cls, name: str, reference: str, cause: object) -> ImagePullError:
        """Return the error for an image that cannot be pulled; ``reference`` is what was asked of the registry."""
        which = f" as {reference!r}, which other agents have" if reference != name else ""
        return cls(f"session_image: {name!r} is not on this host and cannot be pulled{which} ({one_line(cause)})")


@dataclasses.dataclass(frozen=True)
class Image:
    """An image as an engine has it.

    ``digest`` is the registry's, or the image's own where it came from none. ``id`` is the engine's own name of the
    content. ``argv`` is what the image itself would run. ``reference`` is that of :class:`KnownImage`.
    """

    digest: str
    environment: dict[str, str]
    id: str = ""
    argv: tuple[str, ...] = ()
    reference: str = ""

    @property
    def known(self) -> ImageIdentity:
        """What other agents have to agree with."""
        return ImageIdentity(self.id, self.digest, self.reference)


class Layers:
    """What the engine has said so far of the layers of a pull."""

    def __init__(self) -> None:
        self._statuses: dict[str, str] = {}
        self._sizes: dict[str, int] = {}
        self._received: dict[str, int] = {}

    def update(self, line: Mapping[str, Any]) -> None:
        """Take a line of the engine's; those that are about no layer say nothing."""
        layer, status = str(line.get("id", "")), str(line.get("status", ""))
        if not layer or status.startswith("Pulling from"):
            return
        self._statuses[layer] = status
        detail = line.get("progressDetail") or {}
        if status == "Downloading" and detail.get("total"):
            self._sizes[layer], self._received[layer] = int(detail["total"]), int(detail.get("current", 0))
        elif status not in (*_WAITS, "Downloading"):
            self._received[layer] = self._sizes.get(layer, 0)

    def progress(self) -> Progress:
        """Return how far the pull is."""
        # The engine goes on to speak while this is asked.
        statuses = list(self._statuses.values())
        done = sum(status in IN_PLACE for status in statuses)
        waiting = any(status in _WAITS for status in statuses)
        return Progress(
            sum(self._received.copy().values()), sum(self._sizes.copy().values()), done, len(statuses), waiting
        )


def find_image(client: docker.APIClient, name: str) -> Image | None:
    """Return the image of that name; ``None`` where the engine does not have it."""
    try:
        inspected = client.inspect_image(name)
    except docker.errors.NotFound:
        return None
    config, digests = inspected["Config"], list(inspected.get("RepoDigests") or [])
    variables = (variable.partition("=") for variable in config.get("Env") or [])
    reference = next((digest for digest in digests if repository_of(digest) == repository_of(name)), "")
    return Image(
        # Loaded images have no digest but their own.
        digest=next((digest.partition("@")[2] for digest in [reference, *digests] if digest), str(inspected["Id"])),
        environment={key: value for key, _mark, value in variables},
        id=str(inspected["Id"]),
        argv=(*(config.get("Entrypoint") or []), *(config.get("Cmd") or [])),
        reference=reference,
    )


def pull_image(
    client: docker.APIClient,
    name: str,
    reference: str,
    credential: Credential | None,
    hear: Callable[[Mapping[str, Any]], None],
) -> None:
    """Fetch what ``reference`` names from its registry and call it ``name``; ``hear`` gets what the engine says of it.

    Raises :class:`ImageUnavailable` when the registry does not give it.
    """
    repository, tag = docker.utils.parse_repository_tag(reference)
    login = dataclasses.asdict(credential) if credential else None
    try:
        lines = client.pull(repository, tag or "latest", stream=True, decode=True, auth_config=login)
        problem = _first_error(lines, hear)
        if not problem and reference != name:
            client.tag(reference, *docker.utils.parse_repository_tag(name))
        if not problem and find_image(client, name) is None:
            problem = "the engine broke it off without a word"
    except docker.errors.APIError as error:
        problem = reason(error)
    if problem:
        raise ImagePullError.from_error(name, reference, problem)


def _first_error(lines: Iterable[Mapping[str, Any]], hear: Callable[[Mapping[str, Any]], None]) -> str:
    """Return the first thing that goes wrong, empty when nothing does; all lines are heard."""
    problem = ""
    for line in lines:
        hear(line)
        problem = problem or str(line.get("error", ""))
    return problem


_UNITS = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far a pull is: bytes that have come, of those of the layers that have begun to; layers that are in place.

    The engine does not say how large a layer is that has not begun: while ``more`` is true, there are such.
    """

    bytes_done: int = 0
    bytes_total: int = 0
    layers_done: int = 0
    layers_total: int = 0
    more: bool = False

    def told(self) -> str:
        """Return it as a phrase such as ``1.2 of 4.6 GB, 12 of 31 layers``; empty while there is nothing to tell."""
        if not self.bytes_total:
            return ""
        factor, unit = next((entry for entry in _UNITS if self.bytes_total >= entry[0]), _UNITS[-1])
        total = f"{'at least ' if self.more else ''}{self.bytes_total / factor:.1f} {unit}"
        return f"{self.bytes_done / factor:.1f} of {total}, {self.layers_done} of {self.layers_total} layers"
