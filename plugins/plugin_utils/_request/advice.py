# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a user should know before a session is created: said in check mode and by the launch forms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from ...module_utils._model.quantity import format_slots
from .spec import SessionSpec

NO_FOLDER = "No folder in session_mounts can be written: what the containers write is lost when the session ends."


def advise(spec: SessionSpec) -> list[str]:
    """Return sentences about a valid request: what it takes in all, and that it keeps nothing."""
    groups = [(role.replicas, role.resources) for role in spec.effective_roles]
    advice = [describe_total(groups)] if spec.cluster_size > 1 else []
    return advice if any(not mount.read_only for mount in spec.mounts) else [*advice, NO_FOLDER]


def describe_total(groups: Iterable[tuple[int, Mapping[str, int]]]) -> str:
    """Return how the resources of one container add up, for groups of that many containers with these resources."""
    counts, total = Counter[tuple[tuple[str, int], ...]](), Counter[str]()
    for count, slots in groups:
        counts[tuple(slots.items())] += count
        total.update({slot: amount * count for slot, amount in slots.items()})
    terms = " + ".join(f"{count} × ({format_slots(dict(slots))})" for slots, count in counts.items())
    return f"Resources are of one container: {terms} = {format_slots(dict(total))} in all."
