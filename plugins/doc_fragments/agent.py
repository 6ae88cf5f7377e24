# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options that modules on an agent share."""

from __future__ import annotations


class ModuleDocFragment:
    """Options of an agent."""

    # How to reach the engine.
    DOCUMENTATION = r"""
options:
  docker_host:
    description: The address of the agent's Docker engine.
    type: str
    default: unix:///var/run/docker.sock
requirements:
  - Docker SDK for Python (C(python3-docker))
"""

    # What it remembers.
    STATE = r"""
options:
  state_path:
    description:
      - The folder that holds what the agent remembers of sessions. The role P(backendai.cluster.agent#role) makes it.
    type: path
    default: /var/lib/backendai
"""

    # Where its peers are.
    UNDERLAY = r"""
options:
  underlay_address:
    description:
      - The address at which the agent's peers reach it.
      - When empty, the address of the interface with the default route, else the one that this connection came in at.
    type: str
    default: ""
"""
