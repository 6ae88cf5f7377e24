# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether anybody still reads what the command prints: over a lost SSH connection without a terminal, nobody does."""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Iterable


def await_loss_of_readers(outputs: Iterable[int], source: int) -> bool:
    """Wait until nobody can read any of these file descriptors any more, and return true.

    False as soon as nobody writes to the pipe ``source`` any more. What goes to files, or to nowhere, has no readers:
    false, too, if all of it does.
    """
    read = {output for output in outputs if _has_reader(output)}
    if not read:
        return False
    poller = select.poll()
    for descriptor in (source, *read):
        # That the other side is closed is reported whatever else is asked for.
        poller.register(descriptor, 0)
    while read:
        for descriptor, _event in poller.poll():
            if descriptor == source:
                return False
            poller.unregister(descriptor)
            read.remove(descriptor)
    return True


def _has_reader(output: int) -> bool:
    try:
        mode = os.fstat(output).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(output)
