#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: agent_cordon
short_description: Take an agent out of service, or back into it
version_added: 0.1.0
description:
  - A cordoned agent takes no new sessions. Those that run on it go on, or end after O(sessions_end_after) seconds.
  - The cordon is kept on the agent, so that all managers know of it, and stays over reboots.
extends_documentation_fragment:
  - backendai.cluster.options.engine
  - backendai.cluster.options.state
  - backendai.cluster.attributes
  - backendai.cluster.attributes.program
  - backendai.cluster.attributes.group
options:
  state:
    description: Whether the agent is cordoned.
    type: str
    choices: [present, absent]
    default: present
  reason:
    description: Why, in one line. It is shown in lists, and to users whose sessions wait or end because of it.
    type: str
    default: ""
  sessions_end_after:
    description:
      - After how many seconds the sessions on the agent end, V(0) for at once. The next run of C(schedule_sessions),
        C(create_session) or C(terminate_session) after that ends them, on all of their agents. By default they go on.
      - The end that an earlier drain has set is only brought forward. To postpone it, take the agent back into service
        first.
    type: int
"""

EXAMPLES = r"""
- name: Drain the agent within an hour
  backendai.cluster.agent_cordon:
    reason: new memory
    sessions_end_after: 3600
"""

RETURN = r"""
cordoned_before: {type: bool, returned: success, description: Whether the agent was cordoned before.}
description: {type: str, returned: success, description: "The cordon in words; empty without one."}
sessions: {type: list, elements: str, returned: success, description: The names of the sessions on the agent.}
"""
