#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: gateway_routes
short_description: Have a gateway lead to sessions
version_added: 0.1.0
description:
  - Adds, changes and removes routes, without a reload of HAProxy and without touching anybody's connections.
  - What HAProxy has in memory and the firewall table of the gateway are compared with the routes each time, and put
    right; without any option, that is all that happens.
  - A name, and an address with a port, belong to one session. A route that is given takes them from older ones of other
    sessions, which a route that has become stale must not lead into - that of the same name goes altogether.
extends_documentation_fragment:
  - backendai.cluster.attributes
  - backendai.cluster.attributes.program
  - backendai.cluster.attributes.group
  - backendai.cluster.options.gateway
requirements:
  - nftables
options:
  routes:
    description: The sessions that users are to reach, and where they are. What was known of them before is replaced.
    type: list
    elements: dict
    default: []
    suboptions:
      id:
        description: The id of the session.
        type: str
        required: true
      name:
        description: The name of the session.
        type: str
        required: true
      apps:
        description: The apps of main1.
        type: list
        elements: dict
        default: []
        suboptions:
          name:
            description: The name of the app.
            type: str
            required: true
          protocol:
            description:
              - What the app speaks, which may be WebSocket with V(http) too.
              - Users reach apps with V(tcp) through a port that their SSH forwards, and need no route for that.
            type: str
            choices: [http, tcp]
            default: http
          address:
            description: The IPv4 or IPv6 address at which the gateway reaches it, that of the agent.
            type: str
            required: true
          port:
            description: The TCP port there.
            type: int
            required: true
      ssh:
        description: Where the gateway reaches the sshd of main1; without it, the session has no port for SSH.
        type: dict
        suboptions:
          address:
            description: The IPv4 or IPv6 address.
            type: str
            required: true
          port:
            description: The TCP port.
            type: int
            required: true
  ended:
    description: The ids of sessions that are not to be reached any more; those that have no route are no error.
    type: list
    elements: str
    default: []
  exact:
    description: Whether O(routes) are all there are to be, so that others go.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Let users in to a session
  backendai.cluster.gateway_routes:
    routes:
      - id: 5f0c6a52-3c0e-4f5e-9d0a-0f3c1d2e4b6a
        name: train-llm
        apps: [{name: jupyter, address: 192.0.2.11, port: 30001}]
        ssh: {address: 192.0.2.11, port: 30002}

- name: Close the door
  backendai.cluster.gateway_routes:
    ended: [5f0c6a52-3c0e-4f5e-9d0a-0f3c1d2e4b6a]
"""

RETURN = r"""
links:
  description:
    - Where users find the sessions of O(routes), in the same order. RV(ignore:ssh) is V(null) for a session without,
      and RV(ignore:url) for an app that does not speak HTTP.
  returned: success
  type: list
  elements: dict
  sample:
    - id: 5f0c6a52-3c0e-4f5e-9d0a-0f3c1d2e4b6a
      name: train-llm
      ssh: {host: gateway.example.org, port: 31417}
      apps: [{name: jupyter, protocol: http, url: "https://gateway.example.org/s/train-llm/jupyter/"}]
"""
