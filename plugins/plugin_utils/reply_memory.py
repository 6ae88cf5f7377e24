# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Limits the memory that a reply of a host takes while it arrives: Ansible's connections read without a limit."""

from __future__ import annotations

import contextlib
import re
import resource
from collections.abc import Iterator
from pathlib import Path

from ansible.errors import AnsibleActionFail

MEMORY = 512 << 20
"""How many bytes of memory the replies that a process reads at a time may take."""

TOO_MUCH = f"this host sent so much that it does not fit into {MEMORY >> 20} MiB."

_DATA = re.compile(r"^VmData:\s+(\d+) kB$", re.MULTILINE)


def limit_memory() -> tuple[int, int]:
    """Let this process take :data:`MEMORY` more than it has, and fail to take more; return the limit before."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    used = _DATA.search(Path("/proc/self/status").read_text())
    if used:
        limit = (int(used[1]) << 10) + MEMORY
        resource.setrlimit(resource.RLIMIT_DATA, (limit if soft == resource.RLIM_INFINITY else min(limit, soft), hard))
    return soft, hard


@contextlib.contextmanager
def limited_memory() -> Iterator[None]:
    """Raise :class:`MemoryError`, in any thread, if what hosts send within the block takes more than :data:`MEMORY`."""
    before = limit_memory()
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


@contextlib.contextmanager
def bounded_memory() -> Iterator[None]:
    """Raise :class:`AnsibleActionFail` if what a host sends within the block takes more than :data:`MEMORY`.

    The limit is that of the process, in which only one thread may be at this.
    """
    try:
        with limited_memory():
            yield
    except MemoryError:
        raise AnsibleActionFail(TOO_MUCH) from None
