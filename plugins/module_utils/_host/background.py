# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A process of its own, which goes on when the one that starts it has ended."""

from __future__ import annotations

import os
from collections.abc import Callable


def detach(act: Callable[[], None], keep: int) -> None:
    """Do something in a process of its own, which shares no open file with this one but ``keep``.

    Whoever waits for the end of this process, or of its output, does not wait for that one. What goes wrong there is
    not heard of here, and what it imports later must not come from a place that goes away with this process.
    """
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        os.setsid()
        if os.fork() == 0:
            _let_go(keep)
            act()
    finally:
        # Neither comes back into what called this.
        os._exit(0)


def _let_go(keep: int) -> None:
    os.chdir("/")
    os.umask(0o077)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nothing, standard)
    os.closerange(3, keep)
    os.closerange(keep + 1, os.sysconf("SC_OPEN_MAX"))
