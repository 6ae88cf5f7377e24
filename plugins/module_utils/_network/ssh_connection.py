# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The SSH connection by which somebody works on this host."""

from __future__ import annotations

import os
from pathlib import Path

PROC = Path("/proc")

_VARIABLE = "SSH_CONNECTION"


def ssh_connection() -> str:
    """Return client address, client port, own address and own port, as sshd(8) says them; empty where there is no SSH.

    What changes the user, such as sudo, does not hand the variable on: then a process above this one has it.
    """
    found, process = os.environ.get(_VARIABLE, ""), os.getpid()
    while not found and process > 1:
        process = _parent(process)
        found = _environment(process).get(_VARIABLE, "")
    return found


def _parent(process: int) -> int:
    try:
        # Behind the name of the program, which may hold anything: state and parent.
        return int((PROC / str(process) / "stat").read_bytes().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def _environment(process: int) -> dict[str, str]:
    try:
        variables = (PROC / str(process) / "environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return {}
    return dict(one.partition("=")[::2] for one in variables)
