# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The SSH connection by which somebody works on this host."""

from __future__ import annotations

import contextlib
import os

from ansible_collections.backendai.cluster.plugins.module_utils._host.processes import parent_pid, process_environment

_VARIABLE = "SSH_CONNECTION"


def ssh_connection() -> str:
    """Return client address, client port, own address and own port, as sshd(8) says them; empty where there is no SSH.

    What changes the user, such as sudo, does not hand the variable on: then a process above this one has it.
    """
    found, pid = os.environ.get(_VARIABLE, ""), os.getpid()
    with contextlib.suppress(OSError):
        while not found and pid > 1:
            pid = parent_pid(pid)
            found = process_environment(pid).get(_VARIABLE, "")
    return found
