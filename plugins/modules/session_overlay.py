#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Make the overlay of a session in a Docker Swarm."""

from __future__ import annotations

DOCUMENTATION = r"""
module: session_overlay
short_description: Make a session's overlay in the Docker Swarm of its agents
version_added: 0.1.0
description:
  - Makes the network of a session whose driver is V(swarm), unless it is there. The agent must manage the swarm, and
    have claimed the session; the swarm itself is never changed.
  - M(backendai.cluster.session_slice) takes the overlay away with the slice of the agent that made it.
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
    support: full
options:
  plan:
    description: The plan, as M(backendai.cluster.session_plan) returned it.
    type: dict
    required: true
  nonce:
    description: The nonce of this run. The session must have been claimed with it, or be committed.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Make the overlay
  backendai.cluster.session_overlay:
    plan: "{{ planned.plan }}"
    nonce: "{{ planned.nonce }}"
  when: inventory_hostname == planned.plan.network.manager
"""

RETURN = r"""
diff:
  description: What changed.
  returned: success
  type: dict
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.backendai.cluster.plugins.module_utils._docker.client import connect
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import as_diff
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.module_utils._module import CONNECTION_OPTIONS, finish
from ansible_collections.backendai.cluster.plugins.module_utils._session.overlay import make_overlay

OPTIONS = {"plan": {"type": "dict", "required": True}, "nonce": {"type": "str", "required": True}}


def main() -> None:
    module = AnsibleModule(argument_spec={**CONNECTION_OPTIONS, **OPTIONS}, supports_check_mode=True)

    def run() -> dict[str, Any]:
        client, store = connect(module.params["docker_host"]), Store(module.params["state_path"])
        plan = SessionPlan.from_dict(module.params["plan"])
        changes = make_overlay(client, store, plan, module.params["nonce"], dry=module.check_mode)
        return {"changed": bool(changes), "diff": as_diff(changes)}

    finish(module, run)


if __name__ == "__main__":
    main()
