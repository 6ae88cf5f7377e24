# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Finds variables that were options of this collection once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..plugin_utils.removed_options import describe_removed_options

DOCUMENTATION = r"""
name: removed_options
short_description: Return which variables were options once
version_added: 0.1.0
description:
  - "Internal: called by the roles of this collection."
  - Returns a sentence for each, with what to use instead.
author:
  - backendai.cluster contributors (!UNKNOWN)
options:
  _input:
    description: The names of variables.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Show which variables have no effect any more
  ansible.builtin.debug:
    msg: "{{ query('ansible.builtin.varnames', '^agent_') | backendai.cluster.removed_options }}"
"""

RETURN = r"""
_value:
  description: The sentences.
  type: list
  elements: str
"""


def removed_options(names: Iterable[Any]) -> list[str]:
    """Return a sentence for each variable that was an option once."""
    return describe_removed_options(map(str, names))


class FilterModule:
    """The filter of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filter by name."""
        return {"removed_options": removed_options}
