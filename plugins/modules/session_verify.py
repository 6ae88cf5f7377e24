#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Say what is true of a session on an agent."""

from __future__ import annotations

DOCUMENTATION = r"""
module: session_verify
short_description: Say what is true of an agent's part of a session, and change nothing
version_added: 0.1.0
description:
  - Compares links, entries, ports, rules, files and containers with the plan, and lets every container that runs here
    reach every container of the session, by name, over TCP, with full-size frames that may not be fragmented, and
    log in by SSH with the host key checked and without a prompt.
  - What is not as it should be is told and is no failure. M(backendai.cluster.session_report) makes a report of what
    all agents say.
author:
  - backendai.cluster contributors (!UNKNOWN)
extends_documentation_fragment:
  - backendai.cluster.agent
  - backendai.cluster.attributes
  - backendai.cluster.attributes.group
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
    details: Nothing is ever changed.
options:
  name:
    description: The name of the session; not needed where O(session_id) is given.
    type: str
    default: ""
  session_id:
    description: The id of the session.
    type: str
    default: ""
  seconds:
    description: How long to wait for containers to answer.
    type: int
    default: 3
"""

EXAMPLES = r"""
- name: Look at this agent's part of the session
  backendai.cluster.session_verify:
    name: train-llm
  register: verified
"""

RETURN = r"""
parts:
  description:
    - What this agent holds of sessions of that name or id. There is none on an agent that holds nothing of it.
    - RV(ignore:drift) has a difference for each thing that a repair would change here.
    - RV(ignore:pairs) says how each container that runs here meets each of the session. V(null) is what was not tried;
      RV(ignore:latency_ms) is the round-trip time of a small ICMP echo, the best of five.
  returned: success
  type: list
  elements: dict
  sample:
    - committed: true
      expired: false
      containers: {main1: {status: running, image_digest: "sha256:…", exit_code: null, finished_at: null}}
      drift: [{subject: "link bax-5f0c6a523c", is: mtu 1400, should: mtu 1450}]
      pairs:
        - {from: main1, to: sub1, name: true, tcp: true, frame: true, ssh: true, ssh_error: null, latency_ms: 0.07}
unfit:
  description: Why the agent cannot be asked, one sentence; V(null) when it can.
  returned: success
  type: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.backendai.cluster.plugins.module_utils._docker.client import connect
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.errors import EXPECTED
from ansible_collections.backendai.cluster.plugins.module_utils._module import CONNECTION_OPTIONS, finish
from ansible_collections.backendai.cluster.plugins.module_utils._session.verify import parts_of, verify


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **CONNECTION_OPTIONS,
            "name": {"type": "str", "default": ""},
            "session_id": {"type": "str", "default": ""},
            "seconds": {"type": "int", "default": 3},
        },
        supports_check_mode=True,
    )

    def look() -> dict[str, Any]:
        params, store = module.params, Store(module.params["state_path"])
        try:
            held = parts_of(store, params["name"], params["session_id"])
            parts = [verify(connect(params["docker_host"]), store, one, params["seconds"]) for one in held]
        except EXPECTED as error:
            return {"changed": False, "parts": [], "unfit": str(error)}
        return {"changed": False, "parts": parts, "unfit": None}

    finish(module, look)


if __name__ == "__main__":
    main()
