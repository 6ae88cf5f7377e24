# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How far a pull is, and how that is told."""

from __future__ import annotations

import dataclasses

_UNITS = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far a pull is: bytes that have come, of those of the layers that have begun to; layers that are in place.

    The engine does not say how large a layer is that has not begun: while ``more`` is true, there are such.
    """

    bytes_done: int = 0
    bytes_total: int = 0
    layers_done: int = 0
    layers_total: int = 0
    more: bool = False

    def told(self) -> str:
        """Return it as a phrase such as ``1.2 of 4.6 GB, 12 of 31 layers``; empty while there is nothing to tell."""
        if not self.bytes_total:
            return ""
        factor, unit = next((one for one in _UNITS if self.bytes_total >= one[0]), _UNITS[-1])
        total = f"{'at least ' if self.more else ''}{self.bytes_total / factor:.1f} {unit}"
        return f"{self.bytes_done / factor:.1f} of {total}, {self.layers_done} of {self.layers_total} layers"
