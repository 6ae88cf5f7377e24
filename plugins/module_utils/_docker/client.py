# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Connect to an agent's Docker engine."""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Any

from .._model.errors import ClusterError
from .api_version import OLDEST, agree
from .light_client import LightClient, newest_version
from .sdk import docker

REMEDY = "run backendai.cluster.provision_agents on this host"


class DockerUnavailableError(ClusterError):
    """The engine cannot be used; the message is one sentence for the operator."""


_UNIX = "unix://"


def connect(docker_host: str, timeout: int = 60) -> docker.APIClient:
    """Return a client whose calls name the newest version of the API that the engine and this collection know.

    Raises DockerUnavailableError if python3-docker is missing, the engine does not respond within ``timeout`` seconds,
    or is older than any that this collection knows.
    """
    if not docker_host.startswith(_UNIX) or importlib.util.find_spec("docker") is None:
        return _connect_sdk(docker_host, timeout)
    path = docker_host[len(_UNIX) :]
    try:
        newest = newest_version(path, timeout)
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


# The interpreter of distributions: their package of the SDK is for no other one.
_PYTHON = "/usr/bin/python3"


def _sdk_remedy(interpreter: str) -> str:
    """Return how an interpreter gets the SDK, or another one that has it is used."""
    if os.path.realpath(interpreter) == os.path.realpath(_PYTHON):
        return f"install python3-docker, or {REMEDY}"
    return (
        f"set ansible_python_interpreter to {_PYTHON}, which python3-docker is for, or install the package docker for"
        f" {interpreter}"
    )


def _connect_sdk(docker_host: str, timeout: int) -> docker.APIClient:
    """Return a client of the SDK, which has connected once.

    The address is always explicit: docker-py's ``from_env()`` follows the CLI's contexts, and could connect to
    another engine than the configured one.
    """
    try:
        sdk_version = docker.__version__
    except ImportError as error:
        raise DockerUnavailableError(
            f"the Docker SDK for Python cannot be imported by {sys.executable} ({error}), so the engine at"
            f" {docker_host} cannot be used: {_sdk_remedy(sys.executable)}."
        ) from error
    # Any exception: the errors differ between versions of the SDK, requests and urllib3.
    try:
        client: Any = docker.APIClient(base_url=docker_host, version=OLDEST, timeout=timeout)
        answer = client.get(client._url("/_ping", versioned_api=False), timeout=timeout)
        answer.raise_for_status()
        newest = str(answer.headers["Api-Version"])
        version = agree(newest)
    except Exception as error:
        raise DockerUnavailableError(
            f"the Docker engine at {docker_host} does not answer the Docker SDK for Python"
            f" {sdk_version} ({error}): start docker on this host, or {REMEDY}."
        ) from error
    if version is None:
        raise _too_old(docker_host, newest)
    return docker.APIClient(base_url=docker_host, version=version, timeout=timeout)
