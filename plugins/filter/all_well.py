# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a step of a start went well on all of its agents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

DOCUMENTATION = r"""
name: all_well
short_description: Say whether a step went well on all agents
version_added: 0.1.0
description:
  - Returns whether each of the results is there, did not fail, came from an agent that could be reached, and was not
    refused.
author:
  - backendai.cluster contributors (!UNKNOWN)
options:
  _input:
    description: The registered result of the step of each agent.
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
- name: See whether all have claimed
  ansible.builtin.set_fact:
    go: "{{ agents | map('extract', hostvars, 'claim') | backendai.cluster.all_well }}"
"""

RETURN = r"""
_value:
  description: Whether all is well.
  type: bool
"""


def all_well(results: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether every result is one of success; one that is missing is none."""
    bad = ("failed", "unreachable", "refused")
    return all(isinstance(one, Mapping) and not any(one.get(key) for key in bad) for one in results)


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Callable[[Iterable[Mapping[str, Any]]], bool]]:
        """Return the filters by name."""
        return {"all_well": all_well}
