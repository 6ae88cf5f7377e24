#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: isolation_host
short_description: Ask a host at which addresses it could be reached, or let an outsider probe them
description:
  - "Internal: called by the playbooks of this collection."
  - With O(phase=targets), reads the addresses of an agent or a gateway, of its bridges and of its containers, and the
    ports that tunnels use. The engine and the ports of the host are its variables, whose names begin with C(agent_) or
    C(gateway_).
  - With O(phase=probe), tries TCP ports, UDP ports and pings of addresses of one host, many at once, and returns what
    answers. It ends by itself, two and a half seconds after the last attempt.
  - Addresses behind the host, those of its containers among them, are tried through it where it is on the same segment.
    That takes a route for each, marked with the protocol 186, which is removed at the end. A run that was killed leaves
    its routes to the next one.
  - Silence at a UDP port proves that nothing answers, not that nothing listens.
extends_documentation_fragment:
  - backendai.cluster.attributes
  - backendai.cluster.attributes.program
attributes:
  diff_mode:
    support: none
    details: Nothing is changed that would last.
requirements:
  - Docker SDK for Python (C(python3-docker)), on agents
  - iproute2
notes:
  - Needs root, for routes and for ICMP.
options:
  phase:
    description: What the host does.
    choices: [targets, probe]
    required: true
  kind:
    description: What the host is. Required with O(phase=targets).
    choices: [agent, gateway]
  own:
    description:
      - The addresses of the host that is tried; those of the same segment are the way to what is behind it. Required
        with O(phase=probe).
    type: list
    elements: str
  addresses:
    description: The addresses to try, among O(own) or behind the host. Required with O(phase=probe).
    type: list
    elements: str
  ports:
    description: The TCP ports to try, as numbers and ranges.
    default: 1-65535
  udp_ports:
    description: The UDP ports to try.
    type: list
    elements: int
  echo:
    description: Whether to ping.
    type: bool
    default: true
  rate:
    description:
      - How many connections are being opened at one moment. The limit for open files of the outsider may allow fewer.
    type: int
    default: 16000
"""

EXAMPLES = r"""
- name: Ask a host at which addresses it could be reached, or let an outsider probe them
  backendai.cluster.isolation_host:
"""

RETURN = "# Internal."
