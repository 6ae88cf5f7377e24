#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Claim an agent's part of a session."""

from __future__ import annotations

DOCUMENTATION = r"""
module: session_claim
short_description: Claim an agent's part of a planned session
version_added: 0.1.0
description:
  - Under the agent's lock, checks that the plan still fits what is there now, chooses cores and devices, notes the
    claim, and makes the key pairs of the containers. Private keys stay on the agent.
  - A plan that no longer fits is no failure of this module. It says why in RV(refused), so that there can be another.
  - A container gets cores that are distinct and devices that no other container has; its devices are of one NUMA node
    and its cores of the same one, wherever there are enough.
  - A session that is committed already is left as it is. One that another run left half way is taken over.
  - A claim that is not committed when its time is over counts as gone, and the next claim on the agent removes it.
author:
  - backendai.cluster contributors (!UNKNOWN)
extends_documentation_fragment:
  - backendai.cluster.agent
  - backendai.cluster.agent.capacity
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
  request:
    description: What the user asked, in the form in which it can be compared later.
    type: dict
    required: true
  agent:
    description: The inventory name of the agent.
    type: str
    required: true
  nonce:
    description: What tells this run from others.
    type: str
    required: true
  seconds:
    description: How long the claim holds unless the session is committed.
    type: int
    default: 600
  unproven:
    description:
      - Whether no run has finished this session yet. What a killed run has committed here then belongs to this run, and
        goes where this run fails.
    type: bool
    default: false
  clear:
    description: The ids of sessions that ended while this agent was away. What it has of them is removed first.
    type: list
    elements: str
    default: []
seealso:
  - module: backendai.cluster.session_slice
"""

EXAMPLES = r"""
- name: Claim this agent's part
  backendai.cluster.session_claim:
    plan: "{{ planned.plan }}"
    request: "{{ planned.request }}"
    agent: "{{ inventory_hostname }}"
    nonce: "{{ planned.nonce }}"
"""

RETURN = r"""
refused:
  description: Why the plan no longer fits this agent, one sentence; V(null) when the claim is granted.
  returned: success
  type: str
public_keys:
  description: The public keys of the containers on this agent, by hostname; none when the claim is refused.
  returned: success
  type: dict
  sample:
    main1: {user: ssh-ed25519 AAAA…, host: ssh-ed25519 AAAA…}
"""

import dataclasses
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.backendai.cluster.plugins.module_utils._docker.client import connect
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import as_diff
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.module_utils._module import (
    CAPACITY_OPTIONS,
    CONNECTION_OPTIONS,
    finish,
)
from ansible_collections.backendai.cluster.plugins.module_utils._session.claim import (
    Claim,
    Claimed,
    ClaimRefused,
    claim,
)
from ansible_collections.backendai.cluster.plugins.module_utils._session.survey import Settings


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **CONNECTION_OPTIONS,
            **CAPACITY_OPTIONS,
            "plan": {"type": "dict", "required": True},
            "request": {"type": "dict", "required": True},
            "agent": {"type": "str", "required": True},
            "nonce": {"type": "str", "required": True},
            "seconds": {"type": "int", "default": 600},
            "clear": {"type": "list", "elements": "str", "default": []},
            "unproven": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )

    def run() -> dict[str, Any]:
        params = module.params
        settings = Settings(**{option: params[option] for option in CAPACITY_OPTIONS})
        plan = SessionPlan.from_dict(params["plan"])
        options = ("request", "agent", "nonce", "seconds", "clear", "unproven")
        wanted = Claim(plan, *(params[option] for option in options))
        client, store = connect(params["docker_host"]), Store(params["state_path"])
        refused = None
        try:
            claimed = claim(client, store, settings, wanted, dry=module.check_mode)
        except ClaimRefused as refusal:
            refused, claimed = str(refusal), Claimed([], {})
        return {
            "changed": bool(claimed.changes),
            "diff": as_diff(claimed.changes),
            "refused": refused,
            "public_keys": {hostname: dataclasses.asdict(keys) for hostname, keys in claimed.keys.items()},
        }

    finish(module, run)


if __name__ == "__main__":
    main()
