# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The Docker SDK for Python, imported on first use.

The import takes 0.1 s of CPU, and the frequent reconciliation of an agent usually needs no engine. If the SDK cannot be
imported, its use raises :class:`SdkUnavailableError`. Its errors have stand-ins then, for what is asked without it.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
from typing import TYPE_CHECKING, Any

from .._model.errors import ClusterError

if TYPE_CHECKING:
    import docker
    import docker.auth
    import docker.credentials
    import docker.errors
    import docker.types
    import docker.utils
else:

    class _Sdk:
        def __getattr__(self, name: str) -> Any:
            if name.startswith("__") and name != "__version__":
                raise AttributeError(name)
            try:
                return getattr(importlib.import_module("docker"), name)
            # Any exception: the errors differ between versions of the SDK, requests and urllib3.
            except Exception as error:
                if name == "errors":
                    return _StandIns()
                raise SdkUnavailableError(_explain(error)) from error

    class _DockerError(OSError):
        def __init__(self, message: str, explanation: str = "") -> None:
            super().__init__(message)
            self.explanation = explanation

    class _StandIns:
        DockerException = _DockerError
        APIError = type("APIError", (_DockerError,), {"__module__": "docker.errors"})
        NotFound = type("NotFound", (APIError,), {"__module__": "docker.errors"})

    docker = _Sdk()

__all__ = ["REMEDY", "SdkUnavailableError", "clash", "docker"]

REMEDY = "run backendai.cluster.provision_agents on this host"


class SdkUnavailableError(ClusterError, ImportError):
    """The SDK cannot be imported; the message is one sentence for the operator."""


# The interpreter of distributions: their package of the SDK is for no other one.
_PYTHON = "/usr/bin/python3"

# What the SDK sends its requests with. Not each of its versions works with each of theirs.
_LIBRARIES = ("docker", "requests", "urllib3")


def _explain(error: Exception) -> str:
    if importlib.util.find_spec("docker"):
        return clash(error)
    remedy = (
        f"install python3-docker, or {REMEDY}"
        if os.path.realpath(sys.executable) == os.path.realpath(_PYTHON)
        else f"set ansible_python_interpreter to {_PYTHON}, which python3-docker is for, or install the package docker"
        f" for {sys.executable}"
    )
    return f"the Docker SDK for Python cannot be imported by {sys.executable} ({error}): {remedy}."


def clash(error: Exception) -> str:
    """Return a sentence for the SDK's failure with the libraries of this interpreter: their versions and places."""
    return (
        f"the Docker SDK for Python does not work with the libraries that {sys.executable} has ({error}); there are"
        f" {_libraries()}: remove what pip has installed beside the packages of the distribution (pip uninstall), or"
        " set ansible_python_interpreter to a Python whose docker, requests and urllib3 fit together."
    )


def _libraries() -> str:
    """Return the versions and places of the SDK and its libraries, as this interpreter finds them."""
    # Imported only here, as its import takes milliseconds.
    import importlib.metadata

    found = []
    for name in _LIBRARIES:
        with contextlib.suppress(ImportError, ValueError):
            spec = importlib.util.find_spec(name)
            place = os.path.dirname(os.path.dirname(spec.origin or "")) if spec else ""
            found.append(f"{name} {importlib.metadata.version(name)} in {place}")
    return ", ".join(found)
