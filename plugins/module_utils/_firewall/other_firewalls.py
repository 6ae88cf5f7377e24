# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Other managers of firewalls on this host: their rules hold beside the project's, and what they drop stays dropped."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

UFW = Path("/etc/ufw/ufw.conf")

_BESIDE = (
    "{name} is at work on this host: its rules hold beside those of the role firewall, and what it drops stays dropped;"
    " let gateways, peers and managers in there as well."
)


def other_firewalls() -> list[str]:
    """Return a sentence for each of ufw and firewalld that is at work here."""
    return [_BESIDE.format(name=name) for name, active in (("ufw", _ufw()), ("firewalld", _firewalld())) if active]


def _ufw() -> bool:
    return UFW.is_file() and re.search(r"^ENABLED=yes$", UFW.read_text(), re.MULTILINE) is not None


def _firewalld() -> bool:
    try:
        done = subprocess.run(["systemctl", "is-active", "--quiet", "firewalld.service"], check=False)
    except FileNotFoundError:
        return False
    return done.returncode == 0
