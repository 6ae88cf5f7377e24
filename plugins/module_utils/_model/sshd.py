# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The configuration of the sshd of one container."""

from __future__ import annotations

from .plan import Kernel
from .session import SSH_PORT

KIT_CONFIG = "/opt/backendai/etc/sshd_config"

LOGIN_BYTES = 6 << 20
"""What an unfinished login takes of its container's memory at most, with OpenSSH 10."""

MIN_LOGINS, MAX_LOGINS = 10, 200


def sshd_config(kernel: Kernel) -> str:
    """Return the configuration of a container's sshd: where it listens, and how many logins may be unfinished.

    A source that opens all it may, such as a gateway, leaves room for the session's containers. Those that share their
    agent's network listen on different ports of one address.
    """
    logins = min(max(kernel.resources["mem"] // LOGIN_BYTES, MIN_LOGINS), MAX_LOGINS)
    lines = [f"PerSourceMaxStartups {logins}", f"MaxStartups {logins * 3 // 2}", f"Include {KIT_CONFIG}"]
    if kernel.ssh_port != SSH_PORT:
        lines.append(f"ListenAddress {kernel.address}:{kernel.ssh_port}")
    return "".join(f"{line}\n" for line in lines)
