#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find the session that has to go."""

from __future__ import annotations

DOCUMENTATION = r"""
module: session_find
short_description: Find a session by its name or id and note that it has to go
version_added: 0.1.0
description:
  - Looks through the queue and through what M(backendai.cluster.agent_info) said of the agents. The note in the queue
    is written before anything is touched, so that a run that is killed is finished by the next.
  - A session that waits is cancelled.
  - Fails when an agent that holds a part of the session cannot be used, unless O(force=true).
author:
  - backendai.cluster contributors (!UNKNOWN)
extends_documentation_fragment:
  - backendai.cluster.attributes.control
  - backendai.cluster.manager
  - backendai.cluster.manager.queue
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
    details: It changes nothing but the queue.
options:
  name:
    description: The name of the session.
    type: str
    default: ""
  id:
    description: The id of the session.
    type: str
    default: ""
  force:
    description: Whether to go on without the agents that cannot be used. They are cleared when they return.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Find the session
  backendai.cluster.session_find:
    name: train-llm
    agents: "{{ groups['agents'] }}"
  register: found
"""

RETURN = r"""
plan:
  description: The plan of the session; V(null) when no agent holds it.
  returned: success
  type: dict
agents:
  description: The agents that hold a part of it and can be used.
  returned: success
  type: list
  elements: str
away:
  description: The agents that may hold a part of it and cannot be used.
  returned: success
  type: list
  elements: str
record:
  description: The last record of the session.
  returned: success
  type: dict
"""

# The work is done by the action plugin of the same name, on the control node.
