# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Labels of agents, words by which sessions choose among them, such as ``h100``; and the domains that they are in."""

from __future__ import annotations

import re
from collections.abc import Sequence

LABEL_RULE = "must have 1 to 63 of A-Z, a-z, 0-9, . _ = / and -, a letter or digit first"

MAX_DOMAINS = 8

_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=/-]{0,62}")


def is_label(text: str) -> bool:
    """Return whether a text is a label."""
    return _LABEL.fullmatch(text) is not None


def topology_problem(topology: Sequence[str], levels: Sequence[str]) -> str:
    """Return what is wrong with the domains of an agent, and the names of their levels, as a phrase; empty if nothing.

    Both are from the outside in. Levels need no names: sessions may use their numbers.
    """
    for option, names in (("agent_topology", topology), ("agent_topology_levels", levels)):
        invalid = [name for name in names if not is_label(name)]
        if invalid:
            return f"{option}: {invalid[0]!r} {LABEL_RULE}"
        if len(names) > MAX_DOMAINS:
            return f"{option}: {len(names)} levels are more than {MAX_DOMAINS}"
    if len({*levels}) < len(levels) or any(map(str.isdigit, levels)):
        return f"agent_topology_levels: {', '.join(levels)} must be different words, not numbers"
    if levels and topology and len(levels) != len(topology):
        return (
            f"agent_topology: {', '.join(topology)} must be one domain for each of agent_topology_levels"
            f" ({', '.join(levels)}), from the outside in"
        )
    return ""
