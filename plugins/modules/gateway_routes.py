#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: gateway_routes
short_description: Manage the session routes of a gateway
version_added: 0.1.0
description:
  - Adds, changes and removes routes without a reload of HAProxy and without interrupting other connections.
  - Compares the maps in HAProxy's memory and the gateway's firewall table with the routes each time, and repairs them;
    without any option, it does nothing else.
  - A name, and an address with a port, belong to one session. If a new route has the name of an older one, the older
    one is removed; if it has one of its addresses and ports, the older one loses that, because it is stale.
extends_documentation_fragment:
  - backendai.cluster.attributes
  - backendai.cluster.attributes.program
  - backendai.cluster.attributes.group
  - backendai.cluster.options.gateway
requirements:
  - nftables
options:
  routes:
    description: The sessions and their addresses. Existing routes of these sessions are replaced.
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
              - The protocol of the app; V(http) includes WebSocket.
              - Users reach apps with V(tcp) by SSH port forwarding, without a route.
            type: str
            choices: [http, tcp]
            default: http
          path:
            description: Whether C(/s/SESSION/APP) in links by path is removed or left, or such links refused.
            type: str
            choices: [strip, keep, none]
            default: strip
          start:
            description: The page that the link opens.
            type: str
            default: /
          address:
            description: The IPv4 or IPv6 address of the agent for the gateway.
            type: str
            required: true
          port:
            description: The published TCP port.
            type: int
            required: true
      ssh:
        description: The address of the sshd of main1 for the gateway; without it, the session has no SSH port.
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
    description:
      - The ids of sessions to remove the routes of; an id without a route is not an error.
      - An ended session gets no route again, except with O(purge).
    type: list
    elements: str
    default: []
  vacated:
    description:
      - Sessions that an agent no longer holds. Their routes are removed if they lead to that agent.
    type: list
    elements: dict
    default: []
    suboptions:
      id:
        description: The id of the session.
        type: str
        required: true
      address:
        description: The IPv4 or IPv6 address of the agent for the gateway.
        type: str
        required: true
  purge:
    description: Whether to remove all routes that are not in O(routes).
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Add the route of a session
  backendai.cluster.gateway_routes:
    routes:
      - id: 5f0c6a52-3c0e-4f5e-9d0a-0f3c1d2e4b6a
        name: train-llm
        apps: [{name: jupyter, address: 192.0.2.11, port: 30001}]
        ssh: {address: 192.0.2.11, port: 30002}

- name: Remove the route of a session
  backendai.cluster.gateway_routes:
    ended: [5f0c6a52-3c0e-4f5e-9d0a-0f3c1d2e4b6a]
"""

RETURN = r"""
links:
  description:
    - The access points of the sessions of O(routes) that have not ended, in the same order.
      RV(ignore:ssh) is V(null) for a session without SSH, and RV(ignore:url) for an app without HTTP.
  returned: success
  type: list
  elements: dict
  sample:
    - id: 5f0c6a52-3c0e-4f5e-9d0a-0f3c1d2e4b6a
      name: train-llm
      ssh: {host: gateway.example.org, port: 31417}
      apps: [{name: jupyter, protocol: http, url: "https://gateway.example.org/s/train-llm/jupyter/"}]
unrouted:
  description: The ids of the sessions of O(ended) and O(vacated), which have no route any longer.
  returned: success
  type: list
  elements: str
  sample: [5f0c6a52-3c0e-4f5e-9d0a-0f3c1d2e4b6a]
"""
