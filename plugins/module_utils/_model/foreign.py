# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What containers of others take from an agent: their limits, or what they use without one, in whole amounts."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

MEMORY_STEP = 1 << 30
"""What is used without a limit counts in whole steps of this many bytes, so that it seldom changes."""


@dataclasses.dataclass(frozen=True)
class ForeignContainer:
    """A running container that is not of this collection.

    ``cores`` and ``memory`` in bytes are its limits, ``None`` without one; ``used_cores``, the average since it was
    started, and ``used_memory`` what it uses. What has a limit need not be measured.
    """

    name: str
    cores: float | None = None
    memory: int | None = None
    used_cores: float = 0.0
    used_memory: int = 0


def foreign_share(containers: Iterable[ForeignContainer]) -> dict[str, int]:
    """Return what containers take together: whole cores as ``cpu``, and bytes as ``mem``; empty without containers.

    A limit counts in full, because what is below it is promised. Otherwise what is used counts.
    """
    running = list(containers)
    if not running:
        return {}
    cores = sum(one.used_cores if one.cores is None else one.cores for one in running)
    promised = sum(one.memory for one in running if one.memory is not None)
    used = sum(one.used_memory for one in running if one.memory is None)
    # Sums of tenths are not exact.
    return {"cpu": math.ceil(round(cores, 6)), "mem": promised + math.ceil(used / MEMORY_STEP) * MEMORY_STEP}
