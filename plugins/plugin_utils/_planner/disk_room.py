# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether the images that a session needs have room on the disks of its agents."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence

from ...module_utils._model.facts import AgentFacts
from ...module_utils._model.printable import printable
from ...module_utils._model.quantity import format_size


def describe_tight_disks(
    missing_images: Iterable[Mapping[str, Sequence[str]]], facts: Mapping[str, AgentFacts]
) -> list[str]:
    """Return a sentence for each agent whose disk would be full once it has pulled the images that a session lacks.

    ``missing_images`` are those of each session, by agent. A size is that on another agent, where the image is
    unpacked; it is not known if no agent has the image.
    """
    size_elsewhere = functools.cache(functools.partial(_size_elsewhere, agents=facts.values()))
    warnings = []
    for agent, names in (item for of_session in missing_images for item in of_session.items()):
        disk = facts[agent].image_disk
        sizes = [size_elsewhere(name) for name in names]
        needed = sum(size or 0 for size in sizes)
        if disk is None or disk.free - needed >= disk.reserve:
            continue
        amount = f"{'at least ' if None in sizes else ''}{format_size(needed)}" if needed else "an unknown amount"
        room = (
            f"{format_size(disk.free)} are free in {disk.folder}, and agent_disk_reserve is {format_size(disk.reserve)}"
        )
        warnings.append(
            f"{agent}: its disk may get full: the images ({', '.join(names)}) take {amount}, {room}; make room with"
            " backendai.cluster.prune_images, or choose other agents."
        )
    return [printable(warning) for warning in warnings]


def _size_elsewhere(name: str, agents: Iterable[AgentFacts]) -> int | None:
    """Return the size of an image on the agent where it is largest; ``None`` if no agent has it."""
    sizes = [agent.image_disk.sizes[name] for agent in agents if agent.image_disk and name in agent.image_disk.sizes]
    return max(sizes, default=None)
