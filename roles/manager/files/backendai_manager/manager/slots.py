# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How many commands run at once: locked files, which the kernel unlocks however a command ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

PAUSE = 0.3


class Slots:
    """The files in a folder of the account; ``per_user`` and ``total`` of them can be locked."""

    def __init__(self, folder: Path, per_user: int, total: int) -> None:
        self._folder, self._per_user, self._total = folder, per_user, total

    @contextlib.contextmanager
    def hold(self, uid: int, wait: Callable[[float], None], waiting: Callable[[str], None]) -> Iterator[None]:
        """Hold a slot of a user, and one of all users.

        ``waiting`` is told once, in a sentence, that there is none. ``wait`` may raise an exception to end that.
        """
        self._folder.mkdir(mode=0o700, exist_ok=True)
        own = f"{self._per_user} of your commands run already: this one waits for one of them to end."
        others = f"{self._total} commands of all users run already: this one waits for one of them to end."
        with contextlib.ExitStack() as stack:
            # The user's first, so that who waits for it keeps nothing from others.
            for prefix, count, sentence in ((f"user-{uid}", self._per_user, own), ("all", self._total, others)):
                stack.callback(os.close, self._lock(prefix, count, sentence, wait, waiting))
            yield

    def _lock(
        self, prefix: str, count: int, sentence: str, wait: Callable[[float], None], waiting: Callable[[str], None]
    ) -> int:
        """Return the descriptor of a file that this process has locked."""
        said = False
        while True:
            for number in range(count):
                handle = os.open(self._folder / f"{prefix}-{number}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return handle
                os.close(handle)
            if not said:
                waiting(sentence)
                said = True
            wait(PAUSE)
