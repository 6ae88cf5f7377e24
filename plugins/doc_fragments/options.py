# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """Options that several modules have, by what they are about."""

    # The agent's engine, and how to reach it.
    ENGINE = r"""
options:
  docker_host:
    description: The address of the agent's Docker engine.
    type: str
    default: unix:///var/run/docker.sock
requirements:
  - Docker SDK for Python (C(python3-docker))
"""

    # What the agent remembers.
    STATE = r"""
options:
  state_path:
    description:
      - The folder that holds what the host remembers of sessions. The role P(backendai.cluster.agent#role) makes it.
    type: path
    default: /var/lib/backendai
"""

    # Where the agent's peers are.
    UNDERLAY = r"""
options:
  underlay_address:
    description:
      - The address at which the agent's peers reach it.
      - When empty, the address of the interface with the default route, else the one that this connection came in at.
    type: str
    default: ""
"""

    # What the gateway remembers.
    GATEWAY = r"""
options:
  state_path:
    description:
      - The folder that holds what the gateway remembers. The role P(backendai.cluster.gateway#role) makes it.
    type: path
    default: /var/lib/backendai-gateway
"""

    # What an action on the control node reads of all agents.
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
      - The folder on the control node that holds the sessions that wait, start or end, and those that have ended.
      - Empty for the folder C(queue) beside the inventory.
    type: path
    default: ""
"""

    # Which session is meant.
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

    # What steps of a start know of it.
    START = r"""
options:
  starts:
    description: The sessions that this run starts, as M(backendai.cluster.session_plan) returned them.
    type: list
    elements: dict
    required: true
  claim_ttl:
    description: For how many seconds from now a claim holds, unless the session is committed.
    type: int
    required: true
"""

    # What is said of the run so far.
    RUN = r"""
options:
  facts_max_age:
    description: For how many seconds what an agent said is used again, instead of asking it.
    type: int
    default: 0
  started_at:
    description: When the agents were about to be read, in seconds since the epoch.
    type: float
    default: 0.0
"""
