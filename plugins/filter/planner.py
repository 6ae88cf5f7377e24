# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The host that plans sessions, which is the control node."""

from __future__ import annotations

import re
from collections.abc import Callable

from ansible.errors import AnsibleFilterError

DOCUMENTATION = r"""
name: planner
short_description: Return the planning host, or reject a C(--limit) that excludes it
version_added: 0.1.0
description:
  - Returns V(localhost), for the C(hosts) of a play that plans.
  - With a C(--limit) without V(localhost), Ansible would skip that play silently; the filter fails instead.
author:
  - backendai.cluster contributors (!UNKNOWN)
options:
  _input:
    description: The value of C(--limit), from C(ansible_limit); empty without one.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Plan
  hosts: "{{ ansible_limit | default('') | backendai.cluster.planner }}"
  tasks: []
"""

RETURN = r"""
_value:
  description: V(localhost).
  type: str
"""


def planner(limit: str) -> str:
    """Return the planning host. Raises :class:`AnsibleFilterError` if ``limit`` excludes it."""
    if limit and "localhost" not in re.split(r"\s*[,:]\s*", limit.strip()):
        raise AnsibleFilterError(
            f"--limit {limit!r} excludes localhost, which plans sessions: use --limit 'localhost,{limit}'."
        )
    return "localhost"


class FilterModule:
    def filters(self) -> dict[str, Callable[[str], str]]:
        return {"planner": planner}
