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
from .._docker.registry import RegistryError, agent_login, may_read
from .._docker.sdk import docker
from .._host.registry_records import RegistryRecords
from .._host.store import Store
from .._model.errors import ClusterError
from .._model.images import Credential, registry_of, repository_of

# Seconds for all questions about the images of a session.
SECONDS = 20


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

    def login(self, registry: str) -> dict[str, Any]:
        """Return the login of the request to a registry, else the agent's if that is allowed; empty without either.

        Raises :class:`RegistryError` if the agent's cannot be read.
        """
        if registry in self.logins:
            return dataclasses.asdict(self.logins[registry])
        return agent_login(registry) if self.allow_registry_login else {}

    def is_checked(self, registry: str) -> bool:
        """Return whether all images of a registry are checked."""
        return any(fnmatch.fnmatchcase(registry.lower(), pattern.lower()) for pattern in self.registry_check)


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
            _require_image(inquiry, name, image)


@dataclasses.dataclass(frozen=True)
class _Inquiry:
    """What is known about the images of a session, and when questions end, by the monotonic clock."""

    client: docker.APIClient
    records: RegistryRecords
    access: ImageAccess
    until: float


def _require_image(inquiry: _Inquiry, name: str, image: Image) -> None:
    repositories = {repository_of(each) for each in (*image.tags, *image.digests)}
    named = repository_of(name)
    if named in repositories or not repositories:
        problem = _find_problem(inquiry, name, image) if _is_private(inquiry, named, image) else None
        if problem:
            raise ImageAccessError(f"session_image: {name!r} is private, and {problem}")
    elif all(_is_private(inquiry, repository, image) for repository in repositories):
        # The name does not tell which registry to ask.
        raise ImageAccessError(f"session_image: {name!r} is the id of a private image: specify the image by its name")


def _is_private(inquiry: _Inquiry, repository: str, image: Image) -> bool:
    """Return whether an image is only for users who may read this repository, of which it has a name."""
    if inquiry.access.is_checked(registry_of(repository)):
        return True
    # An image that was loaded has no digest of a registry, but in a containerd, which does not tell: there it counts as
    # pulled.
    pulled = any(repository_of(digest) == repository for digest in image.digests)
    return pulled and inquiry.records.is_private(repository)


def _find_problem(inquiry: _Inquiry, name: str, image: Image) -> str | None:
    """Return why a request may not read the repository of an image's name; ``None`` if it may."""
    repository = repository_of(name)
    registry, access, records = registry_of(repository), inquiry.access, inquiry.records
    try:
        login = access.login(registry)
        if records.is_allowed(repository, login):
            return None
        for reference in _references(name, image):
            if may_read(inquiry.client, reference, login, inquiry.until - time.monotonic()):
                records.allow(repository, login)
                return None
    except RegistryError as error:
        return f"whether this session may use it is not known: its registry {registry} {error}; try again later"
    refusal = f"its registry {registry} does not let"
    if not login:
        return f"{refusal} this session read it without a password: add {registry} to session_registries"
    if registry in access.logins:
        return f"{refusal} the user {login['username']!r} read it: correct session_registries.{registry}"
    return f"{refusal} the docker login of this agent read it: add {registry} to session_registries"


def _references(name: str, image: Image) -> list[str]:
    """Return by what the registry may know an image: the digest in its name, else its digests there and its tag."""
    repository = repository_of(name)
    asked, _at, digest = name.partition("@")
    if digest:
        return [f"{repository}@{digest}"]
    digests = [each.partition("@")[2] for each in image.digests if repository_of(each) == repository]
    tag = asked.rpartition("/")[2].partition(":")[2] or "latest"
    return [*(f"{repository}@{digest}" for digest in digests), f"{repository}:{tag}"]
