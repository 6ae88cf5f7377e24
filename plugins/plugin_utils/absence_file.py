# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The file, in the folder of the queue, of agents that do not answer."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path

from ..module_utils._model.files import write_atomically
from ._lifecycle.absence import ABSENCES, Absences
from ._queue.store import share_with_group

FILE = "absent-agents"

MAX_SECONDS = 1 << 40
"""Larger numbers in the file are damage: they can be beyond all dates."""


def load_absences(folder: Path) -> Absences:
    """Return the agents that did not answer before; none if the file cannot be read: the count begins anew."""
    try:
        absences = ABSENCES.load((folder / FILE).read_bytes())
    except (OSError, ValueError):
        return Absences()
    numbers = [number for absence in absences.agents.values() for number in dataclasses.astuple(absence)]
    return absences if all(0 <= number < MAX_SECONDS for number in numbers) else Absences()


def save_absences(folder: Path, before: Absences, after: Absences) -> None:
    """Save the agents that do not answer, if there are or were any. Without room, nothing is counted."""
    if before == after:
        return
    with contextlib.suppress(OSError):
        write_atomically(folder / FILE, ABSENCES.dump(after), prepare=lambda handle: share_with_group(handle, folder))
