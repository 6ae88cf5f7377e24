# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What others use of an agent, and what is said about it."""

from __future__ import annotations

import contextlib
import dataclasses
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence

from .._docker.foreign import running_foreign
from .._docker.sdk import docker
from .._host.container_use import age, cpu_seconds, memory_bytes
from .._host.gpu_processes import find_busy_gpus
from .._model.errors import one_line
from .._model.foreign import ForeignContainer, foreign_share
from .._model.quantity import format_size

NAMED = 5
"""How many containers a warning names."""

_OPTION = "agent_reserve: auto"


@dataclasses.dataclass(frozen=True)
class ForeignUse:
    """What others use: an amount of ``cpu`` and ``mem``, GPUs by UUID with the process in words, and ``warnings``."""

    share: Mapping[str, int] = dataclasses.field(default_factory=dict)
    gpus: Mapping[str, str] = dataclasses.field(default_factory=dict)
    warnings: Sequence[str] = ()


def read_foreign_use(client: docker.APIClient, gpus: Collection[str], ours: Collection[str]) -> ForeignUse:
    """Return what others use; ``gpus`` are the UUIDs of NVIDIA GPUs, and ``ours`` the ids of our own containers."""
    containers = list(_measure(client, ours))
    share = foreign_share(containers)
    warnings = [_describe(containers, share)] if share else []
    busy: dict[str, str] = {}
    if gpus:
        try:
            busy = find_busy_gpus(gpus, ours)
        except (OSError, subprocess.SubprocessError) as error:
            problem = f"nvidia-smi does not say who computes on GPUs ({one_line(str(error))})"
            warnings.append(f"{_OPTION}: {problem}, so GPUs that others use may be assigned.")
    return ForeignUse(share, busy, warnings)


def busy_warning(gpu: str, process: str) -> str:
    """Return the sentence about a GPU on which somebody else's process computes."""
    return f"{gpu} is assigned to no container: {process}, which is of no session, computes on it ({_OPTION})."


def _measure(client: docker.APIClient, ours: Collection[str]) -> Iterator[ForeignContainer]:
    for container_id, pid, container in running_foreign(client, ours):
        # It may have ended since.
        with contextlib.suppress(OSError):
            cores = cpu_seconds(pid, container_id) / max(1.0, age(pid)) if container.cores is None else 0.0
            memory = memory_bytes(pid, container_id) if container.memory is None else 0
            yield dataclasses.replace(container, used_cores=cores, used_memory=memory)


def _describe(containers: Sequence[ForeignContainer], share: Mapping[str, int]) -> str:
    names = sorted(container.name for container in containers)
    more = [f"{len(names) - NAMED} more"] if len(names) > NAMED else []
    cores = f"{share['cpu']} core{'' if share['cpu'] == 1 else 's'}"
    amounts = f"{cores} and {format_size(share['mem'])} are not offered"
    return f"{_OPTION}: {amounts}, because containers of others use them: {', '.join([*names[:NAMED], *more])}."
