#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Try from outside what a host lets in."""

from __future__ import annotations

DOCUMENTATION = r"""
module: isolation_probe
short_description: Try from outside what a host lets in
version_added: 0.1.0
description:
  - Tries TCP ports, UDP ports and pings of addresses of one host, many at once, and says what answers. It ends by
    itself, two and a half seconds after the last attempt.
  - Addresses behind the host, those of its containers among them, are tried through it where it is on the same segment.
    That takes a route for each, marked with the protocol 186, which is removed at the end. A run that was killed leaves
    its routes to the next one.
  - Silence at a UDP port proves that nothing answers, not that nothing listens.
author:
  - backendai.cluster contributors (!UNKNOWN)
extends_documentation_fragment:
  - backendai.cluster.attributes
attributes:
  check_mode:
    support: full
    details: Nothing is tried.
  diff_mode:
    support: none
    details: Nothing is changed that would last.
requirements:
  - python >= 3.9
  - iproute2
notes:
  - Needs root, for routes and for ICMP.
options:
  own:
    description: The addresses of the host itself; those of the same segment are the way to what is behind it.
    type: list
    elements: str
    required: true
  addresses:
    description: The addresses to try, among O(own) or behind the host.
    type: list
    elements: str
    required: true
  ports:
    description: The TCP ports to try, as numbers and ranges.
    type: str
    default: 1-65535
  udp_ports:
    description: The UDP ports to try.
    type: list
    elements: int
    default: []
  echo:
    description: Whether to ping.
    type: bool
    default: true
  rate:
    description:
      - How many connections are being opened at one moment. The limit for open files of this host may allow fewer.
    type: int
    default: 16000
"""

EXAMPLES = r"""
- name: Try an agent and one of its containers
  backendai.cluster.isolation_probe:
    own: [10.77.9.11]
    addresses: [10.77.9.11, 172.18.0.2]
    udp_ports: [4789]
"""

RETURN = r"""
answers:
  description:
    - What answered. V(open) takes connections, V(closed) refuses them, V(answered) sent another ICMP error. What is
      silent is not listed.
  returned: success
  type: list
  elements: dict
  sample: [{address: 10.77.9.11, protocol: tcp, state: open, ports: "22"}]
ways:
  description: The next hop by which each address was tried; empty for an address of this segment.
  returned: success
  type: dict
  sample: {10.77.9.11: "", 172.18.0.2: 10.77.9.11}
missing:
  description: Why addresses could not be tried.
  returned: success
  type: dict
unseen:
  description: Addresses of this segment that no host has claimed, so that their silence says nothing.
  returned: success
  type: list
  elements: str
near:
  description: Whether the host is on this segment.
  returned: success
  type: bool
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.backendai.cluster.plugins.module_utils._exposure.prober import Attempt, probe
from ansible_collections.backendai.cluster.plugins.module_utils._model.addressing import is_address
from ansible_collections.backendai.cluster.plugins.module_utils._model.port_ranges import parse_ranges
from ansible_collections.backendai.cluster.plugins.module_utils._module import finish


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "own": {"type": "list", "elements": "str", "required": True},
            "addresses": {"type": "list", "elements": "str", "required": True},
            "ports": {"type": "str", "default": "1-65535"},
            "udp_ports": {"type": "list", "elements": "int", "default": []},
            "echo": {"type": "bool", "default": True},
            "rate": {"type": "int", "default": 16000},
        },
        supports_check_mode=True,
    )

    def tried() -> dict[str, Any]:
        params = module.params
        try:
            ports = parse_ranges(params["ports"])
        except ValueError as error:
            raise ValueError(f"ports: {params['ports']!r} {error}") from None
        for option in ("own", "addresses"):
            wrong = [address for address in params[option] if not is_address(address)]
            if wrong:
                raise ValueError(f"{option}: {wrong[0]!r} must be an IPv4 or IPv6 address")
        if params["rate"] < 1:
            raise ValueError(f"rate: {params['rate']} must be at least 1")
        if module.check_mode:
            return {"answers": [], "ways": {}, "missing": {}, "unseen": [], "near": False}
        given = {name: params[name] for name in ("own", "addresses", "udp_ports", "echo", "rate")}
        return probe(Attempt(ports=ports, **given))

    finish(module, lambda: {"changed": False, **tried()})


if __name__ == "__main__":
    main()
