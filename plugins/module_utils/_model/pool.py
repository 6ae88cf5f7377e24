# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An amount that several share: what one does not use of its part is for those after it."""

from __future__ import annotations

import threading
from collections.abc import Iterator


class Pool:
    """An amount, such as bytes, of which threads take parts."""

    def __init__(self, amount: int) -> None:
        self._left, self._lock = amount, threading.Lock()

    def take(self, part: float, most: int | None = None) -> int:
        """Take a part of what is left, at most so much, and return it."""
        with self._lock:
            taken = int(self._left * part)
            if most is not None:
                taken = min(taken, most)
            self._left -= taken
        return taken

    def give_back(self, unused: int) -> None:
        """Give back what was not used."""
        with self._lock:
            self._left += max(0, unused)


def equal_parts(count: int, whole: float = 1.0) -> Iterator[float]:
    """Yield for each of ``count`` the part of what is then left that makes all their shares of ``whole`` equal."""
    # Threads may share an iterator of a list.
    return iter([whole / left for left in range(count, 0, -1)])
