# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who may use an image that is on this agent: an image that was pulled with a password is not for users without."""

from __future__ import annotations

import dataclasses
import fnmatch
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .._docker.images import Image, find_image
from .._docker.registry import SECONDS, RegistryConnections, RegistryError, agent_login, may_read
from .._docker.sdk import docker
from .._host.registry_records import RegistryRecords
from .._host.store import Store
from .._model.errors import ClusterError
from .._model.images import Credential, registry_of, repository_of


class ImageAccessError(ClusterError):
    """A session may not use an image that is on this agent. The message is one sentence."""


@dataclasses.dataclass(frozen=True)
class ImageAccess:
    """The ``logins`` of a request by registry, and the agent's settings, which are the role's ``agent_*`` variables.

    ``registry_check`` are patterns of registries whose images are always checked. With ``allow_registry_login``,
    requests without a login to a registry use that of the agent.
    """

    logins: Mapping[str, Credential] = dataclasses.field(default_factory=dict)
    registry_check: Sequence[str] = ()
    allow_registry_login: bool = False

    @classmethod
    def from_options(cls, logins: Mapping[str, Mapping[str, str]], settings: Mapping[str, Any]) -> ImageAccess:
        """Parse the logins of a request, and the settings of the agent."""
        return cls({registry: Credential(**login) for registry, login in logins.items()}, **settings)

    def login(self, registry: str) -> Credential | None:
        """Return the login of the request to a registry, else the agent's if that is allowed.

        Raises :class:`RegistryError` if the agent's cannot be read.
        """
        return self.logins.get(registry) or (agent_login(registry) if self.allow_registry_login else None)

    def is_checked(self, registry: str) -> bool:
        """Return whether all images of a registry are checked."""
        return any(fnmatch.fnmatchcase(registry.lower(), pattern.lower()) for pattern in self.registry_check)


@dataclasses.dataclass(frozen=True)
class _Source:
    """A repository that an image on this agent has a name of.

    ``references`` are the image's digests and tags there. ``pulled`` is whether it came from the registry.
    """

    repository: str
    references: tuple[str, ...]
    pulled: bool


def require_image_access(
    client: docker.APIClient, store: Store, access: ImageAccess, image_names: Iterable[str]
) -> None:
    """Ask the registries of private images whether this request may use them; images that are missing are ignored.

    Raises :class:`ImageAccessError` if it may not, or if that is unknown.
    """
    records = RegistryRecords(store.registries_folder)
    if not access.registry_check and not records.any_private():
        return
    inquiry = _Inquiry(client, records, access, time.monotonic() + SECONDS)
    for name in image_names:
        image = find_image(client, name)
        if image:
            _require_one_source(inquiry, name, _sources(name, image))


@dataclasses.dataclass(frozen=True)
class _Inquiry:
    """What is known about the images of a session, and when questions end, by the monotonic clock."""

    client: docker.APIClient
    records: RegistryRecords
    access: ImageAccess
    until: float


def _require_one_source(inquiry: _Inquiry, name: str, sources: Sequence[_Source]) -> None:
    """Return if an image may be used under one of its names."""
    access, records = inquiry.access, inquiry.records
    private = [
        source
        for source in sources
        if access.is_checked(registry_of(source.repository))
        or (source.pulled and records.is_private(source.repository))
    ]
    if len(private) < len(sources):
        return
    problem = None
    for source in private:
        problem = _find_problem(inquiry, source)
        if not problem:
            return
    raise ImageAccessError(f"session_image: {name!r} is private, and {problem}")


def _find_problem(inquiry: _Inquiry, source: _Source) -> str | None:
    """Return why a request may not read a repository; ``None`` if it may."""
    registry, access, records = registry_of(source.repository), inquiry.access, inquiry.records
    try:
        login = access.login(registry)
        if records.is_allowed(source.repository, login):
            return None
        connections = RegistryConnections.of_engine(inquiry.client)
        seconds = max(0.0, inquiry.until - time.monotonic())
        if may_read(connections, source.repository, source.references, login, seconds):
            records.allow(source.repository, login)
            return None
    except RegistryError as error:
        return f"whether this session may use it is not known: its registry {registry} {error}; try again later"
    refusal = f"its registry {registry} does not let"
    if login is None:
        return f"{refusal} this session read it without a password: add {registry} to session_registries"
    if registry in access.logins:
        return f"{refusal} the user {login.username!r} read it: correct session_registries.{registry}"
    return f"{refusal} the docker login of this agent read it: add {registry} to session_registries"


def _sources(name: str, image: Image) -> list[_Source]:
    """Return the repository of a name, or all repositories of the image if the name is its id."""
    names = {repository_of(each) for each in (*image.tags, *image.digests)}
    named = repository_of(name)
    repositories = [named] if named in names or not names else sorted(names)
    return [_source(repository, name, image) for repository in repositories]


def _source(repository: str, name: str, image: Image) -> _Source:
    digests = [each.partition("@")[2] for each in image.digests if repository_of(each) == repository]
    tags = [_tag(each) for each in image.tags if repository_of(each) == repository]
    asked, _at, digest = name.partition("@")
    if repository_of(name) == repository:
        tags = [_tag(asked)]
    references = (digest,) if digest else (*digests, *tags)
    return _Source(repository, references, bool(digests))


def _tag(name: str) -> str:
    """Return the tag of an image's name."""
    return name.rpartition("/")[2].partition(":")[2] or "latest"
