# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Labels of agents: words by which sessions choose among them, such as ``h100`` or ``rack=12``."""

from __future__ import annotations

import re

LABEL_RULE = "must have 1 to 63 of A-Z, a-z, 0-9, . _ = / and -, a letter or digit first"

_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=/-]{0,62}")


def is_label(text: str) -> bool:
    """Return whether a text is a label."""
    return _LABEL.fullmatch(text) is not None
