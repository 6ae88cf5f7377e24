# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options that actions on the control node share."""

from __future__ import annotations


class ModuleDocFragment:
    """What the manager reads: the agents' facts, and the queue."""

    DOCUMENTATION = r"""
options:
  agents:
    description: The inventory names of all agents; their facts are read from the variable C(__session_agent) of each.
    type: list
    elements: str
    required: true
"""

    QUEUE = r"""
options:
  queue_path:
    description:
      - The folder on the control node that holds the sessions that wait, start or end, and those that have ended.
      - Empty for the folder C(queue) beside the inventory.
    type: path
    default: ""
"""

    RULES = r"""
options:
  policy:
    description: Which of the sessions of one priority goes first.
    type: str
    choices: [fifo, lifo, drf]
    default: fifo
  patience:
    description: How many later sessions may pass one that waits.
    type: int
    default: 16
"""
