# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a file of a runtime kit on the control node is for, before it is copied to a host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..module_utils._host.kit_archive import describe_kit

DOCUMENTATION = r"""
name: kit
short_description: Return what a file of a runtime kit is for
version_added: 0.1.0
description:
  - "Internal: called by the roles of this collection."
  - Reads a file of C(build_kit), and checks that it is complete and undamaged.
author:
  - backendai.cluster contributors (!UNKNOWN)
options:
  _input:
    description: The path of the file, or V(host) without one.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Show what the kit is for
  ansible.builtin.debug:
    msg: "{{ agent_kit | backendai.cluster.kit }}"
"""

RETURN = r"""
_value:
  description: The C(path), and of a file the C(architecture), and the C(problem) why it cannot be used.
  type: dict
"""


class FilterModule:
    """The filter of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filter by name."""
        return {"kit": describe_kit}
