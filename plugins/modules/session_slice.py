#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Make an agent's slice of a session true, or take it away."""

from __future__ import annotations

DOCUMENTATION = r"""
module: session_slice
short_description: Make one agent's slice of a session true, or take it away
version_added: 0.1.0
description:
  - One call makes everything that a session has on this agent - files, network, tunnel, containers - as the plan says.
    On a healthy session it changes nothing; what drifted is repaired, and the diff names it.
  - With O(state=absent) all of it goes, whatever is left of it.
  - An action on the control node renders the templates before the module runs on the agent.
author:
  - backendai.cluster contributors (!UNKNOWN)
extends_documentation_fragment:
  - backendai.cluster.agent
  - backendai.cluster.attributes
  - backendai.cluster.attributes.group
attributes:
  action:
    description: Renders O(hosts_template), O(ssh_config_template) and O(environment_template) on the control node.
    support: full
  check_mode:
    support: full
  diff_mode:
    support: full
    details: The environment of containers may hold secrets, so only the fact that it differs is shown.
options:
  state:
    description: Whether the slice should be there.
    type: str
    choices: [present, absent]
    default: present
  session_id:
    description: The session to take away.
    type: str
  plan:
    description: The plan, as M(backendai.cluster.session_plan) returned it.
    type: dict
  agent:
    description: The inventory name of the agent.
    type: str
  nonce:
    description:
      - The nonce of this run. The slice must have been claimed with it, or be committed.
      - With O(state=absent), only a slice that was claimed with it goes; without it, any does.
    type: str
  public_keys:
    description: The public keys of all containers of the session, by hostname.
    type: dict
  spec:
    description:
      - The request, as M(backendai.cluster.session_spec) returned it. The action takes the environment of each role and
        the users' keys from it.
    type: dict
  user_keys:
    description: Public keys of people who may log in to main1. Set by the action.
    type: list
    elements: str
    default: []
  default_network:
    description: The Docker network of the agent through which containers reach the world.
    type: str
    default: backendai-default
  hosts_template:
    description: The template of C(/etc/hosts).
    type: str
    default: hosts.j2
  ssh_config_template:
    description: The template of the SSH client's configuration.
    type: str
    default: ssh_config.j2
  environment_template:
    description: The template of the file that lists a container's environment, one C(KEY=VALUE) in each line.
    type: str
    default: environment.j2
  images:
    description:
      - The images that the agents of the session have, by agent and name, as M(backendai.cluster.session_image) returns
        them. Nothing is made where agents have different ones of one name.
    type: dict
    default: {}
  hosts:
    description: The rendered C(/etc/hosts). Set by the action.
    type: str
  ssh_config:
    description: The rendered configuration of the SSH client. Set by the action.
    type: str
  bootstrap:
    description: The text of C(session_bootstrap_script). Set by the action.
    type: str
    default: ""
  environments:
    description: The environments of containers by hostname, as JSON. Set by the action.
    type: json
  environment_files:
    description: The files that list them, by hostname. Set by the action.
    type: dict
"""

EXAMPLES = r"""
- name: Make this agent's slice of the session true
  backendai.cluster.session_slice:
    plan: "{{ planned.plan }}"
    agent: "{{ inventory_hostname }}"
    nonce: "{{ planned.nonce }}"
    public_keys: "{{ public_keys }}"
    spec: "{{ checked.spec }}"

- name: Take it away
  backendai.cluster.session_slice:
    state: absent
    session_id: "{{ planned.plan.id }}"
"""

RETURN = r"""
diff:
  description: What changed, a line for each thing.
  returned: success
  type: dict
"""

import json
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.backendai.cluster.plugins.module_utils._docker.client import connect
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import as_diff
from ansible_collections.backendai.cluster.plugins.module_utils._model.images import found_images
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.module_utils._module import CONNECTION_OPTIONS, finish
from ansible_collections.backendai.cluster.plugins.module_utils._session.apply import Asked, apply_claimed
from ansible_collections.backendai.cluster.plugins.module_utils._session.contents import Contents
from ansible_collections.backendai.cluster.plugins.module_utils._session.remove import remove_claimed

OPTIONS = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "session_id": {"type": "str"},
    "plan": {"type": "dict"},
    "agent": {"type": "str"},
    "nonce": {"type": "str"},
    "public_keys": {"type": "dict", "no_log": False},
    "user_keys": {"type": "list", "elements": "str", "default": [], "no_log": False},
    "spec": {"type": "dict", "no_log": True},
    "default_network": {"type": "str", "default": "backendai-default"},
    "hosts_template": {"type": "str", "default": "hosts.j2"},
    "ssh_config_template": {"type": "str", "default": "ssh_config.j2"},
    "environment_template": {"type": "str", "default": "environment.j2"},
    "images": {"type": "dict", "default": {}},
    "hosts": {"type": "str"},
    "ssh_config": {"type": "str"},
    # As one text: each short value of a secret mapping would be censored wherever it occurs in a result.
    "environments": {"type": "json", "no_log": True},
    "environment_files": {"type": "dict", "no_log": True},
    "bootstrap": {"type": "str", "default": "", "no_log": True},
}

FROM_PLAYBOOK = ("plan", "agent", "nonce", "public_keys")
FROM_ACTION = ("hosts", "ssh_config", "environments", "environment_files")


def main() -> None:
    module = AnsibleModule(
        argument_spec={**CONNECTION_OPTIONS, **OPTIONS},
        required_if=[
            ("state", "present", (*FROM_PLAYBOOK, *FROM_ACTION)),
            ("state", "absent", ("session_id",)),
        ],
        supports_check_mode=True,
    )

    def run() -> dict[str, Any]:
        params, dry = module.params, module.check_mode
        client, store = connect(params["docker_host"]), Store(params["state_path"])
        if params["state"] == "absent":
            changes = remove_claimed(client, store, params["session_id"], params["nonce"], dry=dry)
        else:
            contents = Contents.from_options({**params, "environments": json.loads(params["environments"])})
            plan = SessionPlan.from_dict(params["plan"])
            network, images = params["default_network"], found_images(params["images"])
            asked = Asked(plan, params["agent"], params["nonce"], contents, network, images)
            changes = apply_claimed(client, store, asked, dry=dry)
        return {"changed": bool(changes), "diff": as_diff(changes)}

    finish(module, run)


if __name__ == "__main__":
    main()
