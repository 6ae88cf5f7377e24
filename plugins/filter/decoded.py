# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options of roles that are lists or mappings, whatever inventory they come from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError

from ..plugin_utils.option_text import decode_list, decode_mapping

DOCUMENTATION = r"""
name: decoded
short_description: Return the list or mapping of an option that may be a text
version_added: 0.1.0
description:
  - "Internal: called by the roles of this collection."
  - In inventories in INI format, and by C(-e name=value), lists and mappings are texts. Returns what they say; any
    other value is returned unchanged.
author:
  - backendai.cluster contributors (!UNKNOWN)
positional: option, kind
options:
  _input:
    description: The value of the option. A text is JSON or YAML in brackets; a list may also be separated by commas.
    type: raw
    required: true
  option:
    description: The name of the option, for errors.
    type: str
    required: true
  kind:
    description: What the option is.
    type: str
    choices: [list, dict]
    default: list
"""

EXAMPLES = r"""
- name: Show the networks
  ansible.builtin.debug:
    msg: "{{ agent_closed_networks | backendai.cluster.decoded('agent_closed_networks') }}"
"""

RETURN = r"""
_value:
  description: The list or mapping.
  type: raw
"""


def decoded(value: Any, option: str, kind: str = "list") -> Any:
    """Return the list or mapping of an option. Raises :class:`AnsibleFilterError` with one sentence."""
    try:
        return decode_mapping(value) if kind == "dict" else decode_list(value)
    except ValueError as error:
        raise AnsibleFilterError(f"{option}: {error}.") from None


class FilterModule:
    """The filter of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filter by name."""
        return {"decoded": decoded}
