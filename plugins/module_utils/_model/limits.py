# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a container may use of its agent besides its slots: processes, and space for its log."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from .quantity import parse_bytes
from .validation import ValidationErrors


@dataclasses.dataclass(frozen=True)
class ContainerLimits:
    """The limits of every new container on an agent.

    A container may have ``pids`` processes and threads, and ``pids_per_core`` more for each of its cores; with 0 pids
    there is no limit. Its log is kept in ``log_files`` files of at most ``log_bytes``; with 0 bytes, the engine's own
    settings apply.
    """

    pids: int = 4096
    pids_per_core: int = 512
    log_bytes: int = 20 << 20
    log_files: int = 5

    def pids_of(self, cores: int) -> int | None:
        """Return the limit of processes and threads of a container with that many cores; ``None`` for none."""
        return self.pids + self.pids_per_core * cores if self.pids else None


DEFAULT_LIMITS = ContainerLimits()


def parse_limits(options: Mapping[str, Any]) -> ContainerLimits:
    """Return the limits of ``pids_limit``, ``pids_per_core``, ``log_max_size`` and ``log_max_files``.

    Raises :class:`ValidationError` with a sentence for each problem.
    """
    problems = ValidationErrors()
    pids = parse_limit(problems, "agent_pids_limit", options["pids_limit"])
    per_core, files = options["pids_per_core"], options["log_max_files"]
    if per_core < 0:
        problems.add_invalid("agent_pids_per_core", per_core, "must be a whole number, zero or more")
    if files < 1:
        problems.add_invalid("agent_log_max_files", files, "must be a whole number, one or more")
    log_bytes = 0
    try:
        log_bytes = parse_bytes(options["log_max_size"])
    except ValueError as error:
        problems.add_invalid("agent_log_max_size", options["log_max_size"], f"{error}, or 0 for no limit")
    problems.raise_if_any()
    return ContainerLimits(pids, per_core, log_bytes, files)


def parse_limit(problems: ValidationErrors, option: str, value: int) -> int:
    """Return a limit that 0 and -1 switch off, as 0."""
    if value < -1:
        problems.add_invalid(option, value, "must be a whole number, zero or more; 0 and -1 are no limit")
    return max(value, 0)
