# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What came of a start on one agent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

DOCUMENTATION = r"""
name: outcome
short_description: Say what came of the start of a session on one agent
version_added: 0.1.0
description:
  - Sums up the registered results of the steps, for M(backendai.cluster.session_record).
author:
  - backendai.cluster contributors (!UNKNOWN)
positional: rollback
options:
  _input:
    description: The registered results of the steps, in their order; those that were skipped, too.
    type: list
    elements: dict
    required: true
  rollback:
    description: The registered result of taking this agent's part away again.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Keep what came of it
  ansible.builtin.set_fact:
    outcome: "{{ [claim, slice, check] | backendai.cluster.outcome(rollback) }}"
"""

RETURN = r"""
_value:
  description:
    - RV(ignore:failed) says why the first step failed that did, RV(ignore:refused) why the claim was refused,
      RV(ignore:containers) are the states of the containers, RV(ignore:left) says whether something may have been left
      behind.
  type: dict
"""


def outcome(steps: Iterable[Mapping[str, Any]], rollback: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outcome; ``failed`` is there only where a step failed."""
    listed = list(steps)
    said: dict[str, Any] = {"refused": "", "containers": {}, "left": _trouble(rollback) is not None}
    for step in listed:
        said["refused"] = said["refused"] or step.get("refused") or ""
        said["containers"] |= step.get("containers") or {}
    failures = [trouble for trouble in map(_trouble, listed) if trouble is not None]
    return {**said, "failed": failures[0]} if failures else said


def _trouble(result: Mapping[str, Any]) -> str | None:
    """Return why a step failed, ``None`` where it did not; of a loop, why its first item failed."""
    if result.get("unreachable"):
        return "it became unreachable"
    if not result.get("failed"):
        return None
    items = [item for item in result.get("results") or [] if item.get("failed")]
    return str((items[0] if items else result).get("msg") or "it failed without a word")


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Callable[[Iterable[Mapping[str, Any]], Mapping[str, Any]], dict[str, Any]]]:
        """Return the filters by name."""
        return {"outcome": outcome}
