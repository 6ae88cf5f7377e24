# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The public keys of containers."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class PublicKeys:
    """The public halves of one container, each ``ssh-ed25519 AAAA…`` without a comment."""

    user: str
    host: str
