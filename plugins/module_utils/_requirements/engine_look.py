# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Looks at the Docker engines of a host before it is provisioned, when the Docker SDK may not be there yet."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple, NoReturn

from .._docker.light_client import LightClient, newest_version
from .._host import installation

SNAP = Path("/snap/docker/current/bin/dockerd")
UNIX = "unix://"
_SECONDS = 30.0


class Engine(NamedTuple):
    """What an engine says of itself.

    ``oldest_api`` is the oldest version of its API that it answers, and ``options`` are its security options.
    """

    version: str
    oldest_api: str = ""
    options: tuple[str, ...] = ()
    is_podman: bool = False

    @property
    def has_selinux(self) -> bool:
        """Whether it gives containers labels of SELinux (``selinux-enabled``)."""
        return any(option.startswith("name=selinux") for option in self.options)


class Program(NamedTuple):
    """The program of an engine: its ``path``, and the package that it is of, empty for one of no package."""

    path: str
    package: str = ""

    def __str__(self) -> str:
        """Return the path and where it is from."""
        if self.is_snap:
            return f"{self.path} of a snap"
        return f"{self.path} of {f'the package {self.package}' if self.package else 'no package'}"

    @property
    def is_snap(self) -> bool:
        """Whether it is in a snap, which sees only parts of the host's files."""
        return self.path.startswith("/snap/")


def find_programs(snap: Path = SNAP) -> tuple[Program, ...]:
    """Return the programs of all engines of this host: that of its packages or its operator, and that of a snap."""
    path = shutil.which("dockerd")
    found = [Program(path, installation.owner_of("dockerd"))] if path and not path.startswith("/snap/") else []
    return (*found, *([Program(str(snap))] if snap.exists() else []))


def ask_engine(docker_host: str) -> Engine | None:
    """Return what the engine at an address says; ``None`` if none answers, or the address is no socket of this host."""
    path = docker_host.removeprefix(UNIX)
    if path == docker_host:
        return None
    try:
        # By a version of the API that it knows itself.
        client = LightClient(path, newest_version(path, _SECONDS), _no_sdk, _SECONDS)
        version, info = client.version(), client.info()
    except (OSError, ValueError):
        return None
    if not (isinstance(version, dict) and isinstance(info, dict)):
        return None
    return Engine(
        str(version.get("Version") or ""),
        str(version.get("MinAPIVersion") or ""),
        tuple(map(str, info.get("SecurityOptions") or ())),
        any(part.get("Name") == "Podman Engine" for part in version.get("Components") or ()),
    )


def _no_sdk() -> NoReturn:
    raise ConnectionError("the engine does not answer, and the Docker SDK may not be there to ask again")
