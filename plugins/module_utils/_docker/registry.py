# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ask an image registry, through the engine, whether a login may read an image.

The engine asks as it would for a pull: with its certificates, its proxies and its insecure registries. A login is a
mapping that the engine receives: ``username`` and ``password``, or what ``docker login`` stored; empty for nobody.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

from .._model.errors import ClusterError, reason
from .sdk import docker

# Engines pass these answers on with status 500 if they come from a token server, or if there is no login to send.
_REFUSALS = re.compile(r"(^|: )(no basic auth credentials|denied|unauthorized)\b", re.IGNORECASE)

# The engine may quote the registry, up to this length here.
_MAX_MESSAGE = 200


class RegistryError(ClusterError):
    """A registry gave no usable answer. The message is a phrase that follows the name of the registry."""


def agent_login(registry: str) -> dict[str, Any]:
    """Return the login to a registry that root has on this host (``docker login``); empty without one.

    It is resolved here and not in the SDK's requests: those would send the login to Docker Hub to a host such as
    ``LOCALHOST``, which the SDK takes for a folder of Docker Hub. Raises :class:`RegistryError` if it cannot be read.
    """
    try:
        return docker.auth.resolve_authconfig(docker.auth.load_config(), registry) or {}
    # Version 5 of the SDK passes errors of credential helpers on, and all those of a file in another form.
    except (docker.errors.DockerException, docker.credentials.StoreError, ValueError, TypeError, AttributeError):
        raise RegistryError(
            "cannot be asked, because the docker login of this host cannot be read (~/.docker/config.json of root)"
        ) from None


def may_read(client: docker.APIClient, reference: str, login: Mapping[str, Any], seconds: float) -> bool:
    """Return whether a login may read an image, which is false as well if the registry does not have the image.

    Raises :class:`RegistryError` if that is not known after ``seconds``.
    """
    # The engine sends its answer at once, so this limits the whole request. The SDK declares whole seconds.
    limited: Any = client
    ordinary, limited.timeout = client.timeout, max(seconds, 0.01)
    until = time.monotonic() + limited.timeout
    try:
        client.inspect_distribution(reference, auth_config=dict(login))
    except docker.errors.APIError as error:
        if error.status_code in (401, 403, 404) or _REFUSALS.search(reason(error)):
            return False
        raise RegistryError(f"cannot be asked ({reason(error)[:_MAX_MESSAGE]})") from None
    # The SDK and its HTTP library raise many.
    except (docker.errors.DockerException, OSError, ValueError) as error:
        problem = "in time" if time.monotonic() >= until else f"({reason(error)[:_MAX_MESSAGE]})"
        raise RegistryError(f"does not answer {problem}") from None
    finally:
        limited.timeout = ordinary
    return True
