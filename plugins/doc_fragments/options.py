# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """Options that several modules share, by topic."""

    # The agent's Docker engine.
    ENGINE = r"""
options:
  docker_host:
    description: The address of the agent's Docker engine.
    type: str
    default: unix:///var/run/docker.sock
requirements:
  - Docker SDK for Python (C(python3-docker))
"""

    # The state of a host.
    STATE = r"""
options:
  state_path:
    description:
      - The folder for the state of sessions on the host. The role P(backendai.cluster.agent#role) creates it.
    type: path
    default: /var/lib/backendai
"""

    # The underlay of an agent.
    UNDERLAY = r"""
options:
  underlay_address:
    description:
      - The address at which other agents reach it.
      - When empty, the address of the interface with the default route, else the local address of this connection.
    type: str
    default: ""
"""

    # The state of a gateway.
    GATEWAY = r"""
options:
  state_path:
    description:
      - The folder for the state of the gateway. The role P(backendai.cluster.gateway#role) creates it.
    type: path
    default: /var/lib/backendai-gateway
"""

    # The agents that an action on the control node reads the facts of.
    AGENTS = r"""
options:
  agents:
    description: The inventory names of all agents; their facts are read from the variable C(__session_agent) of each.
    type: list
    elements: str
    required: true
"""

    # The queue of the control node.
    QUEUE = r"""
options:
  queue_path:
    description:
      - The folder on the control node for pending, starting and terminating sessions, and the history of ended ones.
      - Empty for the folder C(.queue) beside the inventory.
    type: path
    default: ""
"""

    # The session that an action on the control node looks at.
    LOOK = r"""
options:
  name:
    description: The name of the session; this or O(id) is required. By default the variable C(session_name).
    type: str
  id:
    description:
      - The id of the session, instead of its name. By default the variable C(session_id).
      - A session without a record on this control node has no name here.
    type: str
  queue_path:
    description:
      - The folder on the control node with the queue of sessions. All playbooks and tasks of a cluster need the same.
      - By default the variable C(session_queue_path), or else the folder C(.queue) beside the inventory.
    type: path
"""
