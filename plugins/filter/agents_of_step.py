# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The agents of a step of session starts: a play without hosts costs nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..plugin_utils._lifecycle.start_steps import agents_of_step
from ..plugin_utils.host_link import forks

DOCUMENTATION = r"""
name: agents_of_step
short_description: Return the agents that run a step of session starts
version_added: 0.1.0
description:
  - "Internal: called by the playbooks of this collection."
  - Returns the agents with work to do in the step, for the C(hosts) of a play.
author:
  - backendai.cluster contributors (!UNKNOWN)
positional: step, hostvars
options:
  _input:
    description: The sessions that a run starts, as M(backendai.cluster.session_plan) returned them.
    type: list
    elements: dict
    required: true
  step:
    description: A step of M(backendai.cluster.session_step). With V(remove), the agents of all incomplete starts.
    type: str
    required: true
  hostvars:
    description: The variables of all hosts, with the results of the steps so far.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Start the containers
  hosts: "{{ planned.starts | backendai.cluster.agents_of_step('apply', hostvars) }}"
  tasks: []
"""

RETURN = r"""
_value:
  description: The names of agents.
  type: list
  elements: str
"""


def _agents_of_step(starts: Sequence[Mapping[str, Any]], step: str, hostvars: Mapping[str, Any]) -> list[str]:
    return agents_of_step(starts, step, hostvars, forks())


class FilterModule:
    """The filter of this file."""

    def filters(self) -> dict[str, Callable[..., list[str]]]:
        """Return the filter by name."""
        return {"agents_of_step": _agents_of_step}
