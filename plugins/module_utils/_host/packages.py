# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Asks the package manager of a host what is installed, and what its package sources have."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from typing import NamedTuple


class Package(NamedTuple):
    """A package: the version that is ``installed``, and the one that the package sources have; empty without one."""

    installed: str = ""
    candidate: str = ""

    @property
    def version(self) -> str:
        """The version that the host has after the package was installed, which upgrades nothing."""
        return self.installed or self.candidate


def name_of(wanted: str) -> str:
    """Return the name of a package to install, which a version or a release may follow."""
    return re.split("[=/]", wanted)[0]


def read_packages(manager: str, names: Sequence[str]) -> dict[str, Package]:
    """Return the packages of these names that exist, as ``manager`` says: ``apt`` or ``dnf``.

    Raises :class:`subprocess.CalledProcessError` or :class:`OSError`.
    """
    if not names:
        return {}
    found = _read_apt(names) if manager == "apt" else _read_dnf(names)
    return {name: package for name, package in found.items() if package.version}


_POLICY = re.compile(r"^(\S+):\n +Installed: (.*)\n +Candidate: (.*)$", re.MULTILINE)


def _read_apt(names: Sequence[str]) -> dict[str, Package]:
    known = _POLICY.findall(_run(["apt-cache", "policy", *names]))
    return {name: Package(*(version if version != "(none)" else "" for version in found)) for name, *found in known}


def _read_dnf(names: Sequence[str]) -> dict[str, Package]:
    # It names those that are not installed in other lines, and fails.
    installed = _pairs(_run(["rpm", "--query", "--queryformat", "%{NAME} %{VERSION}\n", *names], check=False), names)
    candidates = _pairs(_run(["dnf", "--quiet", "repoquery", "--queryformat", "%{name} %{version}\n", *names]), names)
    return {name: Package(installed.get(name, ""), candidates.get(name, "")) for name in names}


def _pairs(text: str, names: Sequence[str]) -> dict[str, str]:
    """Return the last version of each name; ``dnf`` lists the newest last."""
    words = [line.split() for line in text.splitlines()]
    return {line[0]: line[1] for line in words if len(line) == 2 and line[0] in names}


def _run(command: Sequence[str], *, check: bool = True) -> str:
    environment = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(command, env=environment, check=check, capture_output=True, text=True).stdout
