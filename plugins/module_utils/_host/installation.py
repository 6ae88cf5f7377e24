# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads what is installed on a host, and removes what is to go from hosts of Debian's family."""

from __future__ import annotations

import grp
import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path

from .host_record import Installed

LEFT_BY_PACKAGES = {
    "haproxy": ("/var/lib/haproxy", "/run/haproxy", "/run/haproxy.pid", "/run/haproxy-master.sock"),
}
"""What packages of Debian leave when they are removed with their configuration."""

ENGINES = ("docker-ce", "docker.io", "moby-engine")
"""The packages of the Docker engine: of Docker, of Debian, and of Fedora. Each replaces the others."""

# Another program may be at it, such as unattended-upgrades.
_APT = ("apt-get", "--quiet", "--assume-yes", "--option=DPkg::Lock::Timeout=600")
_DPKG_STATUS = Path("/var/lib/dpkg/status")
_REMOVED = re.compile(r"^(?:Purg|Remv) ([^\s:]+)", re.MULTILINE)


def read_installed() -> Installed:
    """Return the packages, users and groups of this host; no packages where nothing of ours can come with one.

    Raises :class:`subprocess.CalledProcessError`.
    """
    if uses_rpm():
        listing = _run("rpm", "--query", "--all", "--queryformat", "installed %{NAME}\n")
    elif uses_dpkg():
        listing = _run("dpkg-query", "--show", "--showformat=${db:Status-Status} ${Package}\n")
    else:
        listing = ""
    return Installed(
        frozenset(line.split()[1] for line in listing.splitlines() if line.startswith("installed ")),
        frozenset(user.pw_name for user in pwd.getpwall()),
        frozenset(group.gr_name for group in grp.getgrall()),
    )


def read_automatic() -> frozenset[str]:
    """Return the packages that came as dependencies only; none where that is not known.

    Raises :class:`subprocess.CalledProcessError`.
    """
    if not uses_dpkg():
        return frozenset()
    return frozenset(line.partition(":")[0] for line in _run("apt-mark", "showauto").split())


def uses_rpm() -> bool:
    """Return whether packages of this host are rpm's, also if dpkg is there as a tool."""
    return not _DPKG_STATUS.exists() and shutil.which("rpm") is not None


def uses_dpkg() -> bool:
    """Return whether packages of this host are dpkg's."""
    return not uses_rpm() and shutil.which("dpkg-query") is not None


def read_sysctls(names: Collection[str]) -> dict[str, str]:
    """Return the present values of kernel settings, of those that this kernel has."""
    values = {}
    for name in names:
        result = subprocess.run(["sysctl", "--values", name], capture_output=True, text=True, check=False)
        if result.returncode == 0:
            values[name] = result.stdout.strip()
    return values


def read_units(names: Collection[str]) -> dict[str, str]:
    """Return the states of units, such as ``enabled``, ``masked``, or ``not-found``."""
    states = {}
    for name in names:
        result = subprocess.run(["systemctl", "is-enabled", name], capture_output=True, text=True, check=False)
        states[name] = result.stdout.strip() or "not-found"
    return states


def read_tables() -> list[str]:
    """Return the nftables tables of this host, such as ``ip filter``; none without nftables."""
    if shutil.which("nft") is None:
        return []
    return [line.partition(" ")[2] for line in _run("nft", "list", "tables").splitlines()]


def keep_needed(packages: Collection[str], protected: Collection[str]) -> dict[str, list[str]]:
    """Return those of ``packages`` that cannot be removed, each with what needs it.

    That is a package that is not among them, or one of ``protected``.
    """
    if not packages or not _others(packages, packages, protected):
        return {}
    needed = {package: _others([package], packages, protected) for package in sorted(packages)}
    return {package: others for package, others in needed.items() if others}


def _others(removed: Collection[str], packages: Collection[str], protected: Collection[str]) -> list[str]:
    """Return what else would go with ``removed`` packages: packages that may not go."""
    gone = set(_REMOVED.findall(_run(*_APT, "--simulate", "purge", *sorted(removed))))
    return sorted((gone - {*packages}) | (gone & {*protected}))


def purge(packages: Collection[str]) -> None:
    """Remove packages with their configuration. Raises :class:`subprocess.CalledProcessError`."""
    if packages:
        _run(*_APT, "purge", *sorted(packages))


def root_is_locked() -> bool:
    """Return whether root has no password. Raises :class:`subprocess.CalledProcessError`."""
    return _run("passwd", "--status", "root").split()[1:2] == ["L"]


def remove_accounts(users: Collection[str], groups: Collection[str]) -> None:
    """Remove users, even those that are logged in, and groups; a group goes with its user.

    Raises :class:`subprocess.CalledProcessError`.
    """
    for name in sorted(users):
        _run("userdel", "--force", name)
    for name in sorted(group.gr_name for group in grp.getgrall() if group.gr_name in groups):
        _run("groupdel", name)


def owner_of(program: str) -> str:
    """Return the package of a program; empty without the program, or for one of no package."""
    path = shutil.which(program)
    if path is None or not (uses_rpm() or uses_dpkg()):
        return ""
    target = os.path.realpath(path)
    command = ["rpm", "--query", "--file", "--queryformat", "%{NAME}:", target]
    result = subprocess.run(
        command if uses_rpm() else ["dpkg-query", "--search", target], capture_output=True, text=True, check=False
    )
    return result.stdout.partition(":")[0] if result.returncode == 0 else ""


def _run(*command: str) -> str:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    return run_checked(command, environment)


def run_checked(command: Sequence[str], environment: dict[str, str] | None = None, text: str = "") -> str:
    """Run a command and return its output. Raises :class:`subprocess.CalledProcessError`."""
    return subprocess.run(command, env=environment, input=text, check=True, capture_output=True, text=True).stdout
