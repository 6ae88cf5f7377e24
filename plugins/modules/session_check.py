#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Let a session prove itself on an agent."""

from __future__ import annotations

DOCUMENTATION = r"""
module: session_check
short_description: Let an agent's part of a session prove itself, and commit it
version_added: 0.1.0
description:
  - Every container of this agent must reach every other of the session over TCP and with full-size frames, and log in
    by SSH to the next one, by name, with its host key checked and without a prompt.
  - When all of it holds, the session is committed here. Until then it goes away when its claim's time is over.
author:
  - backendai.cluster contributors (!UNKNOWN)
extends_documentation_fragment:
  - backendai.cluster.agent
  - backendai.cluster.attributes
  - backendai.cluster.attributes.group
attributes:
  check_mode:
    support: full
    details: Looks, and does not commit.
  diff_mode:
    support: none
    details: A commit is no change that people would want to read.
options:
  session_id:
    description: The session.
    type: str
    required: true
  nonce:
    description: The nonce of this run, which must be the one that claimed the session last.
    type: str
    required: true
  seconds:
    description: How long to wait for containers to answer.
    type: int
    default: 30
"""

EXAMPLES = r"""
- name: Let the session prove itself
  backendai.cluster.session_check:
    session_id: "{{ planned.plan.id }}"
    nonce: "{{ planned.nonce }}"
"""

RETURN = r"""
containers:
  description: The state and the image's digest of each container of this agent, by hostname.
  returned: success
  type: dict
  sample:
    main1: {status: running, image_digest: "sha256:…"}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.backendai.cluster.plugins.module_utils._docker.client import connect
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._module import CONNECTION_OPTIONS, finish
from ansible_collections.backendai.cluster.plugins.module_utils._session.check import prove


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **CONNECTION_OPTIONS,
            "session_id": {"type": "str", "required": True},
            "nonce": {"type": "str", "required": True},
            "seconds": {"type": "int", "default": 30},
        },
        supports_check_mode=True,
    )

    def run() -> dict[str, Any]:
        params = module.params
        client, store = connect(params["docker_host"]), Store(params["state_path"])
        wanted = (params["session_id"], params["nonce"], params["seconds"])
        return {"changed": False, "containers": prove(client, store, *wanted, commit=not module.check_mode)}

    finish(module, run)


if __name__ == "__main__":
    main()
