# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Connect to an agent's Docker engine."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from .._model.errors import ClusterError
from .api_version import OLDEST, agree
from .light_client import EngineSilentError, LightClient, newest_version
from .sdk import REMEDY, SdkUnavailableError, clash, docker


class DockerUnavailableError(ClusterError):
    """The engine cannot be used; the message is one sentence for the operator."""


_UNIX = "unix://"

PING_SECONDS = 20
"""How long an engine may take for the first, smallest answer, for which it waits for nothing once it has started."""


def refuse_rootless(docker_host: str, info: Mapping[str, Any]) -> None:
    """Raise :class:`DockerUnavailableError` for an engine without root, from its system information."""
    if any(str(option).partition(",")[0] == "name=rootless" for option in info.get("SecurityOptions") or ()):
        raise DockerUnavailableError(
            f"the Docker engine at {docker_host} is rootless, and cannot give sessions their networks, devices and"
            " limits: set agent_docker_host to an engine that runs as root, such as unix:///var/run/docker.sock, or"
            " leave it out and install one."
        )


def connect(docker_host: str, timeout: int = 60) -> docker.APIClient:
    """Return a client whose calls name the newest version of the API that the engine and this collection know.

    ``timeout`` limits each of its calls, in seconds. Raises DockerUnavailableError if python3-docker is missing, the
    engine does not answer within ``PING_SECONDS``, or is older than any that this collection knows.
    """
    if not docker_host.startswith(_UNIX) or importlib.util.find_spec("docker") is None:
        return _connect_sdk(docker_host, timeout)
    path = docker_host[len(_UNIX) :]
    try:
        newest = newest_version(path, min(timeout, PING_SECONDS))
    except EngineSilentError as error:
        raise DockerUnavailableError(str(error)) from error
    except (OSError, ValueError):
        # For the SDK's errors.
        return _connect_sdk(docker_host, timeout)
    version = agree(newest)
    if version is None:
        raise _too_old(docker_host, newest)
    client: Any = LightClient(path, version, lambda: _connect_sdk(docker_host, timeout), timeout)
    connected: docker.APIClient = client
    return connected


def _too_old(docker_host: str, newest: str) -> DockerUnavailableError:
    return DockerUnavailableError(
        f"the Docker engine at {docker_host} is too old: it knows its API up to {newest}, and backendai.cluster needs"
        f" {OLDEST}, which engine 20.10 and newer ones know: upgrade the engine."
    )


def _unusable(docker_host: str, problem: object) -> DockerUnavailableError:
    return DockerUnavailableError(f"the Docker engine at {docker_host} cannot be used: {problem}")


def _answers(docker_host: str, timeout: int) -> bool:
    """Return whether the engine answers, without the SDK."""
    try:
        return docker_host.startswith(_UNIX) and bool(newest_version(docker_host[len(_UNIX) :], timeout))
    except (OSError, ValueError):
        return False


_ENVIRONMENT = threading.Lock()


@contextlib.contextmanager
def _without_configuration() -> Iterator[None]:
    """Hide the configuration of root's docker command, of which the SDK would use logins, headers and proxies.

    The proxies would be those of all containers, and a file that the SDK cannot read would be the end of its client.
    """
    # Containers are started by several threads, which wait for their clients.
    with _ENVIRONMENT:
        before = {name: os.environ.pop(name, None) for name in ("DOCKER_CONFIG", "HOME")}
        os.environ["HOME"] = "/nonexistent"
        try:
            yield
        finally:
            del os.environ["HOME"]
            os.environ.update({name: value for name, value in before.items() if value is not None})


def _make_sdk(docker_host: str, version: str, timeout: int) -> docker.APIClient:
    """Return a client of the SDK.

    The address is always explicit: docker-py's ``from_env()`` follows the CLI's contexts, and could connect to
    another engine than the configured one.
    """
    with _without_configuration():
        return docker.APIClient(base_url=docker_host, version=version, timeout=timeout)


def _connect_sdk(docker_host: str, timeout: int) -> docker.APIClient:
    """Return a client of the SDK, which has connected once."""
    try:
        sdk_version = docker.__version__
    except SdkUnavailableError as error:
        raise _unusable(docker_host, error) from error
    # Any exception: the errors differ between versions of the SDK, requests and urllib3.
    try:
        client: Any = _make_sdk(docker_host, OLDEST, timeout)
        answer = client.get(client._url("/_ping", versioned_api=False), timeout=min(timeout, PING_SECONDS))
        answer.raise_for_status()
        newest = str(answer.headers["Api-Version"])
        version = agree(newest)
    except Exception as error:
        if _answers(docker_host, min(timeout, PING_SECONDS)):
            raise _unusable(docker_host, clash(error)) from error
        raise DockerUnavailableError(
            f"the Docker engine at {docker_host} does not answer the Docker SDK for Python"
            f" {sdk_version} ({error}): start docker on this host, or {REMEDY}."
        ) from error
    if version is None:
        raise _too_old(docker_host, newest)
    return _make_sdk(docker_host, version, timeout)
