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

    SESSION = r"""
options:
  name:
    description: The name of the session.
    type: str
    default: ""
  id:
    description: The id of the session.
    type: str
    default: ""
"""

    # What is said of the run so far.
    RUN = r"""
options:
  facts_max_age:
    description: For how many seconds what an agent said is used again, instead of asking it.
    type: int
    default: 0
  began:
    description: When the agents were about to be read, in seconds since the epoch.
    type: float
    default: 0.0
"""
